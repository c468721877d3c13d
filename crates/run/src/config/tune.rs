//! Tuning before the corpus is read and a device is opened: workers from the number of cores, buffers from RAM.
//! `train::tune` makes the final choice once the memory of a batch is known.

use super::host::HostResources;
use super::key::Key;
use super::value::Value;
use crate::memory_size::memory_size;

/// A value chosen for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The setting: `data.batch_size`.
    pub path: &'static str,
    /// The value as a user would write it.
    pub value: String,
    /// Why it was chosen, for display.
    pub reason: String,
}

const GB: u64 = 1_000_000_000;

/// Initial guess of the batch size that fits a GPU, in utterances.
pub fn first_batch(memory_bytes: u64) -> u64 {
    match memory_bytes {
        // Powers of ten: a card sold as 24 GB reports between 22.5 and 24 GiB.
        bytes if bytes >= 24 * GB => 64,
        bytes if bytes >= 12 * GB => 48,
        _ => 32,
    }
}

/// Number of threads that build batches. One core is left to the thread that launches steps; it must never wait for a
/// loader.
pub fn loader_threads(cores: usize) -> u64 {
    (cores.saturating_sub(1).max(1) as u64).min(default_of("data.num_workers"))
}

/// Explains the result of [`loader_threads`].
pub fn cores_reason(cores: usize) -> String {
    let kept = if cores > 1 { ", one kept free" } else { "" };
    format!("{cores} core{}{kept}", if cores == 1 { "" } else { "s" })
}

/// Returns the settings that suit the machine better than the defaults. A pure function of the machine.
pub fn tune(host: &HostResources) -> Vec<Tuned> {
    let mut tuned = Vec::new();
    let mut choose = |path, value: u64, reason: String| {
        tuned.push(Tuned { path, value: value.to_string(), reason });
    };

    let workers = loader_threads(host.cores);
    if workers < default_of("data.num_workers") {
        choose("data.num_workers", workers, cores_reason(host.cores));
    }

    // Buffers are never made larger: the defaults are deep enough, and deeper ones only delay a stop.
    if let Some(memory) = host.memory_bytes {
        let reason = || format!("{} of memory", memory_size(memory));
        // Two f32 mels of 80 bands at the maximum length: the size of a full batch of the default columns.
        let batch_bytes = default_of("data.batch_size") * default_of("data.max_mel_frames") * 80 * 4 * 2;
        let buffers = default_of("data.buffer_size");
        let fitting = (memory / 8 / batch_bytes).clamp(4, buffers);
        if fitting < buffers {
            choose("data.buffer_size", fitting, reason());
        }
        let ready = default_of("data.prefetch_buffer_size");
        if fitting / 2 < ready {
            choose("data.prefetch_buffer_size", fitting / 2, reason());
        }
        let cache = default_of("data.memory_cache_mb");
        let share = (memory / 16) >> 20;
        if share < cache {
            choose("data.memory_cache_mb", share, reason());
        }
    }
    tuned
}

/// Default of an integer setting.
fn default_of(path: &str) -> u64 {
    match Key::find(path).map(Key::default_value) {
        Some(Value::Int(number)) => number,
        other => unreachable!("{path} is an integer in the table, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(path: &str, host: &HostResources) -> Option<String> {
        tune(host).into_iter().find(|tuned| tuned.path == path).map(|tuned| tuned.value)
    }

    #[test]
    fn first_batch_follows_gpu_memory() {
        for (memory, expected) in
            [(80 * GB, 64), (24 * GB, 64), (24 * GB - 1, 48), (12 * GB, 48), (8 * GB, 32)]
        {
            assert_eq!(first_batch(memory), expected, "{memory}");
        }
    }

    #[test]
    fn workers_leave_a_core_free() {
        let host = |cores| HostResources { cores, memory_bytes: None };
        for (cores, expected) in
            [(1, Some("1")), (2, Some("1")), (8, Some("7")), (18, Some("17")), (19, None), (64, None)]
        {
            assert_eq!(value_of("data.num_workers", &host(cores)).as_deref(), expected, "{cores} cores");
        }
    }

    #[test]
    fn buffers_shrink_on_small_machines_only() {
        let host = |memory| HostResources { cores: 64, memory_bytes: Some(memory) };
        assert_eq!(tune(&host(128 * GB)), []);
        let tiny = host(1 << 28);
        assert_eq!(value_of("data.buffer_size", &tiny).as_deref(), Some("4"));
        assert_eq!(value_of("data.prefetch_buffer_size", &tiny).as_deref(), Some("2"));
        assert_eq!(value_of("data.memory_cache_mb", &tiny).as_deref(), Some("16"));
    }
}

//! What suits a machine as far as it is known before a corpus is read and a device opened: workers from cores, buffers from
//! RAM, and the first guess at a batch. `train::tune` decides once the memory a batch takes is planned.

use std::fs;

use super::key::Key;
use super::value::Value;

/// The hardware a run is planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Threads that run at the same time.
    pub cores: usize,
    /// RAM this process may use; `None` where the system does not say.
    pub memory_bytes: Option<u64>,
    /// GPUs; `None` where nobody has looked, which is not the same as none being there.
    pub gpus: Option<Vec<Gpu>>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As the driver names it.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
}

/// A value chosen for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The setting: `data.batch_size`.
    pub path: &'static str,
    /// The value as a user would write it.
    pub value: String,
    /// Why, for a person.
    pub reason: String,
}

impl Machine {
    /// This machine. GPUs are not looked for yet: that comes with the engine.
    pub fn detect() -> Machine {
        // Heeds affinity and CPU quotas, so a container counts its own share.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
        let limit =
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
        Machine { cores, memory_bytes: [total, limit].into_iter().flatten().min(), gpus: None }
    }
}

/// `MemTotal:       16314340 kB`
fn mem_total(meminfo: &str) -> Option<u64> {
    counted(meminfo, "MemTotal:")
}

fn counted(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// RAM that could be taken now without anything being moved out; `None` where the system does not say.
pub fn free_memory() -> Option<u64> {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| counted(&text, "MemAvailable:"));
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?.trim().parse().ok()
    };
    // What a container may still take; files it has read count as taken, so this errs on the safe side.
    let allowed = number("max").zip(number("current")).map(|(max, current)| max.saturating_sub(current));
    [available, allowed].into_iter().flatten().min()
}

const GB: u64 = 1_000_000_000;

/// Utterances of a batch that a GPU with so much memory is first thought to hold.
pub fn first_batch(memory_bytes: u64) -> u64 {
    match memory_bytes {
        // Powers of ten: a card sold as 24 GB reports between 22.5 and 24 GiB.
        bytes if bytes >= 24 * GB => 64,
        bytes if bytes >= 12 * GB => 48,
        _ => 32,
    }
}

/// Threads that make batches. One core is kept for the thread that launches steps; it must never wait for a loader.
pub fn loader_threads(cores: usize) -> u64 {
    (cores.saturating_sub(1).max(1) as u64).min(default_of("data.num_workers"))
}

/// Why there are so many threads.
pub fn cores_reason(cores: usize) -> String {
    let kept = if cores > 1 { ", one kept free" } else { "" };
    format!("{cores} core{}{kept}", if cores == 1 { "" } else { "s" })
}

/// Settings that suit the machine better than the defaults. Pure: the same machine, the same answer.
pub fn tune(machine: &Machine) -> Vec<Tuned> {
    let mut tuned = Vec::new();
    let mut say = |path, value: u64, reason: String| {
        tuned.push(Tuned { path, value: value.to_string(), reason });
    };

    let mut batch = default_of("data.batch_size");
    if let Some(gpus) = &machine.gpus {
        // The smallest GPU decides: all of them run the same batches.
        let smallest = gpus.iter().min_by_key(|gpu| gpu.memory_bytes);
        let (size, reason) = match smallest {
            None => (8, "no GPU found".to_owned()),
            Some(gpu) => {
                let size = first_batch(gpu.memory_bytes);
                (size, format!("{} with {:.0} GB", gpu.name, gpu.memory_bytes as f64 / GB as f64))
            }
        };
        batch = size;
        say("data.batch_size", size, reason);
    }

    let workers = loader_threads(machine.cores);
    if workers < default_of("data.num_workers") {
        say("data.num_workers", workers, cores_reason(machine.cores));
    }

    // Buffers only ever shrink: the defaults are deep enough, and deeper ones only delay a stop.
    if let Some(memory) = machine.memory_bytes {
        let reason = || format!("{:.1} GB of memory", memory as f64 / GB as f64);
        // Two f32 mels of 80 bands at the longest length: what a full batch of the default columns takes.
        let batch_bytes = (batch * default_of("data.max_mel_frames") * 80 * 4 * 2).max(1);
        let buffers = default_of("data.buffer_size");
        let fitting = (memory / 8 / batch_bytes).clamp(4, buffers);
        if fitting < buffers {
            say("data.buffer_size", fitting, reason());
        }
        let ready = default_of("data.prefetch_buffer_size");
        if fitting / 2 < ready {
            say("data.prefetch_buffer_size", fitting / 2, reason());
        }
        let cache = default_of("data.memory_cache_mb");
        let share = (memory / 16) >> 20;
        if share < cache {
            say("data.memory_cache_mb", share, reason());
        }
    }
    tuned
}

/// The default of a setting that is a whole number.
fn default_of(path: &str) -> u64 {
    match Key::find(path).map(Key::default_value) {
        Some(Value::Int(number)) => number,
        other => unreachable!("{path} is a whole number in the table, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(path: &str, machine: &Machine) -> Option<String> {
        tune(machine).into_iter().find(|tuned| tuned.path == path).map(|tuned| tuned.value)
    }

    fn with_gpu(memory_bytes: u64) -> Machine {
        let gpu = Gpu { name: "test".into(), memory_bytes };
        Machine { cores: 64, memory_bytes: Some(128 * GB), gpus: Some(vec![gpu]) }
    }

    #[test]
    fn batch_size_follows_gpu_memory() {
        for (memory, expected) in
            [(80 * GB, "64"), (24 * GB, "64"), (24 * GB - 1, "48"), (12 * GB, "48"), (8 * GB, "32")]
        {
            assert_eq!(value_of("data.batch_size", &with_gpu(memory)).as_deref(), Some(expected), "{memory}");
        }
        let none = Machine { gpus: Some(vec![]), ..with_gpu(0) };
        assert_eq!(value_of("data.batch_size", &none).as_deref(), Some("8"));
        let unknown = Machine { gpus: None, ..none };
        assert_eq!(value_of("data.batch_size", &unknown), None, "a GPU nobody looked for must not be denied");
    }

    #[test]
    fn workers_leave_a_core_free() {
        let machine = |cores| Machine { cores, memory_bytes: None, gpus: None };
        for (cores, expected) in
            [(1, Some("1")), (2, Some("1")), (8, Some("7")), (18, Some("17")), (19, None), (64, None)]
        {
            assert_eq!(value_of("data.num_workers", &machine(cores)).as_deref(), expected, "{cores} cores");
        }
    }

    #[test]
    fn a_large_machine_needs_no_smaller_buffers_and_a_tiny_one_still_works() {
        let machine = |memory| Machine { cores: 64, memory_bytes: Some(memory), gpus: None };
        assert_eq!(tune(&machine(128 * GB)), []);
        let tiny = machine(1 << 28);
        assert_eq!(value_of("data.buffer_size", &tiny).as_deref(), Some("4"));
        assert_eq!(value_of("data.prefetch_buffer_size", &tiny).as_deref(), Some("2"));
        assert_eq!(value_of("data.memory_cache_mb", &tiny).as_deref(), Some("16"));
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(mem_total("MemTotal:       16314340 kB\nMemFree: 1 kB\n"), Some(16_314_340 * 1024));
        assert_eq!(mem_total("MemTotal: many"), None);
        assert_eq!(mem_total(""), None);
    }
}

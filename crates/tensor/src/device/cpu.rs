//! The CPU, as Linux describes it.

use std::collections::HashSet;
use std::fs;

use serde::Serialize;

/// Instruction set extensions that affect arithmetic speed, as spelled in /proc/cpuinfo.
const VECTORS: [&str; 12] = [
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "asimd",
    "sve",
    "sve2",
];

/// The CPU and its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Model name; the architecture where there is none.
    pub name: String,
    /// Physical cores; `None` where they cannot be told from threads.
    pub physical_cores: Option<usize>,
    /// Hardware threads.
    pub logical_cores: usize,
    /// Threads this process may run at once, after affinity and container quotas.
    pub usable_cores: usize,
    /// Total memory in bytes.
    pub memory_total: Option<u64>,
    /// Memory in bytes that is available without swapping.
    pub memory_available: Option<u64>,
    /// Relevant vector extensions, oldest first.
    pub vectors: Vec<String>,
}

impl Cpu {
    pub(super) fn detect() -> Cpu {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        Cpu::from_proc(&read("/proc/cpuinfo"), &read("/proc/meminfo"), usable)
    }

    fn from_proc(cpuinfo: &str, meminfo: &str, usable_cores: usize) -> Cpu {
        let pairs =
            || cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k.trim(), v.trim()));
        let first = |key: &str| pairs().find(|(k, _)| *k == key).map(|(_, value)| value);
        // The socket id precedes each core id; cores of different sockets have the same ids.
        let (mut cores, mut socket) = (HashSet::new(), "");
        for (key, value) in pairs() {
            match key {
                "physical id" => socket = value,
                "core id" => _ = cores.insert((socket, value)),
                _ => {}
            }
        }
        let flags = first("flags").or_else(|| first("Features")).unwrap_or_default();
        let memory = |key: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Cpu {
            name: first("model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            physical_cores: Some(cores.len()).filter(|count| *count > 0),
            logical_cores: pairs().filter(|(key, _)| *key == "processor").count().max(1),
            usable_cores,
            memory_total: memory("MemTotal"),
            memory_available: memory("MemAvailable"),
            vectors: VECTORS
                .iter()
                .filter(|name| flags.split_whitespace().any(|flag| flag == **name))
                .map(|name| (*name).to_owned())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_are_counted_once() {
        let thread = |processor, socket, core| {
            format!(
                "processor\t: {processor}\nmodel name\t: Some CPU @ 2.0GHz\nphysical id\t: {socket}\ncore id\t\t: {core}\n\
                 flags\t\t: fpu sse4_2 avx avx2 fma avx512f_not\n\n"
            )
        };
        let cpuinfo: String = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 0), (5, 0, 1)]
            .map(|(processor, socket, core)| thread(processor, socket, core))
            .concat();
        let cpu = Cpu::from_proc(&cpuinfo, "MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:   8 kB\n", 3);
        assert_eq!(cpu.name, "Some CPU @ 2.0GHz");
        assert_eq!((cpu.physical_cores, cpu.logical_cores, cpu.usable_cores), (Some(4), 6, 3));
        assert_eq!((cpu.memory_total, cpu.memory_available), (Some(16 * 1024), Some(8 * 1024)));
        assert_eq!(cpu.vectors, ["sse4_2", "avx", "fma", "avx2"]);
    }

    #[test]
    fn missing_proc_files_still_give_a_description() {
        let cpu = Cpu::from_proc("", "", 2);
        assert_eq!(
            (cpu.name.as_str(), cpu.physical_cores, cpu.logical_cores),
            (std::env::consts::ARCH, None, 1)
        );
        assert_eq!((cpu.memory_total, cpu.vectors.len()), (None, 0));
    }
}

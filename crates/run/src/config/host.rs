//! CPU cores and RAM of this machine, as far as this process may use them.

use std::fs;

use crate::procfs;

/// CPU and memory that a run is planned for. GPUs are found later, by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostResources {
    /// Threads that can run at the same time.
    pub cores: usize,
    /// RAM this process may use, in bytes; `None` where the system does not report it.
    pub memory_bytes: Option<u64>,
}

impl HostResources {
    /// Detects the resources of this machine.
    pub fn detect() -> HostResources {
        // Respects affinity and CPU quotas, so a container gets its own share.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let total = procfs::bytes(&meminfo(), "MemTotal");
        HostResources { cores, memory_bytes: [total, cgroup_memory("max")].into_iter().flatten().min() }
    }
}

/// RAM that can be allocated now without swapping, in bytes; `None` where the system does not report it.
pub fn free_memory() -> Option<u64> {
    let available = procfs::bytes(&meminfo(), "MemAvailable");
    // What a container may still allocate. Its page cache counts as used, so this errs on the safe side.
    let allowed = cgroup_memory("max").zip(cgroup_memory("current"));
    let allowed = allowed.map(|(max, current)| max.saturating_sub(current));
    [available, allowed].into_iter().flatten().min()
}

fn meminfo() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// A number of the process's cgroup; `None` where it is unlimited.
fn cgroup_memory(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?.trim().parse().ok()
}

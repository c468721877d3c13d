//! CPU and memory use from Linux's `/proc`. On other systems all values are `None`.

use std::fs;
use std::path::{Path, PathBuf};

use myxtts_run::procfs::{self, CpuTicks, ProcessStat};

use crate::sample::HostSample;

/// Reads `/proc` and remembers the last counters, since CPU use is a difference.
#[derive(Debug)]
pub struct HostProbe {
    proc: PathBuf,
    before: Option<CpuTicks>,
    process_before: Option<(u32, u64)>,
}

impl HostProbe {
    /// Creates a probe of this machine's `/proc`.
    pub fn new() -> HostProbe {
        HostProbe::at(Path::new("/proc"))
    }

    /// Creates a probe of another folder with the same layout, for tests.
    pub fn at(proc: &Path) -> HostProbe {
        let mut probe = HostProbe { proc: proc.to_owned(), before: None, process_before: None };
        probe.before = probe.ticks().map(|(ticks, _)| ticks);
        probe
    }

    /// Samples the host; CPU use is since the last call. `run` is the training process.
    pub fn sample(&mut self, run: Option<u32>) -> HostSample {
        let mut host = HostSample::default();
        let meminfo = self.read("meminfo");
        host.memory_total = procfs::bytes(&meminfo, "MemTotal");
        let available = procfs::bytes(&meminfo, "MemAvailable");
        host.memory_used = host.memory_total.zip(available).map(|(total, free)| total.saturating_sub(free));

        let now = self.ticks();
        let process = run.and_then(|pid| Some((pid, self.process_ticks(pid)?)));
        if let Some((before, (now, cores))) = self.before.zip(now) {
            let total = now.total.saturating_sub(before.total);
            let idle = now.idle.saturating_sub(before.idle).min(total);
            if total > 0 {
                host.cpu = Some((total - idle) as f64 * 100.0 / total as f64);
                host.run_cpu = self.process_before.zip(process).and_then(|(before, after)| {
                    let used = after.1.checked_sub(before.1).filter(|_| before.0 == after.0)?;
                    // Both are counted in the same ticks, so the length of a tick does not matter.
                    Some(used as f64 * cores as f64 * 100.0 / total as f64)
                });
            }
        }
        (self.before, self.process_before) = (now.map(|(ticks, _)| ticks), process);
        host.run_memory = run.and_then(|pid| procfs::bytes(&self.read(&format!("{pid}/status")), "VmRSS"));
        host
    }

    /// Program name of a process.
    pub fn name_of(&self, pid: u32) -> Option<String> {
        Some(self.read(&format!("{pid}/comm")).trim().to_owned()).filter(|name| !name.is_empty())
    }

    fn read(&self, file: &str) -> String {
        fs::read(self.proc.join(file))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Ticks of all cores together, and the number of cores.
    fn ticks(&self) -> Option<(CpuTicks, usize)> {
        let text = self.read("stat");
        let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let cores = text.lines().filter(|line| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        Some((CpuTicks::parse(all)?, cores.count()))
    }

    fn process_ticks(&self, pid: u32) -> Option<u64> {
        ProcessStat::parse(&self.read(&format!("{pid}/stat"))).map(|stat| stat.cpu_ticks)
    }
}

impl Default for HostProbe {
    fn default() -> Self {
        HostProbe::new()
    }
}

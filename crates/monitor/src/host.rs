//! Processor and memory, as Linux tells them under `/proc`. Elsewhere there is nothing to read, and nothing is found.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sample::Host;

/// Reads `/proc`, and remembers the last counts: use is a difference.
#[derive(Debug)]
pub struct HostProbe {
    proc: PathBuf,
    before: Option<Ticks>,
    process_before: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: u64,
    idle: u64,
    cores: u64,
}

impl HostProbe {
    /// Reads this machine's `/proc`.
    pub fn new() -> HostProbe {
        HostProbe::at(Path::new("/proc"))
    }

    /// Reads files of the same form elsewhere.
    pub fn at(proc: &Path) -> HostProbe {
        let mut probe = HostProbe { proc: proc.to_owned(), before: None, process_before: None };
        probe.before = probe.ticks();
        probe
    }

    /// Since the last call; `run` is the process that trains.
    pub fn sample(&mut self, run: Option<u32>) -> Host {
        let mut host = Host::default();
        let meminfo = self.read("meminfo");
        host.memory_total = kilobytes(&meminfo, "MemTotal");
        let available = kilobytes(&meminfo, "MemAvailable");
        host.memory_used = host.memory_total.zip(available).map(|(total, free)| total.saturating_sub(free));

        let now = self.ticks();
        let process = run.and_then(|pid| Some((pid, self.process_ticks(pid)?)));
        if let Some((before, now)) = self.before.zip(now) {
            let all = now.all.saturating_sub(before.all);
            let idle = now.idle.saturating_sub(before.idle).min(all);
            if all > 0 {
                host.cpu = Some((all - idle) as f64 * 100.0 / all as f64);
                host.run_cpu = self.process_before.zip(process).and_then(|(before, after)| {
                    let taken = after.1.checked_sub(before.1).filter(|_| before.0 == after.0)?;
                    // Both are counted in the same ticks, whatever their length.
                    Some(taken as f64 * now.cores as f64 * 100.0 / all as f64)
                });
            }
        }
        (self.before, self.process_before) = (now, process);
        host.run_memory = run.and_then(|pid| kilobytes(&self.read(&format!("{pid}/status")), "VmRSS"));
        host
    }

    /// The program of a process.
    pub fn name_of(&self, pid: u32) -> Option<String> {
        Some(self.read(&format!("{pid}/comm")).trim().to_owned()).filter(|name| !name.is_empty())
    }

    fn read(&self, file: &str) -> String {
        fs::read(self.proc.join(file))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn ticks(&self) -> Option<Ticks> {
        let text = self.read("stat");
        let first = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // Guests are part of user time already: only the first eight are counted.
        let numbers: Vec<u64> =
            first.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let waiting = numbers.get(4).copied().unwrap_or(0);
        let idle = numbers.get(3)?.saturating_add(waiting);
        let cores = text.lines().filter(|line| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        let all = numbers.iter().fold(0u64, |sum, number| sum.saturating_add(*number));
        Some(Ticks { all, idle, cores: cores.count() as u64 })
    }

    fn process_ticks(&self, pid: u32) -> Option<u64> {
        let text = self.read(&format!("{pid}/stat"));
        // A program's name may hold spaces and brackets: the fields begin after the last one.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        number(11)?.checked_add(number(12)?)
    }
}

impl Default for HostProbe {
    fn default() -> Self {
        HostProbe::new()
    }
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

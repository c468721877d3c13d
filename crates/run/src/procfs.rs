//! Parsers for files of Linux's `/proc`. They take text, so that tests need no particular machine; on other systems
//! the files do not exist and the callers find nothing.

/// Value of a `KEY:` line, as in `/proc/meminfo` and `/proc/PID/status`.
pub fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Bytes of a `KEY: N kB` line.
pub fn bytes(text: &str, key: &str) -> Option<u64> {
    field(text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Hexadecimal mask of a `KEY:` line, such as `SigIgn` of `/proc/PID/status`.
pub fn mask(text: &str, key: &str) -> Option<u64> {
    u64::from_str_radix(field(text, key)?, 16).ok()
}

/// CPU time in ticks, as counted by a `cpu` line of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// Idle and busy time together.
    pub total: u64,
    /// Idle time, including the time spent waiting for I/O.
    pub idle: u64,
}

impl CpuTicks {
    /// Parses the numbers that follow the name of a `cpu` line; `None` where the idle time is missing.
    pub fn parse(numbers: &str) -> Option<CpuTicks> {
        // user, nice, system, idle, iowait, irq, softirq, steal. Guest time, which follows, is part of user time.
        let ticks: Vec<u64> =
            numbers.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let io_wait = ticks.get(4).copied().unwrap_or(0);
        let idle = ticks.get(3)?.saturating_add(io_wait);
        let total = ticks.iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
        Some(CpuTicks { total, idle })
    }
}

/// The fields of `/proc/PID/stat` that this program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// State letter: `R` running, `S` sleeping, `Z` zombie, `X` dead.
    pub state: char,
    /// Kernel flags (`PF_*`).
    pub flags: u64,
    /// CPU time of all threads in user and kernel mode, in ticks.
    pub cpu_ticks: u64,
}

impl ProcessStat {
    /// Parses the one line of `/proc/PID/stat`.
    pub fn parse(line: &str) -> Option<ProcessStat> {
        // The program's name may contain spaces and brackets: the fields begin after the last bracket.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let state = fields.first()?.chars().next()?;
        Some(ProcessStat { state, flags: number(6)?, cpu_ticks: number(11)?.checked_add(number(12)?)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_key() {
        let text = "MemTotal:       16314340 kB\nMemFree: 1 kB\nSigIgn:\t0000000000001001\n";
        assert_eq!(bytes(text, "MemTotal"), Some(16_314_340 * 1024));
        assert_eq!(mask(text, "SigIgn"), Some(0x1001));
        assert_eq!(bytes(text, "Mem"), None);
        assert_eq!(bytes("MemTotal: many", "MemTotal"), None);
        assert_eq!(bytes("", "MemTotal"), None);
    }

    #[test]
    fn guest_time_is_not_counted_twice() {
        let ticks = CpuTicks::parse("10 0 5 80 3 1 1 0 7 7").unwrap();
        assert_eq!(ticks, CpuTicks { total: 100, idle: 83 });
        assert_eq!(CpuTicks::parse("10 0 5"), None);
    }

    #[test]
    fn a_program_name_with_brackets_does_not_shift_the_fields() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0";
        let stat = ProcessStat::parse(line).unwrap();
        assert_eq!((stat.state, stat.flags, stat.cpu_ticks), ('S', 4_194_560, 300));
        assert_eq!(ProcessStat::parse("7 (cut off"), None);
    }
}

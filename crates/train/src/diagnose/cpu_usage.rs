//! CPU usage of this program and of others, and the time its threads waited for a core.

use super::trace::{CpuUsage, Delayed};
use crate::bench::cpu_seconds;
use myxtts_run::procfs::{self, CpuTicks};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Counters at one moment, in seconds of one core.
pub(super) struct Counted {
    pub at: Instant,
    own: f64,
    /// Busy and total time of the cores that this program may use; `None` if the system does not report it.
    all: Option<(f64, f64)>,
    /// Per thread: its task, seconds it ran, seconds it waited for a core.
    threads: BTreeMap<u32, (Task, f64, f64)>,
}

/// The task of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Loading,
    Feeding,
    Stepping,
    /// Takes measurements.
    Other,
}

impl Task {
    fn of(name: &str) -> Task {
        match name {
            name if name.starts_with("batch-") => Task::Loading,
            name if name.starts_with("feed ") => Task::Feeding,
            "sampler" => Task::Other,
            _ => Task::Stepping,
        }
    }
}

impl Counted {
    /// Reads the counters.
    pub fn now() -> Counted {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (stat, allowed) = (read("/proc/stat"), allowed(&read("/proc/self/status")));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // With a CPU quota smaller than the number of cores, other programs on these cores do not reduce what this one gets.
        let all = if allowed.len() > cores { None } else { counted(&stat, &allowed) };
        Counted { at: Instant::now(), own: cpu_seconds(), all, threads: threads() }
    }

    /// Usage of all cores between two readings; `workers` threads load.
    pub fn until(&self, later: &Counted, workers: usize) -> Option<CpuUsage> {
        let own = later.own - self.own;
        let (busy, time) = match (self.all, later.all) {
            (Some((busy, all)), Some((later_busy, later_all))) => (later_busy - busy, later_all - all),
            // Without the total, only the usage of this program is known.
            _ => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
                (own, (later.at - self.at).as_secs_f64() * cores)
            }
        };
        let delayed = self.delayed(later, workers);
        (time > 0.0).then(|| CpuUsage { own: own / time, all: busy / time, delayed })
    }

    fn delayed(&self, later: &Counted, workers: usize) -> Option<Delayed> {
        let since = |tid: &u32| self.threads.get(tid).map_or((0.0, 0.0), |(_, ran, stood)| (*ran, *stood));
        let of = |task: Task| {
            let threads = later.threads.iter().filter(|(_, (other, ..))| *other == task);
            threads.fold((0.0, 0.0), |(ran, stood), (tid, (_, now_ran, now_stood))| {
                let (before_ran, before_stood) = since(tid);
                (ran + (now_ran - before_ran).max(0.0), stood + (now_stood - before_stood).max(0.0))
            })
        };
        let ((ran, stood), loading, feeding) = (of(Task::Stepping), of(Task::Loading).1, of(Task::Feeding).1);
        (ran > 0.0).then(|| Delayed {
            feeding: loading / workers.max(1) as f64 + feeding,
            stepping: stood / (ran + stood),
        })
    }
}

/// All threads of this program that the system lists.
fn threads() -> BTreeMap<u32, (Task, f64, f64)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return BTreeMap::new() };
    let one = |task: fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let (ran, stood) = line(&fs::read_to_string(task.path().join("schedstat")).ok()?)?;
        Some((tid, (Task::of(name.trim()), ran, stood)))
    };
    tasks.flatten().filter_map(one).collect()
}

/// Seconds that a thread ran and waited, from its `schedstat`.
fn line(text: &str) -> Option<(f64, f64)> {
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>());
    let (ran, stood) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((ran as f64 * 1e-9, stood as f64 * 1e-9))
}

/// Busy and total seconds of some cores, from the system's statistics.
fn counted(stat: &str, cores: &[usize]) -> Option<(f64, f64)> {
    let (mut busy, mut time, mut found) = (0.0, 0.0, 0);
    for line in stat.lines() {
        let Some((name, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        if !name.parse().is_ok_and(|core| cores.contains(&core)) {
            continue;
        }
        let CpuTicks { total, idle } = CpuTicks::parse(rest)?;
        let (total, idle) = (total as f64, idle as f64);
        (busy, time, found) = (busy + (total - idle) / 100.0, time + total / 100.0, found + 1);
    }
    (found > 0 && found == cores.len()).then_some((busy, time))
}

/// The cores that this program may use, from its `status`: `0-3,8` are five.
fn allowed(status: &str) -> Vec<usize> {
    let list = procfs::field(status, "Cpus_allowed_list").unwrap_or_default();
    let cores = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(cores).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(own: f64, text: &str, threads: &[(u32, &str, &str)]) -> Counted {
        let told = |(tid, name, text): &(u32, &str, &str)| {
            let (ran, stood) = line(text).unwrap();
            (*tid, (Task::of(name), ran, stood))
        };
        let threads = threads.iter().map(told).collect();
        Counted { at: Instant::now(), own, all: counted(text, &[0, 1]), threads }
    }

    const BEFORE: &str =
        "cpu  9 9 9 9\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\ncpu2 1 1 1 1 1\n";
    const AFTER: &str =
        "cpu0 200 0 100 650 50 0 0 0 7 0\ncpu1 200 0 100 650 50 0 0 0 0 0\ncpu2 999 1 1 1 1\n";

    #[test]
    fn usage_counts_only_the_allowed_cores() {
        let found = at(1.0, BEFORE, &[]).until(&at(2.0, AFTER, &[]), 1).unwrap();
        assert_eq!((found.own, found.all, found.delayed), (0.1, 0.4, None));
        assert_eq!(counted("nothing", &[0]), None);
        assert_eq!(counted("cpu0 1 1 1 1 1 1 1 1\n", &[0, 1]), None, "a core that is not listed");
        assert_eq!(allowed("Name: x\nCpus_allowed_list:\t0-2,7\n"), [0, 1, 2, 7]);
        assert!(allowed("").is_empty());
    }

    #[test]
    fn load_of_another_process_is_not_counted_as_own() {
        let hog = crate::fault::Hog::start().unwrap();
        let before = Counted::now();
        std::thread::sleep(std::time::Duration::from_millis(700));
        let after = Counted::now();
        drop(hog);
        // Without `/proc/stat` there is nothing to test.
        let (Some(_), Some(_)) = (before.all, after.all) else { return println!("skipped: no /proc/stat") };
        let found = before.until(&after, 1).unwrap();
        assert!(found.all > 0.85 && found.all - found.own > 0.35, "{found:?}");
    }

    #[test]
    fn waiting_for_a_core_is_reported_for_feeding_and_stepping() {
        let before = at(0.0, BEFORE, &[(1, "myxtts", "1000000000 0 9"), (2, "batch-0", "5 0 1")]);
        let after = at(
            1.0,
            AFTER,
            &[
                (1, "myxtts", "4000000000 1000000000 12"),
                (2, "batch-0", "5 600000000 1"),
                (3, "feed gpt", "5 100000000 1"),
                (4, "sampler", "5 9000000000 1"),
            ],
        );
        let delayed = before.until(&after, 2).unwrap().delayed.unwrap();
        assert!(
            (delayed.feeding - 0.4).abs() < 1e-9 && (delayed.stepping - 0.25).abs() < 1e-9,
            "{delayed:?}"
        );
    }
}

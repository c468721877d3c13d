//! What this program and the others took of the processor, and how long its threads stood in line for a core.

use super::trace::{Delayed, Processor};
use crate::bench::processor_seconds;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Counts at a moment, in seconds of one core.
pub(super) struct Counted {
    pub at: Instant,
    own: f64,
    foreign: f64,
    /// Busy and in all; none where the system does not tell, or counts more cores than this program may use.
    all: Option<(f64, f64)>,
    /// By thread: which it is, seconds it ran, seconds it stood in line.
    threads: BTreeMap<u32, (Task, f64, f64)>,
}

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Loading,
    Feeding,
    Stepping,
    /// Burns on purpose, or only looks on.
    Other,
}

impl Task {
    fn of(name: &str) -> Task {
        match name {
            name if name.starts_with("batch-") => Task::Loading,
            name if name.starts_with("feed ") => Task::Feeding,
            name if name.starts_with("hog-") || name == "sampler" => Task::Other,
            _ => Task::Stepping,
        }
    }
}

impl Counted {
    /// Now; `foreign` is what of this program counts as others'.
    pub fn now(foreign: f64) -> Counted {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let own = processor_seconds() - foreign;
        Counted { at: Instant::now(), own, foreign, all: counted(&stat, cores), threads: threads() }
    }

    /// Shares of all cores from here on; `workers` threads load.
    pub fn until(&self, later: &Counted, workers: usize) -> Option<Processor> {
        let own = later.own - self.own;
        let (busy, time) = match (self.all, later.all) {
            (Some((busy, all)), Some((later_busy, later_all))) => (later_busy - busy, later_all - all),
            // In a container that may use some of the machine's cores, what it does itself is what can be told.
            _ => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
                (own + later.foreign - self.foreign, (later.at - self.at).as_secs_f64() * cores)
            }
        };
        let delayed = self.delayed(later, workers);
        (time > 0.0).then(|| Processor { own: own / time, all: busy / time, delayed })
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

/// Every thread of this program that the system tells of.
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

/// Seconds a thread ran and seconds it stood in line, of its `schedstat`.
fn line(text: &str) -> Option<(f64, f64)> {
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>());
    let (ran, stood) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((ran as f64 * 1e-9, stood as f64 * 1e-9))
}

/// Seconds that all cores together were busy, and seconds in all, of the system's statistics.
fn counted(stat: &str, cores: usize) -> Option<(f64, f64)> {
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if stat.lines().filter(is_core).count() > cores {
        return None;
    }
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, waiting for a disk, ...; what guests use is counted in user already.
    let ticks: Vec<f64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let (all, idle) = (ticks.iter().sum::<f64>(), ticks.get(3)? + ticks.get(4)?);
    Some(((all - idle) / 100.0, all / 100.0))
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
        Counted { at: Instant::now(), own, foreign: 0.0, all: counted(text, 2), threads }
    }

    #[test]
    fn shares_of_the_processor_are_of_all_cores() {
        let before = at(1.0, "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n", &[]);
        let after = at(2.0, "cpu  400 0 200 1300 100 0 0 0 7 0\n", &[]);
        let found = before.until(&after, 1).unwrap();
        assert_eq!((found.own, found.all, found.delayed), (0.1, 0.4, None));
        assert_eq!(counted("nothing", 2), None);
        assert_eq!(
            counted("cpu  1 1 1 1 1 1 1 1\ncpu0 1\ncpu1 1\ncpu2 1\n", 2),
            None,
            "more cores than ours"
        );
    }

    #[test]
    fn standing_in_line_is_told_of_those_who_feed_and_of_those_who_step() {
        let stat = "cpu  100 0 100 800 0 0 0 0 0 0\n";
        let before = at(0.0, stat, &[(1, "myxtts", "1000000000 0 9"), (2, "batch-0", "5 0 1")]);
        let after = at(
            1.0,
            "cpu  400 0 200 1300 100 0 0 0 7 0\n",
            &[
                (1, "myxtts", "4000000000 1000000000 12"),
                (2, "batch-0", "5 600000000 1"),
                (3, "feed gpt", "5 100000000 1"),
                (4, "hog-1", "5 9000000000 1"),
            ],
        );
        let delayed = before.until(&after, 2).unwrap().delayed.unwrap();
        assert!(
            (delayed.feeding - 0.4).abs() < 1e-9 && (delayed.stepping - 0.25).abs() < 1e-9,
            "{delayed:?}"
        );
    }
}

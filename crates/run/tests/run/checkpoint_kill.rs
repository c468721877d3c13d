//! `kill -9` while checkpoints are saved and deleted: no acknowledged checkpoint is lost, none is corrupt.
//!
//! The test binary starts itself as the child process to kill. `MYXTTS_KILLS=1000` raises the number of kills from the
//! default of 60.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use myxtts_run::checkpoint::{CheckpointStore, Checkpoints, RetentionPolicy};
use myxtts_run::durable::fault::{Effect, FaultPlan, FaultyDisk};
use myxtts_run::durable::{Disk, OsDisk};
use myxtts_run::seed::Seed;
use serde_json::json;

use super::checkpoint::{content, scratch};

const CHILD: &str = "MYXTTS_TEST_CHECKPOINT_CHILD";
const KEEP: RetentionPolicy = RetentionPolicy { newest: 3, best: 1 };
const LENGTH: usize = 150_000;

/// Body of the child process; does nothing in the parent. Arguments: `folder|disk operation to abort at|saves`.
#[test]
fn child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let arguments: Vec<&str> = arguments.split('|').collect();
    let abort: u64 = arguments[1].parse().unwrap();
    let disk: Arc<dyn Disk> = if abort == 0 {
        Arc::new(OsDisk)
    } else {
        Arc::new(FaultyDisk::new(FaultPlan::at(abort, Effect::Abort)))
    };
    let mut store = CheckpointStore::open_on(disk, Path::new(arguments[0])).unwrap();
    std::io::stdout().write_all(b"started\n").unwrap();
    let first = store.latest_valid().unwrap().checkpoint.map_or(1, |latest| latest.step + 1);
    for step in first..first + arguments[2].parse::<u64>().unwrap() {
        let (weights, moments) = (content(step, "weights", LENGTH), content(step, "moments", 2 * LENGTH));
        let blobs: [(&str, &[u8]); 2] = [("weights", &weights), ("moments", &moments)];
        store.save(step, &blobs, json!({ "step": step }), Some(score(step))).unwrap();
        // One write, so that a line is complete; it bypasses the output capture of the test harness.
        std::io::stdout().write_all(format!("saved {step}\n").as_bytes()).unwrap();
        store.prune(KEEP).unwrap();
    }
}

fn score(step: u64) -> f64 {
    Seed::new(step).derive("score").unit(0)
}

fn start(folder: &Path, abort: u64, saves: u64) -> Child {
    let name = concat!(module_path!(), "::child");
    let name = name.split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, format!("{}|{abort}|{saves}", folder.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The steps that a child has acknowledged, and its exit status. The time until the kill is measured from its first
/// output, because starting a process can take any time.
fn acknowledged(mut child: Child, killed_after: Option<Duration>) -> (Vec<u64>, ExitStatus) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    if let Some(after) = killed_after {
        while !text.contains("started") && out.read_line(&mut text).unwrap() > 0 {}
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    out.read_to_string(&mut text).unwrap();
    let steps = text.lines().filter_map(|line| line.split_once("saved "));
    (steps.map(|(_, step)| step.parse().unwrap()).collect(), child.wait().unwrap())
}

/// Asserts that no required checkpoint is missing and that all existing ones are valid.
fn assert_kept(folder: &Path, acknowledged: &[u64], what: &str) {
    let checkpoints = Checkpoints::at(folder);
    let listing = checkpoints.list().unwrap();
    assert!(listing.damaged.is_empty(), "{what}: {:?}", listing.damaged);
    let there: Vec<u64> = listing.checkpoints.iter().map(|checkpoint| checkpoint.step).collect();
    for checkpoint in &listing.checkpoints {
        let loaded = checkpoints.load(&checkpoint.name()).unwrap();
        assert_eq!(loaded.read("weights").unwrap(), content(checkpoint.step, "weights", LENGTH), "{what}");
        assert_eq!(
            loaded.read("moments").unwrap(),
            content(checkpoint.step, "moments", 2 * LENGTH),
            "{what}"
        );
        assert_eq!(checkpoint.meta["step"], checkpoint.step);
    }
    let best = acknowledged.iter().copied().min_by(|a, b| score(*a).total_cmp(&score(*b)));
    // One save may have been finished and not yet acknowledged; it counts as the newest.
    let newest = acknowledged.iter().rev().take(KEEP.newest - 1).copied();
    for step in newest {
        assert!(there.contains(&step), "{what}: {step} was acknowledged and is lost; existing: {there:?}");
    }
    if let Some(best) = best {
        let better = there.iter().any(|step| score(*step) <= score(best));
        assert!(better, "{what}: the best, {best}, is lost; existing: {there:?}");
    }
}

#[test]
fn random_kills_lose_no_acknowledged_checkpoint() {
    let kills: u64 = std::env::var("MYXTTS_KILLS").map_or(60, |n| n.parse().unwrap());
    let root = scratch();
    let seed = Seed::new(1).derive("kills");
    let (mut all, mut leftovers) = (Vec::new(), 0);
    for attempt in 0..kills {
        let child = start(root.path(), 0, 1_000_000);
        let (steps, ended) = acknowledged(child, Some(Duration::from_micros(seed.below(attempt, 50_000))));
        assert!(ended.code().is_none(), "the child failed by itself: {ended}");
        all.extend(steps);
        let entries = std::fs::read_dir(root.path()).unwrap();
        leftovers += entries
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"))
            .count();
        assert_kept(root.path(), &all, &format!("kill {attempt}"));
    }
    println!("{kills} kills, {} acknowledged, {leftovers} during a save", all.len());
    assert!(all.len() as u64 > kills && leftovers as u64 > kills / 10, "too few kills interrupted a save");
}

/// The same at every disk operation in turn, so that no moment is left to chance.
#[test]
fn an_abort_at_any_operation_loses_no_acknowledged_checkpoint() {
    let prepare = || {
        let root = scratch();
        assert!(acknowledged(start(root.path(), 0, 4), None).1.success());
        root
    };
    let (mut operation, mut reached) = (1, true);
    while reached {
        let root = prepare();
        let (steps, ended) = acknowledged(start(root.path(), operation, 2), None);
        reached = !ended.success();
        let all: Vec<u64> = (1..5).chain(steps).collect();
        assert_kept(root.path(), &all, &format!("operation {operation}"));
        // The next process can save again.
        let (steps, ended) = acknowledged(start(root.path(), 0, 1), None);
        assert!(ended.success() && steps.len() == 1, "operation {operation}: {ended}");
        let left = std::fs::read_dir(root.path()).unwrap();
        assert!(left.count() <= KEEP.newest + KEEP.best + 1, "operation {operation}: files are left over");
        operation += 1;
    }
    assert!(operation > 30, "only {operation} operations were tried");
}

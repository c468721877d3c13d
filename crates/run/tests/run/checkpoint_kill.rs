//! `kill -9` while checkpoints are saved and old ones deleted: none that was acknowledged is lost, none
//! is corrupt.
//!
//! The test binary starts itself as the child that is killed. `MYXTTS_KILLS=1000` raises the number of
//! kills from the 60 that every run makes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use myxtts_run::checkpoint::{CheckpointStore, Checkpoints, Keep};
use myxtts_run::durable::fault::{Effect, FaultPlan, Faulty};
use myxtts_run::durable::{Disk, Os};
use myxtts_run::seed::Seed;
use serde_json::json;

use super::checkpoint::{content, scratch};

const CHILD: &str = "MYXTTS_TEST_CHECKPOINT_CHILD";
const KEEP: Keep = Keep { newest: 3, best: 1 };
const LENGTH: usize = 150_000;

/// What the child does: nothing, unless it is one. `folder|step on the disk to abort at|saves`
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<&str> = orders.split('|').collect();
    let abort: u64 = orders[1].parse().unwrap();
    let disk: Arc<dyn Disk> =
        if abort == 0 { Arc::new(Os) } else { Arc::new(Faulty::new(FaultPlan::at(abort, Effect::Abort))) };
    let mut store = CheckpointStore::open_on(disk, Path::new(orders[0])).unwrap();
    std::io::stdout().write_all(b"begun\n").unwrap();
    let first = store.latest_valid().unwrap().checkpoint.map_or(1, |latest| latest.step + 1);
    for step in first..first + orders[2].parse::<u64>().unwrap() {
        let (weights, moments) = (content(step, "weights", LENGTH), content(step, "moments", 2 * LENGTH));
        let blobs: [(&str, &[u8]); 2] = [("weights", &weights), ("moments", &moments)];
        store.save(step, &blobs, json!({ "step": step }), Some(score(step))).unwrap();
        // One write, so that a line is there or not; around the capture of the test harness.
        std::io::stdout().write_all(format!("saved {step}\n").as_bytes()).unwrap();
        store.tidy(KEEP).unwrap();
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

/// The steps that a child has acknowledged, and how it ended. It is killed some time after it has begun:
/// how long the start of a process takes depends on what else the machine does.
fn acknowledged(mut child: Child, killed_after: Option<Duration>) -> (Vec<u64>, ExitStatus) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    if let Some(after) = killed_after {
        while !text.contains("begun") && out.read_line(&mut text).unwrap() > 0 {}
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    out.read_to_string(&mut text).unwrap();
    let steps = text.lines().filter_map(|line| line.split_once("saved "));
    (steps.map(|(_, step)| step.parse().unwrap()).collect(), child.wait().unwrap())
}

/// Everything that must be there is, and everything that is there is whole.
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
        assert!(there.contains(&step), "{what}: {step} was acknowledged and is lost; there are {there:?}");
    }
    if let Some(best) = best {
        let better = there.iter().any(|step| score(*step) <= score(best));
        assert!(better, "{what}: the best, {best}, is lost; there are {there:?}");
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
    println!("{kills} kills, {} acknowledged, {leftovers} caught in the middle", all.len());
    assert!(
        all.len() as u64 > kills && leftovers as u64 > kills / 10,
        "the kills came at no interesting time"
    );
}

/// The same at every step on the disk, one after the other: no moment is left to chance.
#[test]
fn an_abort_at_any_step_loses_no_acknowledged_checkpoint() {
    let begin = || {
        let root = scratch();
        assert!(acknowledged(start(root.path(), 0, 4), None).1.success());
        root
    };
    let (mut step, mut reached) = (1, true);
    while reached {
        let root = begin();
        let (steps, ended) = acknowledged(start(root.path(), step, 2), None);
        reached = !ended.success();
        let all: Vec<u64> = (1..5).chain(steps).collect();
        assert_kept(root.path(), &all, &format!("step {step}"));
        // And whoever comes next finds nothing in the way.
        let (steps, ended) = acknowledged(start(root.path(), 0, 1), None);
        assert!(ended.success() && steps.len() == 1, "step {step}: {ended}");
        let left = std::fs::read_dir(root.path()).unwrap();
        assert!(left.count() <= KEEP.newest + KEEP.best + 1, "step {step}: something is left over");
        step += 1;
    }
    assert!(step > 30, "only {step} steps were tried");
}

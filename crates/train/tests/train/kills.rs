//! `kill -9` at random moments of a run that saves after every step: no acknowledged checkpoint is lost, and the resumed run
//! ends like an undisturbed one.
//!
//! The test binary starts itself as the child that is killed. `MYXTTS_KILLS=1000` raises the number of kills from the 60 of
//! a normal test run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use myxtts_run::checkpoint::Checkpoints;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::seed::Seed;
use myxtts_train::{ComputeDevice, TrainError};

use super::small::{self, Clips, everything};

const CHILD: &str = "MYXTTS_TEST_TRAIN_CHILD";
const KEPT: usize = 3;

fn plan() -> Plan {
    let mut plan = small::plan(StageKind::Dvae, 1_000_000);
    plan.training.checkpoint_every = 1;
    plan.training.keep_checkpoints = KEPT;
    plan
}

/// The child process; returns at once in the normal test run.
#[test]
fn child() {
    let Ok(runs) = std::env::var(CHILD) else { return };
    let plan = plan();
    let mut stage = small::stage(StageKind::Dvae, &plan, Clips::default(), 1, ComputeDevice::CPU);
    small::run(Path::new(&runs), &plan, &mut *stage).0.unwrap();
}

/// Starts a child and kills it some time after it has acknowledged `saves` more checkpoints. Counted in saves, since the
/// start of a process and a save take a varying time.
fn kill_after(runs: &Path, saves: u64, wait: Duration) {
    let (kind, more) = if saves == 0 { ("stage", 1) } else { ("checkpoint", saves as usize) };
    let until = small::events(runs, kind).len() + more;
    let name = concat!(module_path!(), "::child");
    let name = name.split_once("::").unwrap().1;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, runs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while small::events(runs, kind).len() < until && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(wait);
    let _ = child.kill();
    let ended = child.wait().unwrap();
    assert!(ended.code().is_none(), "the child failed by itself: {ended}");
}

#[test]
fn kills_while_saving_lose_no_acknowledged_checkpoint() {
    let kills: u64 = std::env::var("MYXTTS_KILLS").map_or(60, |n| n.parse().unwrap());
    let runs = tempfile::tempdir().unwrap();
    let seed = Seed::new(2).derive("kills");
    let (mut newest, mut torn) = (0, 0);
    for attempt in 0..kills {
        let wait = Duration::from_micros(seed.below(2 * attempt, 40_000));
        kill_after(runs.path(), seed.below(2 * attempt + 1, 3), wait);
        let Ok(entries) = std::fs::read_dir(runs.path().join("run/checkpoints")) else { continue };
        torn += entries
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"))
            .count();
        let acknowledged: Vec<u64> = small::events(runs.path(), "checkpoint")
            .iter()
            .map(|event| event["step"].as_u64().unwrap())
            .collect();
        let checkpoints = Checkpoints::at(&runs.path().join("run/checkpoints"));
        let listing = checkpoints.list().unwrap();
        assert!(listing.damaged.is_empty(), "kill {attempt}: {:?}", listing.damaged);
        for checkpoint in &listing.checkpoints {
            checkpoints.verify(checkpoint).unwrap_or_else(|damage| panic!("kill {attempt}: {damage}"));
        }
        let there: Vec<u64> = listing.checkpoints.iter().map(|checkpoint| checkpoint.step).collect();
        // A checkpoint may only be replaced by newer ones, whether those were acknowledged in time or not.
        for step in &acknowledged {
            let newer = there.iter().filter(|other| *other > step).count();
            assert!(
                there.contains(step) || newer >= KEPT,
                "kill {attempt}: {step} was acknowledged and is lost; there are {there:?}"
            );
        }
        let last = acknowledged.last().copied().unwrap_or(0);
        assert!(last >= newest, "kill {attempt}: from step {newest} back to {last}");
        newest = last;
    }
    println!("{kills} kills, {newest} steps acknowledged, {torn} saves interrupted");
    assert!(newest > kills / 2 && torn as u64 > kills / 20, "too few kills interrupted a save");

    // One more step, and the same number of steps without a kill.
    let plan = plan();
    let make = || small::stage(StageKind::Dvae, &plan, Clips::default(), 1, ComputeDevice::CPU);
    let mut killed = make();
    let Err(TrainError::Stopped { step, .. }) = small::run_until(runs.path(), &plan, &mut *killed, 0).0
    else {
        panic!("it did not stop")
    };
    let mut plain = plan.clone();
    plain.training.checkpoint_every = 0;
    let (other, mut whole) = (tempfile::tempdir().unwrap(), make());
    let stopped = small::run_until(other.path(), &plain, &mut *whole, step).0;
    assert!(matches!(stopped, Err(TrainError::Stopped { step: at, .. }) if at == step));
    assert!(everything(&*killed) == everything(&*whole), "after {step} steps it is another run");
}

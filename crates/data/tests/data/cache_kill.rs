//! `kill -9` at any moment: the final bytes are those of an uninterrupted run.
//!
//! The test binary starts itself as the child that is killed. `MYXTTS_KILLS=1000` raises the number of kills from the
//! default of 60.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use myxtts_data::cache::{FindingKind, PrepareOptions, Store, prepare, verify};
use myxtts_run::durable::fault::{Effect, FaultPlan, FaultyDisk};
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;

use super::cache_fixture::{
    Synthetic, assert_same, corpus, declared, files_ending, options, prepared, scratch, snapshot,
};

const CHILD: &str = "MYXTTS_TEST_KILL_CHILD";

/// Body of the child process; does nothing in the parent. `root|utterances|delay in us|step to abort at`.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let mut orders = orders.split('|');
    let root = Path::new(orders.next().unwrap());
    let count = orders.next().unwrap().parse().unwrap();
    let delay = Duration::from_micros(orders.next().unwrap().parse().unwrap());
    let abort = orders.next().unwrap().parse().unwrap();
    let disk = Arc::new(FaultyDisk::new(FaultPlan::at(abort, Effect::Abort)));
    let featurizer = Synthetic { delay, ..Synthetic::new() };
    // Only declared: a child that wrote the audio files could be killed while doing so.
    let utterances = declared(&root.join("corpus"), count);
    prepare(&root.join("cache"), &utterances, &featurizer, &PrepareOptions { disk, ..options() }, &Silent)
        .unwrap();
}

fn start(root: &Path, utterances: usize, delay: u64, abort: u64) -> std::process::Child {
    let name = concat!(module_path!(), "::child");
    let name = name.split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1"])
        .env(CHILD, format!("{}|{utterances}|{delay}|{abort}", root.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn random_kills_leave_the_bytes_of_an_uninterrupted_run() {
    let kills: u64 = std::env::var("MYXTTS_KILLS").map_or(60, |n| n.parse().unwrap());
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 160);
    let undisturbed = root.path().join("undisturbed");
    prepared(&undisturbed, &utterances);
    let wanted = snapshot(&undisturbed);
    let dir = root.path().join("cache");

    let seed = Seed::new(1).derive("kills");
    let (mut killed, mut finished, mut attempt) = (0, 0, 0);
    while killed < kills {
        let before = if dir.exists() { files_ending(&dir, ".seal").len() } else { 0 };
        let mut child = start(root.path(), utterances.len(), 800, 0);
        // About the duration of a whole run, so that some runs finish.
        std::thread::sleep(Duration::from_micros(seed.below(attempt, 90_000)));
        attempt += 1;
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        if ended.success() {
            finished += 1;
            assert_same(&dir, &wanted, "finished after kills");
            std::fs::remove_dir_all(&dir).unwrap();
            continue;
        }
        assert!(ended.code().is_none(), "the child failed by itself: {ended}");
        killed += 1;
        if dir.exists() {
            assert!(files_ending(&dir, ".seal").len() >= before, "a finished shard was lost");
        }
    }
    println!("{killed} kills, {finished} finished on the way");
    let seals = if dir.exists() { files_ending(&dir, ".seal").len() as u64 } else { 0 };
    assert_eq!(prepared(&dir, &utterances).shards_kept, seals, "only unsealed shards are done again");
    assert_same(&dir, &wanted, "at the end");
}

/// The same at every disk operation in turn: no moment is left to chance.
#[test]
fn an_abort_at_any_step_leaves_the_bytes_of_an_uninterrupted_run() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 30);
    let undisturbed = root.path().join("undisturbed");
    let counting = FaultyDisk::new(FaultPlan::none());
    let options_counting = PrepareOptions { disk: Arc::new(counting.clone()), ..options() };
    prepare(&undisturbed, &utterances, &Synthetic::new(), &options_counting, &Silent).unwrap();
    let (wanted, steps) = (snapshot(&undisturbed), counting.operations());

    for step in 1..=steps {
        let dir = root.path().join("cache");
        let ended = start(root.path(), utterances.len(), 0, step).wait().unwrap();
        assert!(!ended.success(), "step {step} of {steps} was not reached");
        // Every sealed shard is complete.
        let findings = verify(&dir, None, 2, &Silent).unwrap().findings;
        let expected = |kind| matches!(kind, FindingKind::Index | FindingKind::Leftover);
        assert!(findings.iter().all(|finding| expected(finding.kind)), "step {step}: {findings:?}");
        prepared(&dir, &utterances);
        assert_same(&dir, &wanted, &format!("step {step}"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Aborted updates: an old index stays readable with everything it names.
#[test]
fn an_abort_during_an_update_leaves_a_store_that_opens() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 160);
    let dir = root.path().join("cache");
    let undisturbed = root.path().join("undisturbed");
    prepared(&undisturbed, &utterances);
    let seed = Seed::new(3).derive("updates");
    for n in 0..12 {
        if dir.exists() {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        prepared(&dir, &utterances[..150]);
        start(root.path(), utterances.len(), 0, 1 + seed.below(n, 150)).wait().unwrap();
        Store::open(&dir).unwrap();
        let report = verify(&dir, None, 2, &Silent).unwrap();
        assert!(report.findings.iter().all(|f| f.kind == FindingKind::Leftover), "{:?}", report.findings);
        prepared(&dir, &utterances);
        assert_same(&dir, &snapshot(&undisturbed), "update");
    }
}

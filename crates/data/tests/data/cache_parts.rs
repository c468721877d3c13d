//! A store made by several processes that share a folder, in parts that are merged: its bytes equal those of a single
//! process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use myxtts_data::cache::{
    CacheError, MergeOptions, Part, PartError, PrepareOptions, PrepareReport, merge, prepare, prepare_part,
    verify,
};
use myxtts_data::utterance::Utterance;
use myxtts_run::durable::fault::{Effect, FaultPlan, FaultyDisk};
use myxtts_run::exit::Exit;
use myxtts_run::lock::FolderLock;
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;

use super::cache_fixture::{
    Synthetic, assert_same, corpus, declared, files_ending, options, prepared, scratch, snapshot,
};

const CHILD: &str = "MYXTTS_TEST_PART_CHILD";

fn part(number: u32, count: u32) -> Part {
    Part::new(number, count).unwrap()
}

fn prepared_part(dir: &Path, number: u32, count: u32, utterances: &[Utterance]) -> PrepareReport {
    prepare_part(dir, part(number, count), utterances, &Synthetic::new(), &options(), &Silent).unwrap()
}

fn merged(dir: &Path, utterances: &[Utterance]) -> Result<PrepareReport, CacheError> {
    merge(dir, utterances, &Synthetic::new(), (&options(), MergeOptions::default()), &Silent)
}

fn merge_error(dir: &Path, utterances: &[Utterance]) -> (PartError, String) {
    let before = snapshot_of_all(dir);
    let error = merged(dir, utterances).unwrap_err();
    assert_eq!(error.exit(), Exit::BadData, "{error}");
    assert!(snapshot_of_all(dir) == before, "a failed merge changed something");
    let message = error.to_string();
    let CacheError::Part(error) = error else { panic!("{message}") };
    (error, message)
}

/// Files with their bytes, including those in part folders; empty lock files are not counted.
fn snapshot_of_all(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let inside = snapshot(&entry.path()).into_iter();
            files.extend(inside.map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            files.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
    files.retain(|(name, bytes)| !(name.ends_with("write.lock") && bytes.is_empty()));
    files.sort();
    files
}

/// Body of the child process; does nothing in the parent. `root|utterances|part, 0 to merge|parts|delay in us|step to abort
/// at`.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<&str> = orders.split('|').collect();
    let [root, count, number, parts, delay, abort] = orders[..] else { panic!("{orders:?}") };
    let root = Path::new(root);
    let disk = Arc::new(FaultyDisk::new(FaultPlan::at(abort.parse().unwrap(), Effect::Abort)));
    let featurizer = Synthetic { delay: Duration::from_micros(delay.parse().unwrap()), ..Synthetic::new() };
    let utterances = declared(&root.join("corpus"), count.parse().unwrap());
    let (dir, options) = (root.join("cache"), PrepareOptions { disk, ..options() });
    match (number.parse().unwrap(), parts.parse().unwrap()) {
        (0, _) => merge(&dir, &utterances, &featurizer, (&options, MergeOptions::default()), &Silent),
        (number, parts) => {
            prepare_part(&dir, part(number, parts), &utterances, &featurizer, &options, &Silent)
        }
    }
    .unwrap();
}

fn start(
    root: &Path,
    utterances: usize,
    number: u32,
    parts: u32,
    delay: u64,
    abort: u64,
) -> std::process::Child {
    let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1"])
        .env(CHILD, format!("{}|{utterances}|{number}|{parts}|{delay}|{abort}", root.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn parts_of_any_number_merge_to_the_bytes_of_one_machine() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 100);
    let alone = root.path().join("alone");
    let wanted = prepared(&alone, &utterances);
    // Sixteen shards: one part, some, an odd number, more parts than shards.
    for count in [1, 4, 7, 20] {
        let dir = root.path().join(format!("{count}"));
        let reports: Vec<PrepareReport> =
            (1..=count).rev().map(|number| prepared_part(&dir, number, count, &utterances)).collect();
        let sum = |of: fn(&PrepareReport) -> u64| reports.iter().map(of).sum::<u64>();
        assert_eq!(
            [
                sum(|r| r.utterances),
                sum(|r| r.records),
                sum(|r| r.failed),
                sum(|r| r.shards),
                sum(|r| r.bytes)
            ],
            [wanted.utterances, wanted.records, wanted.failed, wanted.shards, wanted.bytes],
            "{count}"
        );
        // Already finished: running it again computes nothing.
        assert_eq!(prepared_part(&dir, 1, count, &utterances).computed, 0);
        let report = merged(&dir, &utterances).unwrap();
        assert_same(&dir, &snapshot(&alone), &format!("{count} parts"));
        let all_kept = PrepareReport { computed: 0, shards_kept: wanted.shards, ..wanted.clone() };
        assert_eq!(report, all_kept, "{count}");
        // A scheduler may merge twice.
        assert_eq!(merged(&dir, &utterances).unwrap(), report);
        assert!(verify(&dir, Some((&utterances, &Synthetic::new())), 2, &Silent).unwrap().is_ok());
        assert_eq!(prepared(&dir, &utterances).computed, 0);
    }
}

#[test]
fn four_parts_and_a_merge_under_random_kills_give_the_bytes_of_one_machine() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 160);
    let alone = root.path().join("alone");
    prepared(&alone, &utterances);
    let wanted = snapshot(&alone);
    let dir = root.path().join("cache");
    let seed = Seed::new(5).derive("parts");
    let kills: u32 = std::env::var("MYXTTS_KILLS").map_or(30, |n| n.parse().unwrap());
    let (mut killed, mut attempt, mut round) = (0, 0, 0);
    while killed < kills {
        // All four at once, each killed repeatedly until it finishes; then the same for the merge.
        let mut left: Vec<u32> = vec![1, 2, 3, 4];
        while !left.is_empty() {
            let children: Vec<_> =
                left.iter().map(|&number| (number, start(root.path(), 160, number, 4, 1500, 0))).collect();
            for (number, mut child) in children {
                std::thread::sleep(Duration::from_micros(seed.below(attempt, 30_000)));
                attempt += 1;
                let _ = child.kill();
                let ended = child.wait().unwrap();
                assert!(ended.success() || ended.code().is_none(), "part {number} failed by itself: {ended}");
                killed += u32::from(!ended.success());
                left.retain(|&other| other != number || !ended.success());
            }
        }
        let steps = 1 + seed.below(1000 + round, 120);
        let ended = start(root.path(), 160, 0, 4, 0, steps).wait().unwrap();
        if !ended.success() {
            killed += 1;
            assert!(start(root.path(), 160, 0, 4, 0, 0).wait().unwrap().success());
        }
        assert_same(&dir, &wanted, &format!("round {round}"));
        std::fs::remove_dir_all(&dir).unwrap();
        round += 1;
    }
    println!("{killed} kills of {attempt} starts, {round} stores made");
}

/// Every moment of a merge is covered.
#[test]
fn a_merge_aborted_at_any_step_is_finished_by_the_next() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 20);
    let (alone, parts, dir) =
        (root.path().join("alone"), root.path().join("parts"), root.path().join("cache"));
    prepared(&alone, &utterances);
    let wanted = snapshot(&alone);
    (1..=2).for_each(|number| drop(prepared_part(&parts, number, 2, &utterances)));
    let restore = || {
        let _ = std::fs::remove_dir_all(&dir);
        for entry in std::fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap()) {
            let folder = dir.join(entry.file_name());
            std::fs::create_dir_all(&folder).unwrap();
            for (name, bytes) in snapshot(&entry.path()) {
                std::fs::write(folder.join(name), bytes).unwrap();
            }
        }
    };
    restore();
    let counting = FaultyDisk::new(FaultPlan::none());
    let counted = PrepareOptions { disk: Arc::new(counting.clone()), ..options() };
    merge(&dir, &utterances, &Synthetic::new(), (&counted, MergeOptions::default()), &Silent).unwrap();
    assert!(counting.operations() > 20, "{}", counting.operations());
    for step in 1..=counting.operations() {
        restore();
        let ended = start(root.path(), utterances.len(), 0, 2, 0, step).wait().unwrap();
        assert!(!ended.success(), "step {step} of {} was not reached", counting.operations());
        merged(&dir, &utterances).unwrap();
        assert_same(&dir, &wanted, &format!("step {step}"));
    }
}

#[test]
fn a_missing_or_unfinished_part_is_reported_with_the_command_that_makes_it() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    let error = merged(&dir, &utterances).unwrap_err();
    assert!(matches!(error, CacheError::Part(PartError::None { .. })), "{error}");
    prepared_part(&dir, 2, 4, &utterances);
    prepared_part(&dir, 4, 4, &utterances);
    let (error, message) = merge_error(&dir, &utterances);
    assert!(matches!(error, PartError::Missing { .. }), "{message}");
    assert!(message.contains("1/4, 3/4 are not finished") && message.contains("--shard 1/4"), "{message}");
    // Unfinished: stopped before its last file.
    prepared_part(&dir, 1, 4, &utterances);
    prepared_part(&dir, 3, 4, &utterances);
    std::fs::remove_file(dir.join("part-0003of0004/part.json")).unwrap();
    let (_, message) = merge_error(&dir, &utterances);
    assert!(message.contains("3/4 is not finished"), "{message}");
    assert_eq!(prepared_part(&dir, 3, 4, &utterances).computed, 0);
    merged(&dir, &utterances).unwrap();
}

#[test]
fn a_part_of_other_settings_or_another_corpus_is_reported() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    (1..=3).for_each(|number| drop(prepared_part(&dir, number, 3, &utterances)));
    let other = Synthetic { version: 2, ..Synthetic::new() };
    prepare_part(&dir, part(2, 3), &utterances, &other, &options(), &Silent).unwrap();
    let (error, message) = merge_error(&dir, &utterances);
    assert!(matches!(error, PartError::OtherSettings { .. }), "{message}");
    assert!(message.contains("2/3") && message.contains("other settings"), "{message}");

    let mut changed = utterances.clone();
    changed[7].text = "another text".into();
    for other in [&changed[..], &utterances[1..]] {
        prepared_part(&dir, 2, 3, other);
        let (error, message) = merge_error(&dir, &utterances);
        assert!(matches!(error, PartError::OtherCorpus { .. }), "{message}");
        let counts = format!("it had {} utterances, this one has 60", other.len());
        assert!(message.contains("2/3") && message.contains(&counts), "{message}");
    }
    prepared_part(&dir, 2, 3, &utterances);
    merged(&dir, &utterances).unwrap();
}

#[test]
fn overlapping_parts_are_reported() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    (1..=4).for_each(|number| drop(prepared_part(&dir, number, 4, &utterances)));
    prepared_part(&dir, 1, 2, &utterances);
    let (error, message) = merge_error(&dir, &utterances);
    assert!(matches!(error, PartError::Mixed { .. }), "{message}");
    assert!(message.contains("of 2 and of 4") && message.contains("part-*of0002"), "{message}");
    std::fs::remove_dir_all(dir.join("part-0001of0002")).unwrap();

    // One folder copied over another.
    std::fs::remove_dir_all(dir.join("part-0003of0004")).unwrap();
    std::fs::create_dir(dir.join("part-0003of0004")).unwrap();
    for (name, bytes) in snapshot(&dir.join("part-0002of0004")) {
        std::fs::write(dir.join("part-0003of0004").join(name), bytes).unwrap();
    }
    let (error, message) = merge_error(&dir, &utterances);
    assert!(matches!(error, PartError::Overlapping { .. }), "{message}");
    assert!(
        message.contains("part-0003of0004 holds shard 2/4") && message.contains("duplicated"),
        "{message}"
    );

    // And with a manifest that claims otherwise: the seals identify themselves.
    let manifest = dir.join("part-0003of0004/part.json");
    let text = std::fs::read_to_string(&manifest).unwrap().replace("\"part\": 2", "\"part\": 3");
    std::fs::write(&manifest, text).unwrap();
    let (error, message) = merge_error(&dir, &utterances);
    assert!(matches!(error, PartError::Damaged { .. }) && message.contains("3/4"), "{message}");
}

#[test]
fn a_damaged_part_is_reported_and_repaired_by_its_own_command() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    let alone = root.path().join("alone");
    prepared(&alone, &utterances);
    (1..=2).for_each(|number| drop(prepared_part(&dir, number, 2, &utterances)));
    let folder = dir.join("part-0002of0002");
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 3].to_vec();
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    type Damage<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let damages: [(&str, Damage, &str); 5] = [
        (".waveform.npy", &cut, "bytes instead of"),
        (".waveform.npy", &flipped, "checksum"),
        (".seal", &cut, "checksum"),
        (".seal", &flipped, "checksum"),
        ("part.json", &cut, "part.json"),
    ];
    for (end, damage, says) in damages {
        let file = &files_ending(&folder, end)[0];
        std::fs::write(file, damage(&std::fs::read(file).unwrap())).unwrap();
        let (error, message) = merge_error(&dir, &utterances);
        assert!(matches!(error, PartError::Damaged { .. }), "{message}");
        let name = file.file_name().unwrap().to_str().unwrap();
        for part in ["shard 2/2", name, says, "prepare --shard 2/2"] {
            assert!(message.contains(part), "{end}: {message}");
        }
        prepared_part(&dir, 2, 2, &utterances);
    }
    // Quick: what only a checksum can show is left to the reader of the record.
    let file = &files_ending(&folder, ".waveform.npy")[0];
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, flipped(&whole)).unwrap();
    merge(&dir, &utterances, &Synthetic::new(), (&options(), MergeOptions { quick: true }), &Silent).unwrap();
    assert!(!verify(&dir, None, 1, &Silent).unwrap().is_ok());
}

#[test]
fn a_part_in_progress_is_not_merged_and_has_one_writer() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 40), root.path().join("cache"));
    (1..=2).for_each(|number| drop(prepared_part(&dir, number, 2, &utterances)));
    let held = FolderLock::acquire(&dir.join("part-0002of0002")).unwrap();
    let process = format!("process {}", std::process::id());
    for error in [
        merged(&dir, &utterances).unwrap_err(),
        prepare_part(&dir, part(2, 2), &utterances, &Synthetic::new(), &options(), &Silent).unwrap_err(),
    ] {
        assert!(matches!(error, CacheError::Lock(_)) && error.to_string().contains(&process), "{error}");
    }
    // Other parts are not affected.
    prepared_part(&dir, 1, 2, &utterances);
    drop(held);
    merged(&dir, &utterances).unwrap();
}

#[test]
fn the_failure_budget_is_that_of_the_whole_corpus() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 160), root.path().join("cache"));
    // Eight of 160 fail, about two in each quarter: no part alone exceeds four percent of all.
    let strict = PrepareOptions { failure_budget: 0.04, ..options() };
    let alone = prepare(&root.path().join("alone"), &utterances, &Synthetic::new(), &strict, &Silent);
    assert!(matches!(alone.unwrap_err(), CacheError::OverBudget { .. }));
    for number in 1..=4 {
        prepare_part(&dir, part(number, 4), &utterances, &Synthetic::new(), &strict, &Silent).unwrap();
    }
    let over = merge(&dir, &utterances, &Synthetic::new(), (&strict, MergeOptions::default()), &Silent);
    assert!(matches!(over.unwrap_err(), CacheError::OverBudget { .. }));
    assert_eq!(merged(&dir, &utterances).unwrap().failed, 8);
}

//! Checkpoints: saved ones can be read, and failures do not affect earlier ones.

use std::path::Path;
use std::sync::Arc;

use myxtts_run::checkpoint::{
    CHUNK_BYTES, CheckpointError, CheckpointStore, Checkpoints, Damage, RetentionPolicy,
};
use myxtts_run::durable::fault::{Effect, FaultPlan, FaultyDisk};
use myxtts_run::durable::{self, DurableError};
use myxtts_run::seed::Seed;
use serde_json::json;

/// A folder for one test, in memory where possible: these tests are about processes that die, not about disks.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Bytes derived from the step, so that a reader knows the expected content.
pub fn content(step: u64, blob: &str, length: usize) -> Vec<u8> {
    let seed = Seed::new(step).derive(blob);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(|i| seed.at(i).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

pub fn quick_store(dir: &Path) -> CheckpointStore {
    CheckpointStore::open_on(Arc::new(FaultyDisk::new(FaultPlan::none())), dir).unwrap()
}

fn names(store: &CheckpointStore) -> Vec<String> {
    store.list().unwrap().checkpoints.iter().map(|checkpoint| checkpoint.name()).collect()
}

fn save_small(store: &mut CheckpointStore, step: u64, score: Option<f64>) -> Result<String, CheckpointError> {
    let (weights, moments) = (content(step, "weights", 5000), content(step, "moments", 70_000));
    let blobs: [(&str, &[u8]); 3] = [("weights", &weights), ("moments", &moments), ("empty", &[])];
    store.save(step, &blobs, json!({ "stage": "gpt" }), score).map(|saved| saved.name())
}

fn assert_valid(checkpoints: &Checkpoints, name: &str) {
    let loaded = checkpoints.load(name).unwrap();
    let step = loaded.checkpoint.step;
    assert_eq!(loaded.read("weights").unwrap(), content(step, "weights", 5000), "{name}");
    assert_eq!(loaded.read("moments").unwrap(), content(step, "moments", 70_000), "{name}");
    assert_eq!(loaded.read("empty").unwrap(), b"");
    assert_eq!(loaded.checkpoint.meta["stage"], "gpt");
}

#[test]
fn checkpoints_are_read_back_in_the_order_of_saving() {
    let root = scratch();
    // Once on the real file system, with real syncs.
    let mut store =
        CheckpointStore::open_on(Arc::new(durable::OsDisk), &root.path().join("checkpoints")).unwrap();
    assert!(store.latest_valid().unwrap().checkpoint.is_none());
    for step in [100, 200, 150, 150] {
        save_small(&mut store, step, Some(0.1 + step as f64)).unwrap();
    }
    let expected = ["000001-step-100", "000002-step-200", "000003-step-150", "000004-step-150"];
    assert_eq!(names(&store), expected);
    let latest = store.latest_valid().unwrap().checkpoint.unwrap();
    assert_eq!((latest.name().as_str(), latest.score), (expected[3], Some(150.1)));
    assert_eq!(latest.bytes(), 75_000);
    for name in expected {
        assert_valid(store.reader(), name);
    }
}

#[test]
fn blobs_of_several_chunks_are_the_same_whole_and_in_pieces() {
    let root = scratch();
    let mut store = quick_store(root.path());
    for length in [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES] {
        let bytes = content(1, "arena", length);
        let mut writer = store.begin(1).unwrap();
        writer.blob("whole", &bytes).unwrap();
        let write = writer.blob_with("pieces", |out| -> Result<(), DurableError> {
            bytes.chunks(999_983).try_for_each(|piece| out.write(piece))
        });
        write.unwrap();
        let saved = writer.commit(None, json!(null)).unwrap();
        let loaded = store.load(&saved.name()).unwrap();
        assert_eq!(loaded.read("whole").unwrap(), bytes);
        let mut into = vec![0; length];
        loaded.read_into("pieces", &mut into).unwrap();
        assert_eq!(into, bytes);
        let error = loaded.read_into("pieces", &mut into[1..]).unwrap_err();
        assert!(matches!(error, CheckpointError::Size { .. }), "{error}");
    }
}

#[test]
fn an_abandoned_save_leaves_no_files() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let mut writer = store.begin(5).unwrap();
    writer.blob("weights", b"abc").unwrap();
    let failed = writer.blob_with("moments", |_| Err(CheckpointError::from(device_error())));
    assert!(failed.is_err());
    drop(writer);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2, "only the lock and its owner");
}

fn device_error() -> DurableError {
    DurableError { action: "fetch", path: "device".into(), source: std::io::Error::other("gone") }
}

#[test]
fn one_process_writes_and_others_read() {
    let root = scratch();
    let mut store = quick_store(root.path());
    save_small(&mut store, 1, None).unwrap();
    let error = CheckpointStore::open(root.path()).err().unwrap();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    assert_eq!(Checkpoints::at(root.path()).list().unwrap().checkpoints.len(), 1);
    assert!(Checkpoints::at(&root.path().join("nowhere")).latest_valid().unwrap().checkpoint.is_none());
}

#[test]
fn an_unknown_name_is_answered_with_existing_names() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let name = save_small(&mut store, 1, None).unwrap();
    for wrong in ["000002-step-1", "../x", "/etc", ""] {
        let error = store.load(wrong).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
        assert!(store.remove(wrong).is_err());
    }
    let error = store.load(&name).unwrap().read("codes").unwrap_err();
    assert!(matches!(error, CheckpointError::NoBlob { .. }), "{error}");
}

#[test]
fn unfinished_checkpoints_are_removed_and_other_files_are_not() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let name = save_small(&mut store, 1, None).unwrap();
    drop(store);
    let left = root.path().join("000002-step-9.4711-12.tmp");
    std::fs::create_dir_all(left.join("deep")).unwrap();
    std::fs::write(left.join("weights.bin"), b"half").unwrap();
    std::fs::write(root.path().join("notes.txt"), b"mine").unwrap();
    let store = quick_store(root.path());
    assert!(!left.exists() && root.path().join("notes.txt").exists());
    assert_eq!(names(&store), [name]);
}

/// Pins a checkpoint as a user does: `touch NAME/pinned`. Whether it still has its name afterwards: a process that deletes
/// renames the folder first, and then looks for the file.
fn pin(root: &Path, name: &str) -> bool {
    std::fs::write(root.join(name).join("pinned"), b"").is_ok() && root.join(name).is_dir()
}

#[test]
fn retention_keeps_newest_best_and_pinned() {
    let root = scratch();
    let mut store = quick_store(root.path());
    for (step, score) in [(1, 5.0), (2, 1.0), (3, 2.0), (4, f64::NAN), (5, 4.0), (6, 3.0)] {
        save_small(&mut store, step, Some(score)).unwrap();
    }
    assert!(pin(root.path(), "000001-step-1"));
    let keep = RetentionPolicy { newest: 2, best: 1 };
    assert_eq!(store.prune(keep).unwrap(), ["000003-step-3", "000004-step-4"]);
    assert_eq!(names(&store), ["000001-step-1", "000002-step-2", "000005-step-5", "000006-step-6"]);
    std::fs::remove_file(root.path().join("000001-step-1/pinned")).unwrap();
    assert_eq!(store.prune(keep).unwrap(), ["000001-step-1"]);
    assert_eq!(store.prune(keep).unwrap(), [""; 0]);
    // Deleted for good, and numbering continues.
    assert_eq!(
        std::fs::read_dir(root.path()).unwrap().count(),
        5,
        "three checkpoints, the lock and its owner"
    );
    assert_eq!(save_small(&mut store, 7, None).unwrap(), "000007-step-7");
}

/// One process deletes all it may, another pins all it sees: pinned checkpoints stay.
#[test]
fn a_pin_holds_even_while_its_checkpoint_is_being_deleted() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let others = Checkpoints::at(root.path());
    let done = std::sync::atomic::AtomicBool::new(false);
    let (pinned, deleted) = std::thread::scope(|scope| {
        let pinner = scope.spawn(|| {
            let mut pinned = Vec::new();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let seen = others.list().unwrap().checkpoints;
                pinned.extend(seen.iter().map(|c| c.name()).filter(|name| pin(root.path(), name)));
                // Not all of them, or none would be left to delete.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            pinned
        });
        let mut deleted = Vec::new();
        for step in 0..300 {
            store.save(step, &[("weights", b"w")], json!({}), None).unwrap();
            deleted.extend(store.prune(RetentionPolicy { newest: 1, best: 0 }).unwrap());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (pinner.join().unwrap(), deleted)
    });
    assert!(!pinned.is_empty() && !deleted.is_empty());
    let there = names(&store);
    for name in &pinned {
        assert!(there.contains(name), "{name} was pinned and is missing");
    }
}

#[test]
fn a_damaged_newest_does_not_displace_the_valid_one_before_it() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let valid = save_small(&mut store, 1, None).unwrap();
    let damaged = save_small(&mut store, 2, None).unwrap();
    std::fs::write(root.path().join(&damaged).join("weights.bin"), b"short").unwrap();
    let latest = store.latest_valid().unwrap();
    assert_eq!(latest.checkpoint.unwrap().name(), valid);
    assert_eq!(latest.damaged.len(), 1);
    let message = latest.damaged[0].to_string();
    assert!(
        message.contains(&damaged) && message.contains("weights.bin has 5 bytes instead of 5000"),
        "{message}"
    );
    let next = save_small(&mut store, 2, None).unwrap();
    assert_eq!(store.prune(RetentionPolicy { newest: 2, best: 0 }).unwrap(), [""; 0]);
    assert_eq!(names(&store), [valid, damaged, next]);
}

/// Every disk operation fails in turn, with a full disk and with an I/O error: while saving, deleting and opening.
#[test]
fn after_any_failed_operation_older_checkpoints_are_valid_and_the_next_save_works() {
    let counting = FaultyDisk::new(FaultPlan::none());
    let keep = RetentionPolicy { newest: 2, best: 1 };
    let save_and_prune = |disk: FaultyDisk, dir: &Path| -> (Result<(), CheckpointError>, Vec<String>) {
        let mut acknowledged = Vec::new();
        let mut all = || -> Result<(), CheckpointError> {
            let mut store = CheckpointStore::open_on(Arc::new(disk.clone()), dir)?;
            for step in 4..6 {
                acknowledged.push(save_small(&mut store, step, Some(step as f64))?);
                store.prune(keep)?;
            }
            Ok(())
        };
        let result = all();
        (result, acknowledged)
    };
    let prepare = || {
        let root = scratch();
        let mut store = quick_store(root.path());
        for step in 1..4 {
            save_small(&mut store, step, Some(step as f64)).unwrap();
        }
        root
    };
    let root = prepare();
    save_and_prune(counting.clone(), root.path()).0.unwrap();
    let operations = counting.operations();
    assert!(operations > 40, "{operations}");

    for effect in [Effect::NoSpace, Effect::Broken] {
        for n in 1..=operations {
            let root = prepare();
            let (result, acknowledged) =
                save_and_prune(FaultyDisk::new(FaultPlan::at(n, effect)), root.path());
            let checkpoints = Checkpoints::at(root.path());
            let listing = checkpoints.list().unwrap();
            assert!(listing.damaged.is_empty(), "operation {n}: {:?}", listing.damaged);
            let there: Vec<String> = listing.checkpoints.iter().map(|c| c.name()).collect();
            there.iter().for_each(|name| assert_valid(&checkpoints, name));
            let last = acknowledged.last().map_or("000003-step-3", |name| name);
            for must in [last, "000001-step-1"] {
                assert!(there.iter().any(|name| name == must), "operation {n} lost {must}: {there:?}");
            }
            // Only the clean-up before a save may fail unnoticed, and there was nothing to clean up.
            assert!(result.is_err(), "operation {n} of {operations} failed silently");

            let (result, acknowledged) = save_and_prune(counting.clone(), root.path());
            result.unwrap();
            assert_eq!(acknowledged.len(), 2);
            // The newest two, the best, and the lock: no leftovers.
            assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 4, "operation {n}");
        }
    }
}

#[test]
fn a_checkpoint_of_a_newer_format_is_reported() {
    let root = scratch();
    let mut store = quick_store(root.path());
    let name = save_small(&mut store, 1, None).unwrap();
    let path = root.path().join(&name).join("manifest");
    let text = std::fs::read_to_string(&path).unwrap();
    let body = text.split_once('\n').unwrap().1.replace("\"format\": 1", "\"format\": 2");
    let header = format!("myxtts-checkpoint {}\n", blake3::hash(body.as_bytes()).to_hex());
    std::fs::write(&path, header + &body).unwrap();
    let listing = store.list().unwrap();
    assert!(
        matches!(&listing.damaged[0].damage, Damage::ManifestUnknown(found) if found.contains("format is 2"))
    );
}

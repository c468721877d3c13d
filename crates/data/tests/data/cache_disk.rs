//! A full or failing disk is an error message: no valid file is damaged, and a rerun gives the same bytes.

use std::path::Path;
use std::sync::Arc;

use myxtts_data::cache::{CacheError, PrepareOptions, PrepareReport, Store, prepare, verify};
use myxtts_data::record::RecordSource;
use myxtts_data::utterance::Utterance;
use myxtts_run::durable::fault::{DiskOperation, Effect, FaultPlan, FaultyDisk};
use myxtts_run::exit::Exit;
use myxtts_run::progress::Silent;

use super::cache_fixture::{Synthetic, assert_same, corpus, options, prepared, scratch, snapshot};

fn prepare_on(disk: &FaultyDisk, dir: &Path, utterances: &[Utterance]) -> Result<PrepareReport, CacheError> {
    let options = PrepareOptions { workers: 1, disk: Arc::new(disk.clone()), ..options() };
    prepare(dir, utterances, &Synthetic::new(), &options, &Silent)
}

/// Checks that every record can be read.
fn assert_usable(dir: &Path, records: usize, when: &str) {
    let store = Store::open(dir).unwrap();
    assert_eq!(store.len(), records, "{when}");
    for record in 0..records {
        for column in 0..3 {
            let mut out = vec![0; store.columns()[column].row_bytes() * store.rows(record, column) as usize];
            store.read(record, column, 0, &mut out).unwrap_or_else(|e| panic!("{when}: {e}"));
        }
    }
}

#[test]
fn after_a_failure_of_any_operation_a_rerun_is_identical() {
    let root = scratch();
    let (utterances, wanted) = (corpus(&root.path().join("corpus"), 24), root.path().join("wanted"));
    let counting = FaultyDisk::new(FaultPlan::none());
    prepare_on(&counting, &wanted, &utterances).unwrap();
    let wanted = snapshot(&wanted);
    assert!(counting.operations() > 60, "{} steps", counting.operations());
    for effect in [Effect::NoSpace, Effect::Broken] {
        for n in 1..=counting.operations() {
            let dir = root.path().join("cache");
            let when = format!("{effect:?} at step {n}");
            let error =
                prepare_on(&FaultyDisk::new(FaultPlan::at(n, effect)), &dir, &utterances).unwrap_err();
            assert_eq!(error.exit(), Exit::Io, "{when}");
            if effect == Effect::NoSpace {
                assert!(error.to_string().contains("no space left: free some"), "{when}: {error}");
            }
            prepared(&dir, &utterances);
            assert_same(&dir, &wanted, &when);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

#[test]
fn repeated_runs_finish_even_if_every_kth_operation_fails() {
    let root = scratch();
    let (utterances, wanted) = (corpus(&root.path().join("corpus"), 40), root.path().join("wanted"));
    prepared(&wanted, &utterances);
    let wanted = snapshot(&wanted);
    // A shard takes 25 operations: what is left over after one is progress that must not be lost.
    for k in [40, 55, 97] {
        let dir = root.path().join(format!("{k}"));
        let disk = FaultyDisk::new(FaultPlan::every(k, Effect::NoSpace));
        let runs = (1..100).find(|_| prepare_on(&disk, &dir, &utterances).is_ok());
        assert!(runs.is_some_and(|runs| runs > 1), "every {k}: {runs:?}");
        assert_same(&dir, &wanted, &format!("every {k}"));
    }
}

#[test]
fn short_writes_change_nothing() {
    let root = scratch();
    let (utterances, wanted) = (corpus(&root.path().join("corpus"), 24), root.path().join("wanted"));
    prepared(&wanted, &utterances);
    for k in 1..4 {
        let dir = root.path().join(format!("{k}"));
        let plan = FaultPlan { only: Some(DiskOperation::Write), ..FaultPlan::every(k, Effect::Short) };
        prepare_on(&FaultyDisk::new(plan), &dir, &utterances).unwrap();
        assert_same(&dir, &snapshot(&wanted), &format!("every {k}"));
    }
}

/// An update that fails leaves a complete store: after every operation there is either the old index with all of its records
/// or the new one with all of its.
#[test]
fn the_store_stays_usable_if_any_operation_of_an_update_fails() {
    let root = scratch();
    let folder = root.path().join("corpus");
    let (old, mut new) = (corpus(&folder, 24), corpus(&folder, 30));
    new[3].text = "another text".into();
    let original = root.path().join("original");
    let old_records = prepared(&original, &old).records as usize;
    let updated = root.path().join("updated");
    let new_records = prepared(&updated, &new).records as usize;
    let wanted = snapshot(&updated);
    let restore = |dir: &Path| {
        std::fs::create_dir_all(dir).unwrap();
        for (name, bytes) in snapshot(&original) {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    };
    let dir = root.path().join("cache");
    restore(&dir);
    let counting = FaultyDisk::new(FaultPlan::none());
    prepare_on(&counting, &dir, &new).unwrap();
    for n in 1..=counting.operations() {
        std::fs::remove_dir_all(&dir).unwrap();
        restore(&dir);
        let when = format!("step {n}");
        prepare_on(&FaultyDisk::new(FaultPlan::at(n, Effect::NoSpace)), &dir, &new).unwrap_err();
        let records = Store::open(&dir).unwrap().len();
        assert!(records == old_records || records == new_records, "{when}: {records}");
        assert_usable(&dir, records, &when);
        prepared(&dir, &new);
        assert_same(&dir, &wanted, &when);
    }
    assert!(verify(&dir, None, 1, &Silent).unwrap().is_ok());
}

//! Runtime mode: the same records as the store, computed on demand within a memory limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use myxtts_data::cache::{CacheError, Runtime, RuntimeOptions, Store};
use myxtts_data::problem::ProblemKind;
use myxtts_data::record::{RecordError, RecordSource};
use myxtts_run::progress::Silent;

use super::cache_fixture::{Synthetic, corpus, prepared, scratch};

fn whole(source: &dyn RecordSource, record: usize, column: usize) -> Vec<u8> {
    let row = source.columns()[column].row_bytes();
    let mut out = vec![0; source.rows(record, column) as usize * row];
    let rows = source.read(record, column, 0, &mut out).unwrap();
    out.truncate(rows as usize * row);
    out
}

#[test]
fn runtime_and_store_give_the_same_records_under_the_same_numbers() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 90), root.path().join("cache"));
    let synthetic = Synthetic::new();
    let options = myxtts_data::cache::PrepareOptions {
        shard_size: myxtts_data::cache::names::SHARD_SIZE,
        ..super::cache_fixture::options()
    };
    myxtts_data::cache::prepare(&dir, &utterances, &synthetic, &options, &Silent).unwrap();
    let store = Store::open(&dir).unwrap();
    let options = RuntimeOptions { memory_bytes: 20_000, workers: 2, ..RuntimeOptions::default() };
    let runtime = Runtime::open(&utterances, Arc::new(Synthetic::new()), &options, &Silent).unwrap();
    assert_eq!(runtime.len(), store.len());
    assert_eq!(runtime.problems().len(), 4);
    assert_eq!((runtime.speakers(), runtime.languages()), (store.speakers(), store.languages()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for record in 0..store.len() {
                    assert_eq!(runtime.id(record), store.id(record));
                    assert_eq!(runtime.speaker(record), store.speaker(record));
                    assert_eq!(runtime.language(record), store.language(record));
                    for column in 0..3 {
                        assert_eq!(runtime.rows(record, column), store.rows(record, column));
                        assert_eq!(whole(&runtime, record, column), whole(&store, record, column));
                    }
                }
            });
        }
    });
    let memory = runtime.memory();
    assert!(memory.peak <= 20_000 && memory.peak > 10_000, "{memory:?}");
}

#[test]
fn an_array_is_computed_once_if_rows_cannot_be_computed_alone() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 10);
    let synthetic = Arc::new(Synthetic::new());
    let runtime =
        Runtime::open(&utterances, Arc::clone(&synthetic) as _, &RuntimeOptions::default(), &Silent).unwrap();
    let computed = synthetic.computed.swap(0, Ordering::Relaxed);
    assert_eq!(computed, 10, "the default `measure` computes everything");
    for column in [0, 1, 2, 0, 1] {
        whole(&runtime, 4, column);
    }
    assert_eq!(synthetic.computed.load(Ordering::Relaxed), 3);
    assert_eq!(runtime.memory().hits, 2);
}

#[test]
fn a_file_that_vanished_after_opening_is_bad_data() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 4);
    let options = RuntimeOptions::default();
    let runtime = Runtime::open(&utterances, Arc::new(Synthetic::new()), &options, &Silent).unwrap();
    std::fs::remove_file(&utterances[2].audio).unwrap();
    let record = (0..4).find(|&record| runtime.id(record) == "utt-0002").unwrap();
    let Err(RecordError::Bad(problem)) = runtime.read(record, 0, 0, &mut [0; 64]) else {
        panic!("it was read")
    };
    assert_eq!(problem.kind, ProblemKind::Missing);
}

#[test]
fn more_failures_than_the_budget_and_a_stop_end_the_opening() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 40);
    let open =
        |options| Runtime::open(&utterances, Arc::new(Synthetic::new()), &options, &Silent).err().unwrap();
    let strict = RuntimeOptions { failure_budget: 0.01, ..RuntimeOptions::default() };
    let error = open(strict);
    assert!(matches!(error, CacheError::OverBudget { total: 40, .. }), "{error}");
    let stopped = RuntimeOptions { stop: Arc::new(true.into()), ..RuntimeOptions::default() };
    assert!(matches!(open(stopped), CacheError::Stopped));
}

#[test]
fn the_fingerprint_follows_the_content() {
    let root = scratch();
    let mut utterances = corpus(&root.path().join("corpus"), 6);
    let open = |utterances: &[_], version| {
        let synthetic = Arc::new(Synthetic { version, ..Synthetic::new() });
        Runtime::open(utterances, synthetic, &RuntimeOptions::default(), &Silent).unwrap().fingerprint()
    };
    let first = open(&utterances, 1);
    assert_ne!(open(&utterances, 2), first);
    utterances.reverse();
    assert_eq!(open(&utterances, 1), first, "the order of declaration does not matter");
    let (audio, kept) = (&utterances[3].audio, std::fs::read(&utterances[3].audio).unwrap());
    std::fs::write(audio, [&kept[1..], &[7]].concat()).unwrap();
    assert_ne!(open(&utterances, 1), first, "other audio of the same length");
    std::fs::write(audio, kept).unwrap();
    utterances[0].text.push('x');
    assert_ne!(open(&utterances, 1), first);
    let dir = root.path().join("cache");
    prepared(&dir, &utterances);
    assert_ne!(Store::open(&dir).unwrap().fingerprint(), first);
}

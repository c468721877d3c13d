//! Several processes on one store at once: those with nothing to write are not blocked, and of the others one writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use myxtts_data::cache::{CacheError, PrepareOptions, PrepareReport, open, prepare, verify};
use myxtts_data::record::RecordSource;
use myxtts_data::utterance::Utterance;
use myxtts_run::lock::{FolderLock, LockError};
use myxtts_run::progress::{Progress, Silent};

use super::cache_fixture::{Synthetic, corpus, files_ending, options, prepared, scratch, snapshot};

/// Runs `act` on every message and stores the messages.
struct RecordingProgress<F: Fn() + Sync> {
    act: F,
    messages: Mutex<Vec<String>>,
}

impl<F: Fn() + Sync> RecordingProgress<F> {
    fn new(act: F) -> Self {
        RecordingProgress { act, messages: Mutex::default() }
    }

    fn messages(&self) -> Vec<String> {
        self.messages.lock().unwrap().clone()
    }
}

impl<F: Fn() + Sync> Progress for RecordingProgress<F> {
    fn start(&self, _what: &str, _total: u64) {}
    fn advance(&self, _items: u64) {}
    fn say(&self, message: &str) {
        self.messages.lock().unwrap().push(message.to_owned());
        (self.act)();
    }
    fn finish(&self) {}
}

fn run(
    dir: &Path,
    utterances: &[Utterance],
    options: &PrepareOptions,
    progress: &dyn Progress,
) -> Result<PrepareReport, CacheError> {
    prepare(dir, utterances, &Synthetic::new(), options, progress)
}

#[test]
fn a_current_store_is_opened_by_many_while_its_lock_is_held() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    let first = prepared(&dir, &utterances);
    let before = snapshot(&dir);
    let held = FolderLock::acquire(&dir).unwrap();
    std::thread::scope(|scope| {
        let one = || {
            let (store, report) = open(&dir, &utterances, &Synthetic::new(), &options(), &Silent).unwrap();
            let mut out = vec![0; store.rows(5, 0) as usize * 4];
            store.read(5, 0, 0, &mut out).unwrap();
            report
        };
        let many: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        for report in many.into_iter().map(|thread| thread.join().unwrap()) {
            let wanted = PrepareReport { computed: 0, shards_kept: first.shards, ..first.clone() };
            assert_eq!(report, wanted);
        }
    });
    drop(held);
    assert!(snapshot(&dir) == before, "something was written");
}

/// Each of these requires writing, and therefore the lock.
#[test]
fn a_store_that_is_not_current_has_one_writer() {
    let root = scratch();
    let folder = root.path().join("corpus");
    let (utterances, dir) = (corpus(&folder, 40), root.path().join("cache"));
    prepared(&dir, &utterances);
    let _held = FolderLock::acquire(&dir).unwrap();
    run(&dir, &utterances, &options(), &Silent).unwrap();
    let assert_locked = |utterances: &[Utterance], featurizer: &Synthetic, what: &str| {
        let error = prepare(&dir, utterances, featurizer, &options(), &Silent).unwrap_err();
        assert!(matches!(error, CacheError::Lock(LockError::Held { .. })), "{what}: {error}");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{what}: {error}");
    };
    let mut other = utterances.clone();
    other[3].text = "another text".into();
    assert_locked(&other, &Synthetic::new(), "a text");
    assert_locked(&utterances[1..], &Synthetic::new(), "one less");
    assert_locked(&utterances, &Synthetic { version: 2, ..Synthetic::new() }, "another recipe");
    let audio = std::fs::read(&utterances[4].audio).unwrap();
    std::fs::write(&utterances[4].audio, "another sound").unwrap();
    assert_locked(&utterances, &Synthetic::new(), "an audio file");
    std::fs::write(&utterances[4].audio, audio).unwrap();
    run(&dir, &utterances, &options(), &Silent).unwrap();
    std::fs::remove_file(&files_ending(&dir, ".tokens.npy")[0]).unwrap();
    assert_locked(&utterances, &Synthetic::new(), "an array");
}

#[test]
fn leftovers_of_a_killed_writer_are_removed_by_the_next_lock_holder() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 30), root.path().join("cache"));
    prepared(&dir, &utterances);
    let before = snapshot(&dir);
    for left in ["index.bin.77-3.tmp", "shard-0000of0004-00000007.seal", "write.lock"] {
        std::fs::write(dir.join(left), "7777").unwrap();
        let held = FolderLock::acquire(&dir).unwrap();
        run(&dir, &utterances, &options(), &Silent).unwrap();
        assert!(dir.join(left).exists(), "{left} must not be removed while another process writes");
        drop(held);
        // Written again, since a lock file is emptied when the lock is released, but not when its owner is killed.
        std::fs::write(dir.join(left), "7777").unwrap();
        run(&dir, &utterances, &options(), &Silent).unwrap();
        assert!(snapshot(&dir) == before, "{left}");
    }
}

#[test]
fn a_second_writer_waits_for_the_first() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 20), root.path().join("cache"));
    std::fs::create_dir(&dir).unwrap();
    let held = Mutex::new(Some(FolderLock::acquire(&dir).unwrap()));
    let waiting = PrepareOptions { wait: true, ..options() };
    let progress = RecordingProgress::new(|| drop(held.lock().unwrap().take()));
    assert_eq!(run(&dir, &utterances, &waiting, &progress).unwrap().computed, 20);
    let [message] = &progress.messages()[..] else { panic!("{:?}", progress.messages()) };
    assert!(message.contains("waiting") && message.contains(&std::process::id().to_string()), "{message}");

    // A stop request ends the wait too.
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = PrepareOptions { wait: true, stop: stop.clone(), ..options() };
    let _held = FolderLock::acquire(&dir).unwrap();
    let progress = RecordingProgress::new(|| stop.store(true, Ordering::Relaxed));
    let error = run(&dir, &utterances[..10], &waiting, &progress).unwrap_err();
    assert!(matches!(error, CacheError::Stopped), "{error}");
}

#[test]
fn concurrent_processes_share_the_store_and_compute_no_record_twice() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    let waiting = PrepareOptions { wait: true, ..options() };
    let reports: Vec<PrepareReport> = std::thread::scope(|scope| {
        let one = || open(&dir, &utterances, &Synthetic::new(), &waiting, &Silent).unwrap().1;
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(reports.iter().map(|report| report.computed).sum::<u64>(), 60);
    assert!(reports.iter().all(|report| report.fingerprint == reports[0].fingerprint));
    assert!(verify(&dir, None, 1, &Silent).unwrap().is_ok());
}

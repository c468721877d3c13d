//! Runs numbered pieces of work on scoped threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::CacheError;
use super::featurizer::panic_message;

/// Runs `work` for every number below `count` on `workers` threads, lowest numbers first. After the first error no new piece
/// is started; `halt` is set so that running pieces can stop early.
pub(super) fn for_each<W>(workers: usize, count: usize, halt: &AtomicBool, work: W) -> Result<(), CacheError>
where
    W: Fn(usize) -> Result<(), CacheError> + Sync,
{
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<CacheError>> = Mutex::new(None);
    let fail = |error| {
        // The first error is the cause; later ones only report that they saw `halt`. So `halt` is set after the error is
        // stored.
        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
        halt.store(true, Ordering::Release);
    };
    let run = || {
        while !halt.load(Ordering::Acquire) {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= count {
                return;
            }
            if let Err(error) = work(piece) {
                return fail(error);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.clamp(1, count.max(1))).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                fail(CacheError::Internal(format!("a worker panicked: {}", panic_message(panic.as_ref()))));
            }
        }
    });
    match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

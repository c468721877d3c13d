//! Numbered pieces of work dealt to threads that live as long as the work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::CacheError;
use super::featurizer::words;

/// Runs `work` for every number below `count` on `workers` threads, the lowest numbers first. The
/// first error ends the others between two pieces, and `halt` lets them end inside one.
pub(super) fn deal<W>(workers: usize, count: usize, halt: &AtomicBool, work: W) -> Result<(), CacheError>
where
    W: Fn(usize) -> Result<(), CacheError> + Sync,
{
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<CacheError>> = Mutex::new(None);
    let fail = |error| {
        // The cause is the first; the others only noticed `halt`, so that is set afterwards.
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
                fail(CacheError::Internal(format!("a worker panicked: {}", words(panic.as_ref()))));
            }
        }
    });
    match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

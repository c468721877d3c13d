//! Which record a thread is at, for others to see: a thread that is stuck cannot say so itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where a thread that makes batches is.
#[derive(Debug)]
pub(crate) struct Beacon {
    started: Instant,
    /// The record, and one more; 0 for none.
    record: AtomicU64,
    /// Milliseconds from the start to when it came there.
    since: AtomicU64,
}

impl Default for Beacon {
    fn default() -> Self {
        Beacon { started: Instant::now(), record: AtomicU64::new(0), since: AtomicU64::new(0) }
    }
}

impl Beacon {
    /// The thread begins a batch.
    pub(crate) fn begin(&self) {
        self.record.store(0, Relaxed);
        self.since.store(self.started.elapsed().as_millis() as u64, Relaxed);
    }

    /// The thread comes to a record.
    pub(crate) fn at(&self, record: u32) {
        self.since.store(self.started.elapsed().as_millis() as u64, Relaxed);
        self.record.store(u64::from(record) + 1, Relaxed);
    }

    /// The record it is at, if it is at one, and for how long it has been there.
    pub(crate) fn seen(&self) -> (Option<u32>, Duration) {
        let here = self.started.elapsed().saturating_sub(Duration::from_millis(self.since.load(Relaxed)));
        (self.record.load(Relaxed).checked_sub(1).map(|record| record as u32), here)
    }
}

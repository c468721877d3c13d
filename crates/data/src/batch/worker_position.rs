//! Publishes the record a thread is working on: a stuck thread cannot report it itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Position of a thread that makes batches.
#[derive(Debug)]
pub(crate) struct WorkerPosition {
    started: Instant,
    /// Record number plus one; 0 for none.
    record: AtomicU64,
    /// Milliseconds from `started` to when the thread reached this record.
    since: AtomicU64,
}

impl Default for WorkerPosition {
    fn default() -> Self {
        WorkerPosition { started: Instant::now(), record: AtomicU64::new(0), since: AtomicU64::new(0) }
    }
}

impl WorkerPosition {
    /// Called by the thread when it begins a batch.
    pub(crate) fn begin(&self) {
        self.record.store(0, Relaxed);
        self.since.store(self.started.elapsed().as_millis() as u64, Relaxed);
    }

    /// Called by the thread when it begins a record.
    pub(crate) fn at(&self, record: u32) {
        self.since.store(self.started.elapsed().as_millis() as u64, Relaxed);
        self.record.store(u64::from(record) + 1, Relaxed);
    }

    /// Returns the current record, `None` between records, and the time spent there.
    pub(crate) fn current(&self) -> (Option<u32>, Duration) {
        let elapsed = self.started.elapsed().saturating_sub(Duration::from_millis(self.since.load(Relaxed)));
        (self.record.load(Relaxed).checked_sub(1).map(|record| record as u32), elapsed)
    }
}

//! Progress and stop flag of long-running work.

use myxtts_run::progress::Progress;
use std::sync::atomic::AtomicBool;

/// Progress reporting and stop flag of long-running work.
#[derive(Clone, Copy)]
pub struct JobControl<'a> {
    /// Receives the progress.
    pub progress: &'a dyn Progress,
    /// When true, the work stops at the next item.
    pub stop: &'a AtomicBool,
}

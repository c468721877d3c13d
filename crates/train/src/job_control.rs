//! Progress and stop flag of long work.

use myxtts_run::progress::Progress;
use std::sync::atomic::AtomicBool;

/// How long work reports, and how it is stopped.
#[derive(Clone, Copy)]
pub struct JobControl<'a> {
    /// Receives the progress.
    pub progress: &'a dyn Progress,
    /// Raised when the work is to stop at the next item.
    pub stop: &'a AtomicBool,
}

//! Progress and stop flag of long-running work.

use crate::error::TrainError;
use myxtts_run::progress::Progress;
use std::sync::atomic::{AtomicBool, Ordering};

/// Progress reporting and stop flag of long-running work.
#[derive(Clone, Copy)]
pub struct JobControl<'a> {
    /// Receives the progress.
    pub progress: &'a dyn Progress,
    /// When true, the work stops at the next item.
    pub stop: &'a AtomicBool,
}

/// Returns an error if the user asked to stop. Called between items of work before a stage.
pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), TrainError> {
    if stop.load(Ordering::Relaxed) { Err(TrainError::Interrupted) } else { Ok(()) }
}

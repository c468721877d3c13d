//! The effects of a [`Fault`] on the settings of a feed, the shapes of batches and the steps of a stage.

use super::diagnosis::Cause;
use super::trace::Trace;
use crate::error::TrainError;
use crate::fault::{Fault, FaultKind, THREADS};
use crate::feed::{Depth, FeedSettings};
use crate::stages::gpt::Lengths;
use crate::stages::{Stage, Submitted};
use crate::statistics::median;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Upload;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

impl FaultKind {
    /// The cause that `diagnose` should find.
    pub fn cause(self) -> Cause {
        match self {
            FaultKind::SlowDisk => Cause::Disk,
            FaultKind::SlowDecode => Cause::Decode,
            FaultKind::SlowWorker => Cause::SlowWorker,
            FaultKind::TinyBuffer => Cause::TinyBuffer,
            FaultKind::UploadLock => Cause::UploadLock,
            FaultKind::PageableUpload => Cause::PageableUploads,
            FaultKind::ShapeChurn => Cause::ShapeChurn,
            FaultKind::PeriodicStall => Cause::PeriodicStall,
            FaultKind::CpuHog => Cause::CpuContention,
            FaultKind::SlowStep => Cause::SlowStep,
            FaultKind::NoisyStep => Cause::NoisyStep,
            FaultKind::Healthy => Cause::Healthy,
        }
    }
}

impl Fault {
    /// Arms the fault, with the measurements of a healthy trace.
    pub fn arm(&self, healthy: &Trace) {
        let rows = healthy.batches.iter().map(|batch| batch.shape[0]).max().unwrap_or(1);
        self.arm_with(usual_step(healthy), rows);
    }

    /// A feed with this fault.
    pub fn feeding(&'static self, feeding: FeedSettings) -> FeedSettings {
        let (mut workers, mut depth, mut upload) = (feeding.workers, feeding.depth, feeding.upload);
        if matches!(self.kind, FaultKind::SlowWorker | FaultKind::TinyBuffer) {
            workers = THREADS;
        }
        match self.kind {
            FaultKind::TinyBuffer => depth = Some(Depth::of(2)),
            FaultKind::PageableUpload => upload = Upload::AheadPageable,
            // A larger buffer would take too long to run empty.
            FaultKind::SlowWorker => depth = Some(Depth::of(depth.map_or(8, |depth| depth.max.min(8)))),
            _ => {}
        }
        self.workers.store(workers.max(1), Relaxed);
        self.slots.store(depth.map_or(1, |depth| depth.max), Relaxed);
        // Batches that wait in RAM would hide the fault.
        FeedSettings { workers, depth, upload, under_way: 0, fault: Some(self), ..feeding }
    }

    /// Lengths that batches are padded to, with this fault.
    pub fn lengths(&self, lengths: Lengths) -> Lengths {
        match self.kind {
            // As many as a plan allows, without rounding two of them to one.
            FaultKind::ShapeChurn => Lengths { buckets: 64, unit: 1 },
            _ => lengths,
        }
    }

    /// Called when step `step` was queued: computes it more often than necessary, or serialises it with the copies.
    pub(super) fn on_submit(
        &self,
        stage: &mut dyn Stage,
        step: u64,
        control: &Control,
        queued: &mut Submitted,
    ) -> Result<(), TrainError> {
        for _ in 0..self.extra_runs(step) {
            // The step ends when the last of its runs does.
            if let Some(ticket) = stage.replay(queued.shape, control)? {
                queued.ticket = ticket;
            }
        }
        if self.kind == FaultKind::UploadLock && self.is_armed() {
            stage.engine().synchronize()?;
            *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.over.1.notify_all();
        }
        Ok(())
    }
}

/// The usual time from the end of one step to the end of the next.
fn usual_step(trace: &Trace) -> f64 {
    let steady: Vec<f64> = trace.batches.iter().filter(|b| !b.is_disturbed()).map(|b| b.period).collect();
    match steady.len() {
        0..3 => median(&trace.batches.iter().map(|batch| batch.period).collect::<Vec<_>>()),
        _ => median(&steady),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_cause_of_its_own() {
        let causes: std::collections::BTreeSet<_> = FaultKind::ALL.map(FaultKind::cause).into();
        assert_eq!(causes.len(), FaultKind::ALL.len());
    }
}

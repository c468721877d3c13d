//! Steps with an injected fault: computed more often than necessary, or serialised with their copies.

use crate::error::TrainError;
use crate::fault::{Fault, FaultKind};
use crate::stages::{Stage, StageCore, Submitted, Validation};
use myxtts_tensor::engine::Ticket;
use myxtts_tensor::{Control, Report};
use std::sync::PoisonError;

/// A stage with an injected fault.
pub(super) struct FaultyStage<'a> {
    pub stage: Box<dyn Stage + 'a>,
    pub fault: &'static Fault,
}

impl Stage for FaultyStage<'_> {
    fn core(&self) -> &dyn StageCore {
        self.stage.core()
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self.stage.core_mut()
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let mut queued = self.stage.submit(step, control)?;
        for _ in 0..self.fault.extra_runs(step) {
            // The step ends when the last of its runs does.
            if let Some(ticket) = self.stage.replay(queued.shape, control)? {
                queued.ticket = ticket;
            }
        }
        if self.fault.kind == FaultKind::UploadLock && self.fault.is_armed() {
            self.stage.engine().synchronize()?;
            *self.fault.over.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.fault.over.1.notify_all();
        }
        Ok(queued)
    }

    fn replay(&mut self, shape: [usize; 3], control: &Control) -> Result<Option<Ticket>, TrainError> {
        self.stage.replay(shape, control)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Report, TrainError> {
        self.stage.wait(ticket)
    }

    fn restored(&mut self) -> Result<(), TrainError> {
        self.stage.restored()
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.stage.between(step)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.stage.validate()
    }
}

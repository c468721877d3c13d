//! Steps with a fault: computed more often than they have to be, or alone with what is copied.

use super::{Fault, Plant};
use crate::error::TrainError;
use crate::model::Model;
use crate::stages::{StageKind, Stage, Submitted, Validation};
use myxtts_tensor::engine::Ticket;
use myxtts_tensor::{Control, Engine, ParameterId, Report};
use serde_json::Value;
use std::sync::PoisonError;

/// A stage whose steps are not what they could be.
pub(super) struct Steps<'a> {
    pub stage: Box<dyn Stage + 'a>,
    pub fault: &'static Fault,
}

impl Stage for Steps<'_> {
    fn kind(&self) -> StageKind {
        self.stage.kind()
    }

    fn described(&self) -> Vec<String> {
        self.stage.described()
    }

    fn engine(&self) -> &Engine {
        self.stage.engine()
    }

    fn engine_mut(&mut self) -> &mut Engine {
        self.stage.engine_mut()
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let mut queued = self.stage.submit(step, control)?;
        for _ in 0..self.fault.more(step) {
            // The step is over when the last of its runs is.
            if let Some(ticket) = self.stage.replay(queued.shape, control)? {
                queued.ticket = ticket;
            }
        }
        if self.fault.plant == Plant::UploadLock && self.fault.is_armed() {
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

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        self.stage.numbers(report)
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.stage.between(step)
    }

    fn due(&self, step: u64) -> bool {
        self.stage.due(step)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.stage.validate()
    }

    fn objective(&self, step: u64) -> u64 {
        self.stage.objective(step)
    }

    fn is_averaged(&self, parameter: ParameterId) -> bool {
        self.stage.is_averaged(parameter)
    }

    fn epoch_steps(&self) -> u64 {
        self.stage.epoch_steps()
    }

    fn clip(&self, record: u32) -> String {
        self.stage.clip(record)
    }

    fn position(&self, step: u64) -> Value {
        self.stage.position(step)
    }

    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        self.stage.finish(model, average)
    }
}

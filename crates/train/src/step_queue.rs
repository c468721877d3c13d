//! Steps of a stage that are queued ahead of their reports, in order, each with the time it took. Shared by training, `bench`,
//! `tune` and `diagnose`.

use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_run::plan::Recipe;
use myxtts_tensor::engine::Ticket;
use myxtts_tensor::{Control, Report};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The control of step `at` of a recipe; measured steps may be later than its last.
pub(crate) fn control(recipe: &Recipe, at: u64, seed: u64) -> Control {
    Control {
        rate: recipe.schedule.at(at.min(recipe.steps.max(1) - 1)) as f32,
        weight: 1.0,
        clip: recipe.clip.unwrap_or(0.0) as f32,
        // The average follows faster at first: otherwise it would stay near the initial weights for too long.
        average: recipe.ema_decay.unwrap_or(0.0).min((1 + at) as f64 / (10 + at) as f64) as f32,
        seed,
    }
}

/// A moment, with totals since the engine was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The moment.
    pub at: Instant,
    /// Time that steps were on the device, by its own clock; `None` if the device is the CPU.
    pub on_device: Option<Duration>,
    /// Time that steps have waited for sums over processes; `None` in a run of one process.
    pub summed: Option<Duration>,
}

impl Clocks {
    /// Reads the clocks of a stage.
    pub fn read(stage: &dyn Stage) -> Clocks {
        Clocks { at: Instant::now(), on_device: stage.engine().busy(), summed: stage.communication() }
    }
}

/// The steps in flight, with what the caller knows about each, and when the last one ended.
pub(crate) struct StepQueue<T> {
    in_flight: VecDeque<(Ticket, T)>,
    last_end: Clocks,
}

/// A step that has ended.
pub(crate) struct CompletedStep<T> {
    /// What the caller knows about it.
    pub step: T,
    /// What the engine reports about it.
    pub report: Report,
    /// The moment its report arrived.
    pub end: Clocks,
    /// Time since the step before it ended.
    pub period: Duration,
    /// Time on the device, by its own clock; `None` if the device is the CPU.
    pub on_device: Option<Duration>,
}

impl<T> StepQueue<T> {
    /// Starts the clock, with no step in flight.
    pub fn start(stage: &dyn Stage) -> StepQueue<T> {
        StepQueue { in_flight: VecDeque::new(), last_end: Clocks::read(stage) }
    }

    /// The moment the last step ended.
    pub fn last_end(&self) -> Clocks {
        self.last_end
    }

    /// Adds a step that was submitted.
    pub fn push(&mut self, ticket: Ticket, step: T) {
        self.in_flight.push_back((ticket, step));
    }

    /// The steps in flight, in order.
    pub fn in_flight_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.in_flight.iter_mut().map(|(_, step)| step)
    }

    /// Waits for the oldest step; `None` if no more than `keep` are in flight.
    pub fn complete_next(
        &mut self,
        keep: usize,
        stage: &mut dyn Stage,
    ) -> Result<Option<CompletedStep<T>>, TrainError> {
        if self.in_flight.len() <= keep {
            return Ok(None);
        }
        let Some((ticket, step)) = self.in_flight.pop_front() else { return Ok(None) };
        let report = stage.wait(ticket)?;
        let end = Clocks::read(stage);
        let before = std::mem::replace(&mut self.last_end, end);
        let period = end.at - before.at;
        let on_device =
            end.on_device.zip(before.on_device).map(|(after, before)| after.saturating_sub(before));
        Ok(Some(CompletedStep { step, report, end, period, on_device }))
    }

    /// Waits until at most `keep` steps are in flight.
    pub fn complete(
        &mut self,
        keep: usize,
        stage: &mut dyn Stage,
    ) -> Result<Vec<CompletedStep<T>>, TrainError> {
        let mut completed = Vec::new();
        while let Some(step) = self.complete_next(keep, stage)? {
            completed.push(step);
        }
        Ok(completed)
    }
}

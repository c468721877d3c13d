//! Steps of a stage, queued a few ahead of their reports as training queues them, each timed. Shared by `bench`, `tune` and
//! `diagnose`.

use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_run::plan::Recipe;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Ticket;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The control of a measured step: the learning rate of step `at` of the recipe, and its other settings.
pub(crate) fn control(recipe: &Recipe, at: u64, seed: u64) -> Control {
    Control {
        rate: recipe.schedule.at(at.min(recipe.steps.max(1) - 1)) as f32,
        weight: 1.0,
        clip: recipe.clip.unwrap_or(0.0) as f32,
        average: recipe.ema_decay.unwrap_or(0.0) as f32,
        seed,
    }
}

/// The steps in flight, with what the caller knows about each, and when the last one ended.
pub(crate) struct StepTimer<T> {
    in_flight: VecDeque<(Ticket, T)>,
    ahead: usize,
    last_end: Instant,
    busy: Option<Duration>,
}

/// A step that has ended.
pub(crate) struct TimedStep<T> {
    /// What the caller knows about it.
    pub step: T,
    /// Time since the step before it ended.
    pub period: Duration,
    /// Time on the device, by its own clock; `None` if the device is the CPU.
    pub on_device: Option<Duration>,
}

impl<T> StepTimer<T> {
    /// Starts the clock. At most `ahead` steps are in flight after [`complete`](Self::complete).
    pub fn start(stage: &dyn Stage, ahead: usize) -> StepTimer<T> {
        let (last_end, busy) = (Instant::now(), stage.engine().busy());
        StepTimer { in_flight: VecDeque::new(), ahead, last_end, busy }
    }

    /// Adds a step that was queued.
    pub fn push(&mut self, ticket: Ticket, step: T) {
        self.in_flight.push_back((ticket, step));
    }

    /// The steps in flight, in order.
    pub fn in_flight_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.in_flight.iter_mut().map(|(_, step)| step)
    }

    /// Waits until no more steps are in flight than allowed.
    pub fn complete(&mut self, stage: &mut dyn Stage) -> Result<Vec<TimedStep<T>>, TrainError> {
        self.complete_to(self.ahead, stage)
    }

    /// Waits until no step is in flight.
    pub fn complete_all(&mut self, stage: &mut dyn Stage) -> Result<Vec<TimedStep<T>>, TrainError> {
        self.complete_to(0, stage)
    }

    fn complete_to(&mut self, left: usize, stage: &mut dyn Stage) -> Result<Vec<TimedStep<T>>, TrainError> {
        let mut ended = Vec::new();
        while self.in_flight.len() > left
            && let Some((ticket, step)) = self.in_flight.pop_front()
        {
            stage.wait(ticket)?;
            let (now, busy) = (Instant::now(), stage.engine().busy());
            let period = now - std::mem::replace(&mut self.last_end, now);
            let before = std::mem::replace(&mut self.busy, busy);
            let on_device = busy.zip(before).map(|(after, before)| after.saturating_sub(before));
            ended.push(TimedStep { step, period, on_device });
        }
        Ok(ended)
    }
}

//! A stage that is timed in segments, with other stages in between.

use super::{Figures, Runner, Timed, cpu_seconds, figures};
use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use std::time::Instant;

/// One step of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentStep {
    /// Rows of its batch.
    pub rows: f64,
    /// Text and audio positions per row.
    pub places: f64,
    /// Step time, in seconds.
    pub seconds: f64,
}

/// A stage on the CPU, with the times of its steps so far.
pub struct TimedStage {
    stage: Box<dyn Stage>,
    recipe: Recipe,
    seed: Seed,
    next: u64,
    timed: Vec<Timed>,
    seconds: f64,
    cpu_seconds: f64,
}

impl TimedStage {
    /// Builds the stage and runs the given number of untimed steps: the first steps of a stage allocate its memory.
    pub fn new(
        stage: Box<dyn Stage>,
        recipe: Recipe,
        seed: u64,
        warm: u64,
    ) -> Result<TimedStage, TrainError> {
        let seed = Seed::new(seed).derive("bench");
        let next = recipe.steps / 2;
        let mut timed_stage =
            TimedStage { stage, recipe, seed, next, timed: Vec::new(), seconds: 0.0, cpu_seconds: 0.0 };
        timed_stage.run(warm)?;
        Ok(timed_stage)
    }

    /// Runs and times the next `steps` steps.
    pub fn segment(&mut self, steps: u64) -> Result<Vec<SegmentStep>, TrainError> {
        let (start, before) = (Instant::now(), cpu_seconds());
        let timed = self.run(steps)?;
        self.seconds += start.elapsed().as_secs_f64();
        self.cpu_seconds += cpu_seconds() - before;
        let segment = timed.iter().map(|step| {
            let [rows, text, sound] = step.shape;
            SegmentStep { rows: rows as f64, places: (text + sound) as f64, seconds: step.seconds }
        });
        let segment = segment.collect();
        self.timed.extend(timed);
        Ok(segment)
    }

    /// Measurements over all segments.
    pub fn figures(&self) -> Figures {
        let mut figures = figures(&self.timed, self.seconds);
        figures.cores = self.cpu_seconds / self.seconds;
        figures.planned_bytes = self.stage.engine().memory().total() as u64;
        figures
    }

    fn run(&mut self, steps: u64) -> Result<Vec<Timed>, TrainError> {
        let &mut TimedStage { recipe, seed, next, .. } = self;
        let timed = Runner { stage: &mut *self.stage, recipe: &recipe, seed, next, ahead: 0 }.run(steps)?;
        self.next += steps;
        Ok(timed)
    }
}

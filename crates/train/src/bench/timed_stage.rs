//! A stage that is timed in pieces, with others in between.

use super::{Figures, Runner, Timed, figures, processor_seconds};
use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use std::time::Instant;

/// A step of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentStep {
    /// Rows of its batch.
    pub rows: f64,
    /// Places of text and sound of a row.
    pub places: f64,
    /// What it took.
    pub seconds: f64,
}

/// A stage on the processor, and what its steps took so far.
pub struct TimedStage {
    stage: Box<dyn Stage>,
    recipe: Recipe,
    seed: Seed,
    next: u64,
    timed: Vec<Timed>,
    seconds: f64,
    processor: f64,
}

impl TimedStage {
    /// Takes so many steps that are not timed: a stage's first steps take their memory.
    pub fn new(
        stage: Box<dyn Stage>,
        recipe: Recipe,
        seed: u64,
        warm: u64,
    ) -> Result<TimedStage, TrainError> {
        let seed = Seed::new(seed).derive("bench");
        let next = recipe.steps / 2;
        let mut timed_stage =
            TimedStage { stage, recipe, seed, next, timed: Vec::new(), seconds: 0.0, processor: 0.0 };
        timed_stage.run(warm)?;
        Ok(timed_stage)
    }

    /// Goes on by so many steps.
    pub fn segment(&mut self, steps: u64) -> Result<Vec<SegmentStep>, TrainError> {
        let (start, before) = (Instant::now(), processor_seconds());
        let timed = self.run(steps)?;
        self.seconds += start.elapsed().as_secs_f64();
        self.processor += processor_seconds() - before;
        let segment = timed.iter().map(|step| {
            let [rows, text, sound] = step.shape;
            SegmentStep { rows: rows as f64, places: (text + sound) as f64, seconds: step.seconds }
        });
        let segment = segment.collect();
        self.timed.extend(timed);
        Ok(segment)
    }

    /// What all segments together came to.
    pub fn figures(&self) -> Figures {
        let mut figures = figures(&self.timed, self.seconds);
        figures.cores = self.processor / self.seconds;
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

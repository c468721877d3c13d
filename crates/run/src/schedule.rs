//! The learning rate as a pure function of the step: nothing to save, nothing to drift.

use serde::{Deserialize, Serialize};

/// A warm-up and what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest rate.
    pub rate: f64,
    /// Steps over which the rate rises to it in a line; 0 begins there.
    pub warmup: u64,
    /// What comes then.
    pub then: Then,
}

/// How the rate goes on after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Then {
    /// It stays.
    Constant,
    /// It falls along half a cosine.
    Cosine {
        /// The step at which it has arrived, counted from the very first.
        steps: u64,
        /// The share of the rate that is left then and afterwards.
        floor: f64,
    },
}

impl Schedule {
    /// The rate of a step, counted from 0.
    ///
    /// The first step of a warm-up has a rate already: with 0 it would be wasted.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.rate * (step + 1) as f64 / self.warmup as f64;
        }
        match self.then {
            Then::Constant => self.rate,
            Then::Cosine { steps, floor } => {
                // Where the warm-up takes all steps, what comes after it is the end.
                let length = steps.saturating_sub(self.warmup);
                let done = if length == 0 { 1.0 } else { (step - self.warmup) as f64 / length as f64 };
                let height = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
                self.rate * (floor + (1.0 - floor) * height)
            }
        }
    }
}

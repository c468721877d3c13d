//! The learning rate as a pure function of the step: there is no state to save or to drift.

use serde::{Deserialize, Serialize};

/// A linear warm-up followed by a decay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Peak learning rate.
    pub rate: f64,
    /// Steps over which the rate rises linearly to the peak; 0 starts at the peak.
    pub warmup: u64,
    /// Decay after the warm-up.
    #[serde(rename = "then")]
    pub decay: Decay,
}

/// Learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Decay {
    /// Stays at the peak.
    Constant,
    /// Falls along half a cosine.
    Cosine {
        /// Step at which the floor is reached, counted from the start of the stage.
        steps: u64,
        /// Final rate as a fraction of the peak, from `steps` on.
        floor: f64,
    },
}

impl Schedule {
    /// Learning rate of a step, counted from 0.
    ///
    /// The first step of a warm-up has a rate above 0; otherwise it would be wasted.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.rate * (step + 1) as f64 / self.warmup as f64;
        }
        match self.decay {
            Decay::Constant => self.rate,
            Decay::Cosine { steps, floor } => {
                // If the warm-up takes all steps, the floor follows directly.
                let length = steps.saturating_sub(self.warmup);
                let done = if length == 0 { 1.0 } else { (step - self.warmup) as f64 / length as f64 };
                let height = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
                self.rate * (floor + (1.0 - floor) * height)
            }
        }
    }
}

//! Early stopping when validation scores no longer improve.

use serde::{Deserialize, Serialize};

/// Ends a stage when the validation score has not improved for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStop {
    patience: Option<u32>,
    min_delta: f64,
    best: Option<f64>,
    waited: u32,
}

/// Verdict on a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopVerdict {
    /// The best so far.
    Better,
    /// Not better. Holds the number of further validations before stopping; `None` without a limit.
    Waiting(Option<u32>),
    /// Not better, and the patience is used up.
    Stop,
}

impl EarlyStop {
    /// Stops after `patience` consecutive validations that do not improve by more than `min_delta`; `None` never stops,
    /// but still reports improvements.
    pub fn new(patience: Option<u32>, min_delta: f64) -> Self {
        assert!(min_delta >= 0.0 && min_delta.is_finite(), "min_delta must be finite and not negative");
        EarlyStop { patience, min_delta, best: None, waited: 0 }
    }

    /// Changes the patience.
    pub fn set_patience(&mut self, patience: Option<u32>) {
        self.patience = patience;
    }

    /// Adds the score of a validation, lower is better. NaN and Inf are never better.
    pub fn observe(&mut self, score: f64) -> StopVerdict {
        if score.is_finite() && self.best.is_none_or(|best| score < best - self.min_delta) {
            self.best = Some(score);
            self.waited = 0;
            return StopVerdict::Better;
        }
        self.waited = self.waited.saturating_add(1);
        match self.patience.map(|patience| patience.saturating_sub(self.waited)) {
            Some(0) => StopVerdict::Stop,
            left => StopVerdict::Waiting(left),
        }
    }

    /// Forgets earlier scores, for when they are no longer comparable with later ones.
    pub fn restart(&mut self) {
        (self.best, self.waited) = (None, 0);
    }

    /// Whether the patience is used up: a stage resumed from here has nothing left to do.
    pub fn is_exhausted(&self) -> bool {
        self.waited > 0 && self.patience.is_some_and(|patience| self.waited >= patience)
    }

    /// The best score so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

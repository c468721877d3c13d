//! Scores that no longer improve.

use serde::{Deserialize, Serialize};

/// Ends a stage when validation has not become better for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStop {
    patience: Option<u32>,
    min_delta: f64,
    best: Option<f64>,
    waited: u32,
}

/// What a validation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopVerdict {
    /// The best so far.
    Better,
    /// Not better; `Some` says how many more such are waited for.
    Waiting(Option<u32>),
    /// Not better for the last time.
    Stop,
}

impl EarlyStop {
    /// Stops after `patience` validations in a row that are not better by more than `min_delta`; `None`
    /// never stops, and still says what is better.
    pub fn new(patience: Option<u32>, min_delta: f64) -> Self {
        assert!(min_delta >= 0.0 && min_delta.is_finite(), "getting worse cannot count as better");
        EarlyStop { patience, min_delta, best: None, waited: 0 }
    }

    /// Waits for another number of validations from now on.
    pub fn set_patience(&mut self, patience: Option<u32>) {
        self.patience = patience;
    }

    /// Takes the score of a validation, lower being better. One that is no number is not better.
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

    /// Forgets what it has seen: from now on scores measure something else.
    pub fn restart(&mut self) {
        (self.best, self.waited) = (None, 0);
    }

    /// Whether it has said to stop: a stage that goes on from here has nothing left to do.
    pub fn is_spent(&self) -> bool {
        self.waited > 0 && self.patience.is_some_and(|patience| self.waited >= patience)
    }

    /// The best score so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

//! Steps with a NaN or Inf loss or gradient, or with a far too large gradient.

use serde::{Deserialize, Serialize};

/// Counts bad steps against a budget. The engine has already skipped the weight update; this decides whether training
/// continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadStepGuard {
    #[serde(rename = "most_in_a_row")]
    max_in_a_row: u64,
    #[serde(rename = "most")]
    max_total: u64,
    in_a_row: u64,
    total: u64,
}

/// Verdict on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStepVerdict {
    /// The step was good.
    Fine,
    /// The step was skipped; continue with the next batch.
    Skip,
    /// Too many in a row (the given number): the weights are broken, or the learning rate is far too high.
    StopInARow(u64),
    /// Too many in total (the given number): the data exceeds the budget.
    StopTotal(u64),
}

impl BadStepGuard {
    /// Allows `in_a_row` consecutive bad steps and `total` in the run; with 0, the first one stops.
    pub fn new(in_a_row: u64, total: u64) -> Self {
        BadStepGuard { max_in_a_row: in_a_row, max_total: total, in_a_row: 0, total: 0 }
    }

    /// Changes the limits; bad steps so far still count.
    pub fn set_limits(&mut self, in_a_row: u64, total: u64) {
        (self.max_in_a_row, self.max_total) = (in_a_row, total);
    }

    /// Adds a step.
    pub fn observe(&mut self, good: bool) -> BadStepVerdict {
        if good {
            self.in_a_row = 0;
            return BadStepVerdict::Fine;
        }
        self.in_a_row += 1;
        self.total += 1;
        // Checked first, because it says more about the cause.
        if self.in_a_row > self.max_in_a_row {
            BadStepVerdict::StopInARow(self.in_a_row)
        } else if self.total > self.max_total {
            BadStepVerdict::StopTotal(self.total)
        } else {
            BadStepVerdict::Skip
        }
    }

    /// Whether the last step was bad.
    pub fn last_was_bad(&self) -> bool {
        self.in_a_row > 0
    }

    /// Number of bad steps so far.
    pub fn total(&self) -> u64 {
        self.total
    }
}

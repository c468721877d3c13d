//! Steps whose loss or gradient is no number, or whose gradient is far too long.

use serde::{Deserialize, Serialize};

/// Counts bad steps against a budget. The engine has already left the weights as they were; here it is
/// decided whether to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadSteps {
    most_in_a_row: u64,
    most: u64,
    in_a_row: u64,
    total: u64,
}

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadVerdict {
    /// The step was good.
    Fine,
    /// The step changed nothing; go on with the next batch.
    Skip,
    /// So many in a row: the weights themselves are broken, or the learning rate far too high.
    StopInARow(u64),
    /// So many in all: the data is worse than the budget allows.
    StopTotal(u64),
}

impl BadSteps {
    /// Allows `in_a_row` bad steps one after the other and `total` in the run; with 0, the first stops.
    pub fn new(in_a_row: u64, total: u64) -> Self {
        BadSteps { most_in_a_row: in_a_row, most: total, in_a_row: 0, total: 0 }
    }

    /// Allows other numbers of bad steps from now on; those so far are counted.
    pub fn set_limits(&mut self, in_a_row: u64, total: u64) {
        (self.most_in_a_row, self.most) = (in_a_row, total);
    }

    /// Counts a step.
    pub fn observe(&mut self, good: bool) -> BadVerdict {
        if good {
            self.in_a_row = 0;
            return BadVerdict::Fine;
        }
        self.in_a_row += 1;
        self.total += 1;
        // In a row first: it says more about the cause.
        if self.in_a_row > self.most_in_a_row {
            BadVerdict::StopInARow(self.in_a_row)
        } else if self.total > self.most {
            BadVerdict::StopTotal(self.total)
        } else {
            BadVerdict::Skip
        }
    }

    /// Whether the last step was bad.
    pub fn is_bad_now(&self) -> bool {
        self.in_a_row > 0
    }

    /// Bad steps so far.
    pub fn total(&self) -> u64 {
        self.total
    }
}

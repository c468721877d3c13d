//! How many bad records a run bears before it stops and names them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batch::BatchInfo;
use crate::loader::{LoaderError, Notes};
use crate::problem::Problem;

/// Names in a message; the whole list is in the error.
const NAMED: usize = 10;

/// What is borne.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureBudget {
    /// Share of the records read that may be bad.
    pub rate: f64,
    /// Records read before the share is judged: one bad record among the first ten says nothing.
    pub probation: u64,
}

impl Default for FailureBudget {
    fn default() -> Self {
        FailureBudget { rate: 0.05, probation: 500 }
    }
}

/// The bad records met.
pub(super) struct Quarantine {
    budget: FailureBudget,
    bad: u64,
    read: u64,
    records: BTreeMap<u32, Problem>,
}

impl Quarantine {
    pub(super) fn new(budget: FailureBudget) -> Self {
        Quarantine { budget, bad: 0, read: 0, records: BTreeMap::new() }
    }

    /// Counts a batch, and tells of what was not known to be bad; an error when the budget is spent.
    pub(super) fn judge(&mut self, info: &BatchInfo, notes: &Notes) -> Result<(), LoaderError> {
        self.read += info.records_read;
        self.bad += info.substitutions.len() as u64;
        for bad in &info.substitutions {
            self.records.entry(bad.record).or_insert_with(|| {
                notes.tell(format!("{}; another clip stands in its place", bad.problem));
                bad.problem.clone()
            });
        }
        let spent = self.bad as f64 > self.budget.rate * self.read as f64;
        if spent && self.read >= self.budget.probation {
            return Err(LoaderError::BudgetSpent {
                step: info.step,
                bad: self.bad,
                read: self.read,
                rate: self.budget.rate,
                quarantined: self.problems(),
            });
        }
        Ok(())
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        self.records.values().cloned().collect()
    }
}

/// The first few, in words.
pub(super) fn named(problems: &[Problem]) -> String {
    let mut words: Vec<String> = problems.iter().take(NAMED).map(ToString::to_string).collect();
    if problems.len() > NAMED {
        words.push(format!("and {} more", problems.len() - NAMED));
    }
    words.join("; ")
}

//! How many bad records a run tolerates before it stops and reports them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batch::BatchInfo;
use crate::loader::{LoaderError, Notes};
use crate::problem::Problem;

/// Maximum number of problems in a message; the error holds all of them.
const MAX_LISTED: usize = 10;

/// Tolerance for bad records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureBudget {
    /// Fraction of the records read that may be bad.
    pub rate: f64,
    /// Number of records read before the rate is checked: one bad record among the first ten says nothing.
    pub probation: u64,
}

impl Default for FailureBudget {
    fn default() -> Self {
        FailureBudget { rate: 0.05, probation: 500 }
    }
}

/// Bad records found so far, counted against a [`FailureBudget`]. Used by the loader, and by sources of batches that sample
/// their records without one.
#[derive(Debug)]
pub struct Quarantine {
    budget: FailureBudget,
    bad: u64,
    read: u64,
    records: BTreeMap<u32, Problem>,
    remedy: &'static str,
}

impl Quarantine {
    /// Creates an empty list.
    pub fn new(budget: FailureBudget) -> Self {
        let remedy = "another clip is used instead";
        Quarantine { budget, bad: 0, read: 0, records: BTreeMap::new(), remedy }
    }

    /// Sets what the notes say about a bad record after its problem, where none is used instead.
    pub fn with_remedy(self, remedy: &'static str) -> Self {
        Quarantine { remedy, ..self }
    }

    /// Counts the `read` records of the batch of `step` and the `bad` ones among them, and writes one note for each record
    /// that was not known to be bad.
    ///
    /// # Errors
    /// [`LoaderError::BudgetSpent`] if more records were bad than the budget allows.
    pub fn count<'a>(
        &mut self,
        step: u64,
        read: u64,
        bad: impl IntoIterator<Item = (u32, &'a Problem)>,
        notes: &Notes,
    ) -> Result<(), LoaderError> {
        self.read += read;
        for (record, problem) in bad {
            self.bad += 1;
            self.records.entry(record).or_insert_with(|| {
                notes.push(format!("{problem}; {}", self.remedy));
                problem.clone()
            });
        }
        let spent = self.bad as f64 > self.budget.rate * self.read as f64;
        if spent && self.read >= self.budget.probation {
            return Err(LoaderError::BudgetSpent {
                step,
                bad: self.bad,
                read: self.read,
                rate: self.budget.rate,
                quarantined: self.problems(),
            });
        }
        Ok(())
    }

    /// Counts a batch of the loader.
    pub(super) fn count_batch(&mut self, info: &BatchInfo, notes: &Notes) -> Result<(), LoaderError> {
        let bad = info.substitutions.iter().map(|bad| (bad.record, &bad.problem));
        self.count(info.step, info.records_read, bad, notes)
    }

    /// Starts to count from zero. Known records stay, so that none is noted twice.
    pub fn restart(&mut self) {
        (self.bad, self.read) = (0, 0);
    }

    /// Returns the problems of bad records, each record once, by record number.
    pub fn problems(&self) -> Vec<Problem> {
        self.records.values().cloned().collect()
    }
}

/// Formats the first few problems, and how many more there are.
pub fn summary(problems: &[Problem]) -> String {
    let mut listed: Vec<String> = problems.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if problems.len() > MAX_LISTED {
        listed.push(format!("and {} more", problems.len() - MAX_LISTED));
    }
    listed.join("; ")
}

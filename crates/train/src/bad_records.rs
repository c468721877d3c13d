//! Bad records found in one pass over a known number of records, before the steps of a stage: each is left out of what is
//! computed and counted against `data.failure_budget`. Batches count theirs in a `Quarantine`.

use crate::error::TrainError;
use myxtts_data::loader::summary;
use myxtts_data::problem::Problem;
use myxtts_data::record::RecordError;

/// The bad records of one pass.
#[derive(Debug)]
pub struct BadRecords {
    doing: &'static str,
    /// Share of `total` that may be bad.
    rate: f64,
    total: usize,
    found: Vec<Problem>,
}

impl BadRecords {
    /// Starts without bad records, for a pass over `total` records. `doing` names what is computed from them.
    pub fn new(doing: &'static str, rate: f64, total: usize) -> BadRecords {
        BadRecords { doing, rate, total, found: Vec::new() }
    }

    /// Returns what was read; `None` if the record is bad, which is counted.
    ///
    /// # Errors
    /// [`TrainError::BadRecords`] as soon as more records are bad than the budget allows: later good ones cannot change that.
    /// [`TrainError::Record`] if the storage failed, since the record may be good.
    pub fn check<T>(&mut self, read: Result<T, RecordError>) -> Result<Option<T>, TrainError> {
        match read {
            Ok(read) => return Ok(Some(read)),
            Err(RecordError::Bad(problem)) => self.found.push(problem),
            Err(error) => return Err(error.into()),
        }
        if self.found.len() as f64 > self.rate * self.total as f64 {
            return Err(TrainError::BadRecords {
                doing: self.doing,
                bad: self.found.len(),
                total: self.total,
                rate: self.rate,
                problems: summary(&self.found),
            });
        }
        Ok(None)
    }

    /// A line that names the bad records with their reasons; `None` if there are none. `left_out_of` names what
    /// they are missing from.
    pub fn message(&self, left_out_of: &str) -> Option<String> {
        (!self.found.is_empty()).then(|| {
            let (bad, total) = (self.found.len(), self.total);
            format!(
                "{bad} of {total} records cannot be read and are left out of {left_out_of}: {}",
                summary(&self.found)
            )
        })
    }
}

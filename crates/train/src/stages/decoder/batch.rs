//! Batches of the decoder: rows sampled from the clips; a row that cannot be read is replaced by another.

use super::fill::{Inputs, RowBuffers};
use crate::error::TrainError;
use crate::stages::clips::{Clip, Clips, Row};
use myxtts_data::batch::BatchError;
use myxtts_data::loader::{LoaderError, Notes, Quarantine};
use myxtts_data::problem::Problem;
use myxtts_data::record::{RecordError, RecordSource};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of substitutes for a bad row, as in the loader.
const ATTEMPTS: u64 = 16;
/// Records of a row: the clip, and the clip its speaker is conditioned on.
const RECORDS_OF_ROW: u64 = 2;

/// Makes training batches. The rows of a batch depend only on its step and on which clips are bad.
pub(super) struct BatchSampler {
    pub clips: Arc<Clips>,
    pub source: Arc<dyn RecordSource>,
    pub inputs: Inputs,
    /// The rows of this replica.
    pub slice: Range<usize>,
    pub quarantine: Quarantine,
    pub notes: Notes,
}

impl BatchSampler {
    /// Writes the batch of a step. Returns the records in it, each once.
    pub fn fill(&mut self, step: u64, into: &mut [u8]) -> Result<Vec<u32>, TrainError> {
        let mut rows = RowBuffers::default();
        let (mut own, mut heard, mut bad) = (Vec::new(), Vec::new(), BadClips::default());
        for row in self.slice.clone() {
            let (clip, reference) = self.row(&mut rows, step, row, &mut bad)?;
            own.push(clip as i32);
            heard.push(reference as i32);
        }
        let read = self.slice.len() as u64 * RECORDS_OF_ROW;
        bad.count(&mut self.quarantine, step, read, &self.notes)?;
        self.inputs.write(&rows, into);
        Ok(crate::stages::clips(&[&own, &heard]))
    }

    /// Reads a row. Returns its record and the one of its reference.
    fn row(
        &self,
        rows: &mut RowBuffers,
        step: u64,
        row: usize,
        bad: &mut BadClips,
    ) -> Result<(u32, u32), TrainError> {
        let (settings, source) = (&self.clips.settings, &*self.source);
        bad.begin_row();
        for attempt in 0..=ATTEMPTS {
            let Row { clip, start, reference, draw } = self.clips.row(step, row, attempt);
            if bad.has(clip) || !bad.is_read(clip, rows.push_target(&self.clips, source, clip, start))? {
                continue;
            }
            for attempt in 0..=ATTEMPTS {
                let reference = match attempt {
                    0 => reference,
                    // In the end the clip itself, whose audio could be read.
                    ATTEMPTS => clip,
                    _ => self.clips.other_reference(clip, step, row, attempt),
                };
                if !bad.has(reference)
                    && bad.is_read(reference, rows.push_reference(settings, source, reference, draw))?
                {
                    return Ok((clip.record, reference.record));
                }
            }
            rows.pop_target(settings);
        }
        Err(bad.no_substitute(step, row))
    }
}

/// The bad clips of a batch.
#[derive(Default)]
pub(super) struct BadClips {
    found: Vec<(u32, Problem)>,
    /// Index of the first bad clip of the current row.
    row: usize,
}

impl BadClips {
    /// Starts a row. A clip that was bad in an earlier row is tried again: it counts once per row.
    pub fn begin_row(&mut self) {
        self.row = self.found.len();
    }

    /// Whether a clip was already found bad in this row.
    pub fn has(&self, clip: &Clip) -> bool {
        self.found[self.row..].iter().any(|(record, _)| *record == clip.record)
    }

    /// Whether a clip was read, or is bad; an error if the storage failed.
    pub fn is_read(&mut self, clip: &Clip, read: Result<(), RecordError>) -> Result<bool, TrainError> {
        match read {
            Ok(()) => Ok(true),
            Err(RecordError::Bad(problem)) => {
                self.found.push((clip.record, problem));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Counts them against the budget.
    pub fn count(
        &self,
        quarantine: &mut Quarantine,
        step: u64,
        read: u64,
        notes: &Notes,
    ) -> Result<(), TrainError> {
        let bad = self.found.iter().map(|(record, problem)| (*record, problem));
        Ok(quarantine.count(step, read, bad, notes)?)
    }

    /// The error of a row for which no clip could be read.
    pub fn no_substitute(&self, step: u64, row: usize) -> TrainError {
        let problems = self.found[self.row..].iter().map(|(_, problem)| problem.clone()).collect();
        let source = Box::new(BatchError::NoSubstitute { step, row: row as u32, problems });
        LoaderError::Batch { thread: "feed decoder".to_owned(), source }.into()
    }
}

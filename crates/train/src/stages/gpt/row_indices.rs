//! Records with row indices into a table of all mels, instead of their conditioning mels.

use myxtts_data::problem::Problem;
use myxtts_data::record::{CONDITIONING_MEL, Column, Dtype, Overlay, RecordError, RecordSource};
use std::sync::Arc;

/// The index of a mel, in place of the mel.
pub(super) const MEL_INDEX: Column = Column { name: CONDITIONING_MEL.name, dtype: Dtype::I32, width: 1 };

/// Records with row indices.
pub(super) struct RowIndices {
    base: Arc<dyn RecordSource>,
    columns: Vec<Column>,
    at: usize,
    /// Per record: the index of its first mel and their number, or its problem.
    found: Vec<(i32, Result<u32, Problem>)>,
    /// Index of the silent mel, after all others.
    pub silence: i32,
}

impl RowIndices {
    pub fn new(
        base: Arc<dyn RecordSource>,
        at: usize,
        found: Vec<(i32, Result<u32, Problem>)>,
        silence: i32,
    ) -> RowIndices {
        let mut columns = base.columns().to_vec();
        columns[at] = MEL_INDEX;
        RowIndices { base, columns, at, found, silence }
    }
}

impl Overlay for RowIndices {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.base.rows(record, column)
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if column != self.at {
            return self.base.read(record, column, first_row, out);
        }
        let (first, rows) = match &self.found[record] {
            (first, Ok(rows)) => (first + first_row as i32, *rows),
            (_, Err(problem)) => return Err(RecordError::Bad(problem.clone())),
        };
        let rows = rows.saturating_sub(first_row).min((out.len() / 4) as u32);
        for (to, index) in out.as_chunks_mut::<4>().0.iter_mut().zip(first..first + rows as i32) {
            *to = index.to_le_bytes();
        }
        Ok(rows)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

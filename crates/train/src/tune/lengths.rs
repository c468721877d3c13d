//! Records with the lengths of their future codes, to plan batches before there is a DVAE.

use crate::overlay::{CODES, position};
use myxtts_data::record::{Column, DVAE_MEL, Overlay, RecordError, RecordSource};
use myxtts_model::dvae::DvaeSizes;

/// Records with a column of codes that has lengths but no values.
pub struct Lengths<'a> {
    base: &'a dyn RecordSource,
    columns: Vec<Column>,
    mel: usize,
    dvae: DvaeSizes,
}

impl<'a> Lengths<'a> {
    /// The lengths that a DVAE of these sizes will produce.
    pub fn new(base: &'a dyn RecordSource, dvae: DvaeSizes) -> Lengths<'a> {
        let mut columns = base.columns().to_vec();
        columns.push(CODES);
        Lengths { base, columns, mel: position(base, DVAE_MEL), dvae }
    }
}

impl Overlay for Lengths<'_> {
    fn base(&self) -> &dyn RecordSource {
        self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        if column == self.columns.len() - 1 {
            self.dvae.codes_of(self.base.rows(record, self.mel) as usize) as u32
        } else {
            self.base.rows(record, column)
        }
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if column == self.columns.len() - 1 {
            out.fill(0);
            let left = Overlay::rows(self, record, column).saturating_sub(first_row);
            return Ok(left.min((out.len() / CODES.row_bytes()) as u32));
        }
        self.base.read(record, column, first_row, out)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

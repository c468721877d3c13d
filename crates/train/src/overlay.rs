//! Records with columns that their store lacks: codes and latents computed from them, in memory.

use myxtts_data::record::{Column, Dtype, Overlay, RecordError, RecordSource, WAVEFORM};
use std::sync::Arc;

/// The column of audio codes.
pub const CODES: Column = Column { name: "codes", dtype: Dtype::I32, width: 1 };

/// Records with their audio codes as one more column.
pub struct WithCodes {
    base: Arc<dyn RecordSource>,
    columns: Vec<Column>,
    codes: Vec<Vec<i32>>,
    fingerprint: [u8; 32],
}

impl WithCodes {
    /// Adds codes to `base`; `codes` has one list per record.
    pub fn new(base: Arc<dyn RecordSource>, codes: Vec<Vec<i32>>) -> WithCodes {
        assert_eq!(base.len(), codes.len(), "one list of codes per record");
        let mut columns = base.columns().to_vec();
        columns.push(CODES);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&base.fingerprint());
        for codes in &codes {
            hasher.update(&(codes.len() as u64).to_le_bytes());
            hasher.update(bytemuck::cast_slice(codes));
        }
        let fingerprint = *hasher.finalize().as_bytes();
        WithCodes { base, columns, codes, fingerprint }
    }

    /// The codes of all records, in their order.
    pub fn all(&self) -> &[Vec<i32>] {
        &self.codes
    }

    /// The codes of a record.
    pub fn codes(&self, record: usize) -> &[i32] {
        &self.codes[record]
    }
}

impl Overlay for WithCodes {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        if column == self.columns.len() - 1 {
            self.codes[record].len() as u32
        } else {
            self.base.rows(record, column)
        }
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if column < self.columns.len() - 1 {
            return self.base.read(record, column, first_row, out);
        }
        let codes = self.codes[record].get(first_row as usize..).unwrap_or(&[]);
        let count = codes.len().min(out.len() / 4);
        out[..count * 4].copy_from_slice(bytemuck::cast_slice(&codes[..count]));
        Ok(count as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// One whole column of a record, as f32.
pub fn floats(source: &dyn RecordSource, record: usize, column: Column) -> Result<Vec<f32>, RecordError> {
    let at = position(source, column);
    let mut data = vec![0f32; source.rows(record, at) as usize * column.width as usize];
    let rows = source.read(record, at, 0, bytemuck::cast_slice_mut(&mut data))?;
    data.truncate(rows as usize * column.width as usize);
    Ok(data)
}

/// One whole column of a record, as i32.
pub fn integers(source: &dyn RecordSource, record: usize, column: Column) -> Result<Vec<i32>, RecordError> {
    let at = position(source, column);
    let mut data = vec![0i32; source.rows(record, at) as usize * column.width as usize];
    let rows = source.read(record, at, 0, bytemuck::cast_slice_mut(&mut data))?;
    data.truncate(rows as usize * column.width as usize);
    Ok(data)
}

/// `count` samples of a record from `first` on, in -1 to 1; zeros after its end.
pub fn samples(
    source: &dyn RecordSource,
    record: usize,
    first: usize,
    count: usize,
) -> Result<Vec<f32>, RecordError> {
    let mut data = vec![0i16; count];
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    source.read(record, position(source, WAVEFORM), first, bytemuck::cast_slice_mut(&mut data))?;
    Ok(data.into_iter().map(|x| f32::from(x) / 32_768.0).collect())
}

/// Position of a column. Its presence was checked when the data was opened.
pub fn position(source: &dyn RecordSource, column: Column) -> usize {
    let found = source.columns().iter().position(|other| *other == column);
    found.unwrap_or_else(|| panic!("the records have no column {}", column.name))
}

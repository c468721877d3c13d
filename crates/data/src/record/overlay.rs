//! Records derived from another source: the same utterances, with some arrays replaced or added.

use super::{Column, RecordError, RecordSource};

/// A source that adds columns to another source or replaces some.
///
/// Utterances, speakers and languages are those of the base, which the blanket implementation below forwards. The methods
/// that define an overlay have no defaults, even if they only forward: a column declared by one method and forgotten in
/// another, or changed content under the old fingerprint, would be wrong data without an error.
///
/// Every implementor is a [`RecordSource`].
pub trait Overlay: Send + Sync {
    /// Returns the source underneath.
    fn base(&self) -> &dyn RecordSource;
    /// See [`RecordSource::columns`]. Columns of the base keep their positions.
    fn columns(&self) -> &[Column];
    /// See [`RecordSource::rows`].
    fn rows(&self, record: usize, column: usize) -> u32;
    /// See [`RecordSource::read`].
    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError>;
    /// See [`RecordSource::fingerprint`]. Return the base's if a run on one may resume on the other.
    fn fingerprint(&self) -> [u8; 32];
}

impl<T: Overlay> RecordSource for T {
    fn columns(&self) -> &[Column] {
        Overlay::columns(self)
    }

    fn len(&self) -> usize {
        self.base().len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        Overlay::rows(self, record, column)
    }

    fn speaker(&self, record: usize) -> u32 {
        self.base().speaker(record)
    }

    fn language(&self, record: usize) -> u32 {
        self.base().language(record)
    }

    fn speakers(&self) -> &[String] {
        self.base().speakers()
    }

    fn languages(&self) -> &[String] {
        self.base().languages()
    }

    fn id(&self, record: usize) -> String {
        self.base().id(record)
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        Overlay::read(self, record, column, first_row, out)
    }

    fn fingerprint(&self) -> [u8; 32] {
        Overlay::fingerprint(self)
    }
}

//! Records over those of another source: the same utterances, some of their arrays another's.

use super::{Column, RecordError, RecordSource};

/// Records of a source, of which something is different: a column more, or another in the place of one.
///
/// Which utterances there are, and who says them, is the base's, and is answered below for all. What makes an overlay has
/// no default, also for one that leaves it as it is: a column announced by one method and forgotten in another, or other
/// content under the old fingerprint, would be wrong data and no error.
///
/// Whoever implements this is a [`RecordSource`].
pub trait Overlay: Send + Sync {
    /// The records under it.
    fn base(&self) -> &dyn RecordSource;
    /// See [`RecordSource::columns`]. Those of the base keep their positions.
    fn columns(&self) -> &[Column];
    /// See [`RecordSource::rows`].
    fn rows(&self, record: usize, column: usize) -> u32;
    /// See [`RecordSource::read`].
    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError>;
    /// See [`RecordSource::fingerprint`]. The base's, where a run on one may go on with the other.
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

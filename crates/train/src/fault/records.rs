//! Records with a fault: each as it is, but later.

use super::Fault;
use myxtts_data::record::{Column, Overlay, RecordError, RecordSource, TOKENS};
use std::sync::Arc;

/// Records that are late.
pub(super) struct Records {
    pub base: Arc<dyn RecordSource>,
    pub fault: &'static Fault,
}

impl Overlay for Records {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        self.base.columns()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.base.rows(record, column)
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let read = self.base.read(record, column, first_row, out);
        // Of every row one array counts. What other threads read (codes, held-out records) is not of the pipeline.
        if self.fault.is_armed()
            && self.base.columns()[column] != TOKENS
            && let Some(worker) = loader_thread()
        {
            self.fault.reading(worker);
        }
        read
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

/// The number of the loader's thread this is; none where it is another.
fn loader_thread() -> Option<usize> {
    std::thread::current().name()?.strip_prefix("batch-")?.parse().ok()
}

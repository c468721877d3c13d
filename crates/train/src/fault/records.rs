//! Records with a fault: unchanged, but delayed.

use super::decoding::Decoding;
use super::{Fault, FaultKind, accumulated_delay};
use myxtts_data::record::{Column, Overlay, RecordError, RecordSource, TOKENS};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Delayed records.
pub(super) struct Records {
    pub base: Arc<dyn RecordSource>,
    pub fault: &'static Fault,
    /// The clip to decode, if slow decoding is the fault; or the error of writing it.
    pub decoding: OnceLock<Result<Decoding, String>>,
}

impl Records {
    /// Sleeps, or decodes if slow decoding is the fault.
    fn delay(&self, record: usize, time: Duration) -> Result<(), RecordError> {
        if self.fault.kind != FaultKind::SlowDecode {
            std::thread::sleep(time);
            return Ok(());
        }
        let decoding = self.decoding.get_or_init(|| Decoding::new().map_err(|error| error.to_string()));
        match decoding {
            Ok(decoding) => decoding.run_for(time),
            Err(why) => {
                let source = std::io::Error::other(format!("the fault cannot decode: {why}"));
                Err(RecordError::Io { id: self.base.id(record), source })
            }
        }
    }
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
        // One array per row counts. Reads of other threads (codes, validation records) are not part of the pipeline.
        if self.fault.is_armed()
            && self.base.columns()[column] != TOKENS
            && let Some(worker) = loader_thread()
            && let Some(time) = accumulated_delay(self.fault.delay(worker))
        {
            self.delay(record, time)?;
        }
        read
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

/// The index of this loader thread; `None` on another thread.
fn loader_thread() -> Option<usize> {
    std::thread::current().name()?.strip_prefix("batch-")?.parse().ok()
}

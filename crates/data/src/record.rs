//! The interface between the storage of records (or their computation on demand) and batching.
//!
//! A record is one utterance's arrays. Each array is a *column*: `[rows, width]`, row-major, little-endian, time along the
//! rows.
//!
//! | column | rows | width | dtype | content |
//! |---|---|---|---|---|
//! | [`TOKENS`] | tokens | 1 | i32 | text token ids, no start or stop |
//! | [`DVAE_MEL`] | frames | 80 | f32 | ln mel, 22,050 Hz, n_fft 1024, hop 256, not divided by mel_stats |
//! | [`CONDITIONING_MEL`] | frames | 80 | f32 | ln mel, 22,050 Hz, n_fft 2048, hop 256, not divided by mel_stats |
//! | [`SPEAKER_MEL`] | frames | 64 | f32 | ln mel, 16,000 Hz, hop 160, before instance norm |
//! | [`WAVEFORM`] | samples | 1 | i16 | 24,000 Hz mono: the target of the decoder stage |

mod joined;
mod overlay;

use std::cell::Cell;
use std::time::Duration;

use crate::problem::Problem;

pub use joined::{JoinError, JoinInput, JoinedSource, SharedSpeakers, joined_id};
pub use overlay::Overlay;

/// Element type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 16-bit integer, numpy `<i2`.
    I16,
    /// 32-bit integer, numpy `<i4`.
    I32,
    /// 32-bit float, numpy `<f4`.
    F32,
}

impl Dtype {
    /// Returns the size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            Dtype::I16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
        }
    }

    /// Returns numpy's name of the type.
    pub fn numpy(self) -> &'static str {
        match self {
            Dtype::I16 => "<i2",
            Dtype::I32 => "<i4",
            Dtype::F32 => "<f4",
        }
    }
}

/// One kind of array a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// Name, also part of file names: lower case, digits, underscore.
    pub name: &'static str,
    /// Element type.
    pub dtype: Dtype,
    /// Elements per row; a column of width 1 is stored as a 1-D array.
    pub width: u32,
}

impl Column {
    /// Returns the column of that name among [`COLUMNS`].
    pub fn from_name(name: &str) -> Option<Column> {
        COLUMNS.into_iter().find(|column| column.name == name)
    }

    /// Returns the size of one row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.dtype.size() * self.width as usize
    }
}

/// Text token ids.
pub const TOKENS: Column = Column { name: "tokens", dtype: Dtype::I32, width: 1 };
/// Log-mel of the DVAE front-end.
pub const DVAE_MEL: Column = Column { name: "dvae_mel", dtype: Dtype::F32, width: 80 };
/// Log-mel of the conditioning front-end.
pub const CONDITIONING_MEL: Column = Column { name: "conditioning_mel", dtype: Dtype::F32, width: 80 };
/// Log-mel of the speaker encoder's front-end.
pub const SPEAKER_MEL: Column = Column { name: "speaker_mel", dtype: Dtype::F32, width: 64 };
/// Audio samples at the decoder's rate.
pub const WAVEFORM: Column = Column { name: "waveform", dtype: Dtype::I16, width: 1 };

/// Every column that can be computed from an utterance.
pub const COLUMNS: [Column; 5] = [TOKENS, DVAE_MEL, CONDITIONING_MEL, SPEAKER_MEL, WAVEFORM];

/// A set of records with random access, shared by all worker threads.
///
/// Implemented by the cache (arrays mapped from disk) and by runtime mode (arrays computed on demand). A source that wraps
/// another and changes part of it is an [`Overlay`].
pub trait RecordSource: Send + Sync {
    /// Returns the columns of every record; the other methods refer to them by position in this slice.
    fn columns(&self) -> &[Column];
    /// Returns the number of records.
    fn len(&self) -> usize;
    /// Returns whether there are no records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the number of rows of a column of a record without touching its data; an upper bound of what can be read.
    fn rows(&self, record: usize, column: usize) -> u32;
    /// Returns the number of the record's speaker in `0..speakers().len()`.
    fn speaker(&self, record: usize) -> u32;
    /// Returns the number of the record's language in `0..languages().len()`.
    fn language(&self, record: usize) -> u32;
    /// Returns the speaker names by number.
    fn speakers(&self) -> &[String];
    /// Returns the language codes by number.
    fn languages(&self) -> &[String];
    /// Returns the utterance's id.
    fn id(&self, record: usize) -> String;
    /// Copies rows from `first_row` on into `out`, as many as exist and fit, and returns their number. The array's checksum
    /// is verified first. `out.len()` is a multiple of the row size.
    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError>;
    /// Returns the identity of the content: equal fingerprints mean the same records in the same order.
    fn fingerprint(&self) -> [u8; 32];
}

thread_local! {
    static COMPUTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Called by a source that computes records on demand: adds `time` to the computing time of this thread's reads.
pub(crate) fn note_computing(time: Duration) {
    COMPUTED.set(COMPUTED.get() + time);
}

/// Returns the time noted on this thread since the last call.
pub(crate) fn take_computing() -> Duration {
    COMPUTED.take()
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The record itself is bad: it is counted and replaced.
    #[error("{0}")]
    Bad(Problem),
    /// The storage failed; the record may be good.
    #[error("reading record {id}: {source}")]
    Io {
        /// Id of the utterance.
        id: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

//! The contract between what is stored (or computed on demand) and what makes batches of it.
//!
//! A record is one utterance's arrays. Each array is a *column*: `[rows, width]`, row-major,
//! little-endian, time along the rows.
//!
//! | column | rows | width | dtype | content |
//! |---|---|---|---|---|
//! | [`TOKENS`] | tokens | 1 | i32 | text token ids, no start or stop |
//! | [`DVAE_MEL`] | frames | 80 | f32 | ln mel, 22,050 Hz, n_fft 1024, hop 256, not divided by mel_stats |
//! | [`CONDITIONING_MEL`] | frames | 80 | f32 | ln mel, 22,050 Hz, n_fft 2048, hop 256, not divided by mel_stats |
//! | [`SPEAKER_MEL`] | frames | 64 | f32 | ln mel, 16,000 Hz, hop 160, before instance norm |
//! | [`WAVEFORM`] | samples | 1 | i16 | 24,000 Hz mono: what the decoder stage learns to produce |

mod joined;
mod overlay;

use std::cell::Cell;
use std::time::Duration;

use crate::problem::Problem;

pub use joined::{JoinError, Joined, Joining, Shared, joined_id};
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
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::I16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
        }
    }

    /// numpy's name of it.
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
    /// Its name, also part of file names: lower case, digits, underscore.
    pub name: &'static str,
    /// Element type.
    pub dtype: Dtype,
    /// Elements of a row; a column of width 1 is stored as a 1-D array.
    pub width: u32,
}

impl Column {
    /// The column of that name, among those that features can be made of.
    pub fn named(name: &str) -> Option<Column> {
        COLUMNS.into_iter().find(|column| column.name == name)
    }

    /// Bytes of one row.
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
/// The sound itself at the decoder's rate.
pub const WAVEFORM: Column = Column { name: "waveform", dtype: Dtype::I16, width: 1 };

/// Every column that can be computed of an utterance.
pub const COLUMNS: [Column; 5] = [TOKENS, DVAE_MEL, CONDITIONING_MEL, SPEAKER_MEL, WAVEFORM];

/// A set of records with random access, shared by all worker threads.
///
/// Implemented by the cache (arrays mapped from disk) and by runtime mode (arrays computed on demand). Whatever stands over
/// another source and changes a part of it is an [`Overlay`].
pub trait RecordSource: Send + Sync {
    /// The columns every record has; the other methods name them by position in this slice.
    fn columns(&self) -> &[Column];
    /// How many records there are.
    fn len(&self) -> usize;
    /// True where there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Rows of a column of a record, without touching its data; at least as many as can be read.
    fn rows(&self, record: usize, column: usize) -> u32;
    /// Number of the record's speaker in `0..speakers().len()`.
    fn speaker(&self, record: usize) -> u32;
    /// Number of the record's language in `0..languages().len()`.
    fn language(&self, record: usize) -> u32;
    /// Speaker names by number.
    fn speakers(&self) -> &[String];
    /// Language codes by number.
    fn languages(&self) -> &[String];
    /// The utterance's id.
    fn id(&self, record: usize) -> String;
    /// Copies rows from `first_row` on into `out`, as many as there are and as fit, and returns how
    /// many. The array's checksum is checked first. `out.len()` is a multiple of the row's bytes.
    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError>;
    /// Identity of the content: the same fingerprint means the same records in the same order.
    fn fingerprint(&self) -> [u8; 32];
}

thread_local! {
    static COMPUTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For a source that computes records when they are read: so much of the reading was that.
pub fn note_computing(time: Duration) {
    COMPUTED.set(COMPUTED.get() + time);
}

/// What this thread has noted since it was last asked.
pub(crate) fn take_computing() -> Duration {
    COMPUTED.take()
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The record itself is bad: data, to be counted and replaced.
    #[error("{0}")]
    Bad(Problem),
    /// The storage failed: not the record's fault.
    #[error("reading record {id}: {source}")]
    Io {
        /// The utterance.
        id: String,
        /// What the system said.
        source: std::io::Error,
    },
}

//! The interface between the store and feature extraction.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fingerprint::Hash;
use crate::audio::SegmentReader;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::Column;
use crate::utterance::Utterance;

/// Computes the arrays of an utterance. Called from many threads at once.
pub trait Featurizer: Send + Sync {
    /// Returns the columns of the arrays it computes.
    fn columns(&self) -> &[Column];

    /// Returns a hash of everything that shapes the content: settings, vocabulary, cleaner, versions. Equal fingerprints
    /// guarantee equal bytes for equal inputs.
    fn fingerprint(&self) -> Hash;

    /// Computes the arrays of an utterance from the bytes of its audio file.
    fn compute(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Features, Problem>;

    /// Returns the number of rows of each column, or the problem that [`Self::compute`] would return. Runtime mode calls
    /// this for every utterance when it opens, so an implementation should do no more than that needs; this default computes
    /// everything.
    fn measure(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Measured, Problem> {
        let features = compute(self, utterance, source_bytes)?;
        let rows = features.arrays.iter().zip(self.columns());
        let rows = rows.map(|(array, column)| (array.len() / column.row_bytes().max(1)) as u32).collect();
        Ok(Measured { rows, audio: None })
    }

    /// Computes one array of an utterance; this default computes all of them.
    fn column(&self, utterance: &Utterance, source_bytes: &[u8], column: usize) -> Result<Vec<u8>, Problem> {
        Ok(compute(self, utterance, source_bytes)?.arrays.swap_remove(column))
    }

    /// Computes rows of one array from `first_row` on, as many as exist and fit into `out`, and returns their number. It
    /// decodes only the audio these rows need and gives the same bits as decoding all of it. `None` if that is not
    /// supported: the caller then requests the whole array.
    fn rows(
        &self,
        utterance: &Utterance,
        measured: &Measured,
        column: usize,
        first_row: u32,
        out: &mut [u8],
    ) -> Result<Option<u32>, Problem> {
        let _ = (utterance, measured, column, first_row, out);
        Ok(None)
    }
}

/// What is known of an utterance before its arrays are computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Number of rows of each column.
    pub rows: Vec<u32>,
    /// Location of its audio; `None` if the file cannot be read in pieces.
    pub audio: Option<AudioLocation>,
}

/// Location of an utterance's audio, for reading a piece of it.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioLocation {
    /// Its samples in the file.
    pub pieces: SegmentReader,
    /// Sample range that remains after trimming silence at both ends.
    pub span: Range<usize>,
    /// Factor the samples are multiplied by; `None` if they are not scaled.
    pub gain: Option<f32>,
}

/// The computed arrays of an utterance.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// One array per column, in column order: rows concatenated, little-endian.
    pub arrays: Vec<Vec<u8>>,
    /// Length in seconds of the audio the arrays were computed from.
    pub seconds: f32,
}

impl Features {
    /// Returns the size of all arrays in bytes.
    pub fn bytes(&self) -> usize {
        self.arrays.iter().map(Vec::len).sum()
    }
}

/// Computes all arrays. A panic, or arrays of the wrong shape, become a problem of this utterance instead of ending the run.
pub(super) fn compute<F: Featurizer + ?Sized>(
    featurizer: &F,
    utterance: &Utterance,
    source_bytes: &[u8],
) -> Result<Features, Problem> {
    let features = catch_panic(utterance, || featurizer.compute(utterance, source_bytes))?;
    match shape_error(featurizer.columns(), &features) {
        None => Ok(features),
        Some(what) => Err(internal_problem(utterance, &what)),
    }
}

/// Measures an utterance, with the same protection.
pub(super) fn measure(
    featurizer: &dyn Featurizer,
    utterance: &Utterance,
    source_bytes: &[u8],
) -> Result<Measured, Problem> {
    let measured = catch_panic(utterance, || featurizer.measure(utterance, source_bytes))?;
    let (given, wanted) = (measured.rows.len(), featurizer.columns().len());
    if given == wanted {
        Ok(measured)
    } else {
        Err(internal_problem(utterance, &format!("{given} lengths for {wanted} columns")))
    }
}

/// Computes one array, with the same protection.
pub(super) fn column(
    featurizer: &dyn Featurizer,
    utterance: &Utterance,
    source_bytes: &[u8],
    column: usize,
) -> Result<Vec<u8>, Problem> {
    let array = catch_panic(utterance, || featurizer.column(utterance, source_bytes, column))?;
    match row_error(&featurizer.columns()[column], &array) {
        None => Ok(array),
        Some(what) => Err(internal_problem(utterance, &what)),
    }
}

/// Turns a panic into a problem of this utterance.
pub(super) fn catch_panic<T>(
    utterance: &Utterance,
    act: impl FnOnce() -> Result<T, Problem>,
) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        Err(internal_problem(utterance, &format!("a panic: {}", panic_message(panic.as_ref()))))
    })
}

fn shape_error(columns: &[Column], features: &Features) -> Option<String> {
    if features.arrays.len() != columns.len() {
        return Some(format!("{} arrays for {} columns", features.arrays.len(), columns.len()));
    }
    if !(features.seconds.is_finite() && features.seconds >= 0.0) {
        return Some(format!("a length of {} seconds", features.seconds));
    }
    columns.iter().zip(&features.arrays).find_map(|(column, array)| row_error(column, array))
}

fn row_error(column: &Column, array: &[u8]) -> Option<String> {
    let row = column.row_bytes();
    (row == 0 || !array.len().is_multiple_of(row) || array.len() / row > u32::MAX as usize)
        .then(|| format!("{} bytes of {} in rows of {row}", array.len(), column.name))
}

fn internal_problem(utterance: &Utterance, what: &str) -> Problem {
    Problem {
        kind: ProblemKind::Corrupt,
        severity: Severity::Error,
        id: Some(utterance.id.clone()),
        origin: utterance.origin.clone(),
        detail: format!("internal error while computing its features: {what}; please report it"),
    }
}

/// Returns the message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

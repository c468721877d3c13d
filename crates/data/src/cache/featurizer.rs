//! The seam between the store and the arithmetic: whatever turns an utterance into arrays.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fingerprint::Hash;
use crate::audio::Pieces;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::Column;
use crate::utterance::Utterance;

/// Makes the arrays of an utterance. Called from many threads at once.
pub trait Featurizer: Send + Sync {
    /// The arrays it makes.
    fn columns(&self) -> &[Column];

    /// Identity of everything that shapes the content: settings, vocabulary, cleaner, versions.
    /// Equal fingerprints promise equal bytes for equal inputs.
    fn fingerprint(&self) -> Hash;

    /// The arrays of an utterance, from the bytes of its sound file.
    fn compute(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Features, Problem>;

    /// How many rows each column will have, or why there will be none: exactly what [`Self::compute`] answers. Runtime
    /// mode asks this of every utterance when it opens, so it should do no more than that needs; this default computes
    /// everything.
    fn measure(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Measured, Problem> {
        let features = compute(self, utterance, source_bytes)?;
        let rows = features.arrays.iter().zip(self.columns());
        let rows = rows.map(|(array, column)| (array.len() / column.row_bytes().max(1)) as u32).collect();
        Ok(Measured { rows, sound: None })
    }

    /// One array of an utterance; this default computes all of them.
    fn column(&self, utterance: &Utterance, source_bytes: &[u8], column: usize) -> Result<Vec<u8>, Problem> {
        Ok(compute(self, utterance, source_bytes)?.arrays.swap_remove(column))
    }

    /// Rows of one array from `first_row` on, as many as there are and as fit into `out`, of as little of the sound as
    /// they need, to the same bits as all of it would give. None where that cannot be: then the whole array is asked for.
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
    /// Rows of each column.
    pub rows: Vec<u32>,
    /// Its sound, where it can be read in pieces.
    pub sound: Option<Sounding>,
}

/// Where the sound of an utterance is, for whoever reads a piece of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sounding {
    /// Its samples in the file.
    pub pieces: Pieces,
    /// Those between its silent ends.
    pub span: Range<usize>,
    /// What they are multiplied by.
    pub gain: Option<f32>,
}

/// What an utterance became.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// One array per column, in their order: rows end to end, little-endian.
    pub arrays: Vec<Vec<u8>>,
    /// Length of the sound the arrays were made of.
    pub seconds: f32,
}

impl Features {
    /// Bytes of all arrays.
    pub fn bytes(&self) -> usize {
        self.arrays.iter().map(Vec::len).sum()
    }
}

/// Computes with a net below: a panic, or arrays that do not have the promised form, are a problem
/// of this utterance and not the end of the run.
pub(super) fn compute<F: Featurizer + ?Sized>(
    featurizer: &F,
    utterance: &Utterance,
    source_bytes: &[u8],
) -> Result<Features, Problem> {
    let features = caught(utterance, || featurizer.compute(utterance, source_bytes))?;
    match misshapen(featurizer.columns(), &features) {
        None => Ok(features),
        Some(what) => Err(internal(utterance, &what)),
    }
}

/// Asks for the lengths with the same net below.
pub(super) fn measure(
    featurizer: &dyn Featurizer,
    utterance: &Utterance,
    source_bytes: &[u8],
) -> Result<Measured, Problem> {
    let measured = caught(utterance, || featurizer.measure(utterance, source_bytes))?;
    let (given, wanted) = (measured.rows.len(), featurizer.columns().len());
    if given == wanted {
        Ok(measured)
    } else {
        Err(internal(utterance, &format!("{given} lengths for {wanted} columns")))
    }
}

/// Asks for an array with the same net below.
pub(super) fn column(
    featurizer: &dyn Featurizer,
    utterance: &Utterance,
    source_bytes: &[u8],
    column: usize,
) -> Result<Vec<u8>, Problem> {
    let array = caught(utterance, || featurizer.column(utterance, source_bytes, column))?;
    match ragged(&featurizer.columns()[column], &array) {
        None => Ok(array),
        Some(what) => Err(internal(utterance, &what)),
    }
}

/// A panic is a problem of this utterance.
pub(super) fn caught<T>(
    utterance: &Utterance,
    act: impl FnOnce() -> Result<T, Problem>,
) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|panic| Err(internal(utterance, &format!("a panic: {}", words(panic.as_ref())))))
}

fn misshapen(columns: &[Column], features: &Features) -> Option<String> {
    if features.arrays.len() != columns.len() {
        return Some(format!("{} arrays for {} columns", features.arrays.len(), columns.len()));
    }
    if !(features.seconds.is_finite() && features.seconds >= 0.0) {
        return Some(format!("a length of {} seconds", features.seconds));
    }
    columns.iter().zip(&features.arrays).find_map(|(column, array)| ragged(column, array))
}

fn ragged(column: &Column, array: &[u8]) -> Option<String> {
    let row = column.row_bytes();
    (row == 0 || !array.len().is_multiple_of(row) || array.len() / row > u32::MAX as usize)
        .then(|| format!("{} bytes of {} in rows of {row}", array.len(), column.name))
}

fn internal(utterance: &Utterance, what: &str) -> Problem {
    Problem {
        kind: ProblemKind::Corrupt,
        severity: Severity::Error,
        id: Some(utterance.id.clone()),
        origin: utterance.origin.clone(),
        detail: format!("internal error while computing its features: {what}; please report it"),
    }
}

/// What a panic said.
pub(super) fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}

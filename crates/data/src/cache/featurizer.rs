//! The seam between the store and the arithmetic: whatever turns an utterance into arrays.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fingerprint::Hash;
use super::source;
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

    /// At most how many rows each column will have. Runtime mode asks this of every utterance when
    /// it opens, so it should read no more than a header; this default computes everything.
    fn bound(&self, utterance: &Utterance) -> Result<Vec<u32>, Problem> {
        let (source, _) = source::read(&utterance.audio);
        let bytes = source.map_err(|failure| failure.problem(utterance))?;
        let features = compute(self, utterance, &bytes)?;
        Ok(features
            .arrays
            .iter()
            .zip(self.columns())
            .map(|(array, column)| (array.len() / column.row_bytes().max(1)) as u32)
            .collect())
    }
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
    let outcome = catch_unwind(AssertUnwindSafe(|| featurizer.compute(utterance, source_bytes)));
    let features = match outcome {
        Ok(result) => result?,
        Err(panic) => return Err(internal(utterance, &format!("a panic: {}", words(panic.as_ref())))),
    };
    match misshapen(featurizer.columns(), &features) {
        None => Ok(features),
        Some(what) => Err(internal(utterance, &what)),
    }
}

/// Asks for the lengths with the same net below.
pub(super) fn bound(featurizer: &dyn Featurizer, utterance: &Utterance) -> Result<Vec<u32>, Problem> {
    let outcome = catch_unwind(AssertUnwindSafe(|| featurizer.bound(utterance)));
    match outcome {
        Ok(Ok(bounds)) if bounds.len() != featurizer.columns().len() => Err(internal(
            utterance,
            &format!("{} lengths for {} columns", bounds.len(), featurizer.columns().len()),
        )),
        Ok(result) => result,
        Err(panic) => Err(internal(utterance, &format!("a panic: {}", words(panic.as_ref())))),
    }
}

fn misshapen(columns: &[Column], features: &Features) -> Option<String> {
    if features.arrays.len() != columns.len() {
        return Some(format!("{} arrays for {} columns", features.arrays.len(), columns.len()));
    }
    if !(features.seconds.is_finite() && features.seconds >= 0.0) {
        return Some(format!("a length of {} seconds", features.seconds));
    }
    columns.iter().zip(&features.arrays).find_map(|(column, array)| {
        let row = column.row_bytes();
        (row == 0 || array.len() % row != 0 || array.len() / row > u32::MAX as usize)
            .then(|| format!("{} bytes of {} in rows of {row}", array.len(), column.name))
    })
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

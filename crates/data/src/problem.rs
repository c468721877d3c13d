//! What can be wrong with an utterance. A bad input item is data: it is reported and counted, never a panic.

use serde::{Deserialize, Serialize};

use crate::utterance::Origin;

/// Kinds of problems, as counted and as serialised (snake case).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A metadata line lacks columns that its layout needs.
    MalformedLine,
    /// The audio file does not exist.
    Missing,
    /// The audio file cannot be opened or has an unsupported format.
    Unreadable,
    /// The audio file is shorter than its header says.
    Truncated,
    /// Decoding gave another length than the header or the metadata declares.
    LengthDiffers,
    /// The decoded data are not audio: bad checksum, NaN or Inf samples.
    Corrupt,
    /// Samples pinned at full scale.
    Clipped,
    /// The audio is silent.
    Silent,
    /// Shorter than the shortest clip that can be trained on.
    TooShort,
    /// Longer than the longest clip that can be trained on.
    TooLong,
    /// No transcript, or none left after cleaning.
    EmptyText,
    /// More tokens than the model accepts.
    TextTooLong,
    /// Characters for which the tokenizer has no token.
    UnknownCharacters,
    /// The cleaner does not support this text in this language.
    UnspeakableText,
    /// The id was declared before; the first declaration is used.
    DuplicateId,
    /// Far more text than anyone could speak in that time: transcript and audio do not match.
    TextTooLongForAudio,
    /// Far less text than audio of that length holds: part of it is not transcribed.
    TextTooShortForAudio,
    /// The same audio, sample for sample, under another id.
    DuplicateAudio,
    /// The same sentence by the same speaker many times over.
    RepeatedText,
    /// The checksum of a stored record does not match.
    DamagedRecord,
}

/// Whether the utterance can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Usable, but should be reviewed.
    Warning,
    /// Not usable: counted against the failure budget and left out of training.
    Error,
}

/// One thing that is wrong with one utterance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Category, for counting and filtering.
    pub kind: ProblemKind,
    /// Whether the utterance is usable all the same.
    pub severity: Severity,
    /// Affected utterance; `None` if the problem belongs to none.
    pub id: Option<String>,
    /// Where it was declared or found.
    pub origin: Origin,
    /// What was found, with numbers, and what to do: one sentence for people.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{id} ({}): {}", self.origin, self.detail),
            None => write!(f, "{}: {}", self.origin, self.detail),
        }
    }
}

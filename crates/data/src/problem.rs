//! What can be wrong with an utterance. A bad input item is data: named, counted, never a panic.

use serde::{Deserialize, Serialize};

use crate::utterance::Origin;

/// The kinds of trouble, as they are counted and as machines read them (snake case).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A line of metadata that does not have the columns its layout needs.
    MalformedLine,
    /// The sound file does not exist.
    Missing,
    /// The sound file cannot be opened or is in no format we read.
    Unreadable,
    /// The sound file ends before its header says.
    Truncated,
    /// Decoding worked, but gave another length than the header or the metadata declares.
    LengthDiffers,
    /// The sound decodes to something that is not audio: bad checksum, not-a-number samples.
    Corrupt,
    /// Samples pinned at full scale.
    Clipped,
    /// Nothing is to be heard.
    Silent,
    /// Shorter than the shortest clip that can be trained on.
    TooShort,
    /// Longer than the longest clip that can be trained on.
    TooLong,
    /// No transcript, or none left after cleaning.
    EmptyText,
    /// More tokens than the model reads.
    TextTooLong,
    /// Characters for which the tokenizer has no piece.
    UnknownCharacters,
    /// The cleaner cannot read this text in this language.
    UnspeakableText,
    /// The id was declared before; the first one counts.
    DuplicateId,
    /// Far more text than anyone could say in that time: transcript and sound do not belong together.
    TextTooLongForAudio,
    /// Far less text than such a long sound holds: part of it is not written down.
    TextTooShortForAudio,
    /// The same sound, sample for sample, under another id.
    DuplicateAudio,
    /// The same sentence by the same speaker many times over.
    RepeatedText,
    /// A stored record whose checksum does not fit.
    DamagedRecord,
}

/// Whether the utterance can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Usable; worth a look.
    Warning,
    /// Not usable: counted against the failure budget and left out of training.
    Error,
}

/// One thing that is wrong with one utterance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind of trouble.
    pub kind: ProblemKind,
    /// Can it be used all the same.
    pub severity: Severity,
    /// The utterance, where the trouble belongs to one.
    pub id: Option<String>,
    /// Where it was declared or found.
    pub origin: Origin,
    /// What was found, with numbers, and what to do: one sentence for a person.
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

//! Why nothing was generated.

use myxtts_tensor::Error;

/// Reasons why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The device failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The text is empty.
    #[error("the text has no tokens")]
    NoText,
    /// The text is too long.
    #[error("the text has {found} tokens, but the model accepts at most {most}: split it into sentences")]
    TextTooLong {
        /// Tokens of the text.
        found: usize,
        /// Maximum tokens.
        most: usize,
    },
    /// A token is outside the vocabulary.
    #[error("the text has token {id}, but the model has 0 to {last}: does the vocabulary belong to another model?", last = .vocabulary - 1)]
    Token {
        /// The token.
        id: i32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The recording has too many codes.
    #[error(
        "the recording has {found} codes, but the model accepts at most {most}: split it into shorter ones"
    )]
    CodesTooLong {
        /// Codes of the recording.
        found: usize,
        /// Maximum codes.
        most: usize,
    },
    /// A code is outside the codebook.
    #[error("the recording has code {id}, but the model has 0 to {last}: does the DVAE belong to another model?", last = .vocabulary - 1)]
    Code {
        /// The code.
        id: i32,
        /// Number of codes.
        vocabulary: usize,
    },
    /// The voice was encoded by another model.
    #[error("the voice has {found} values, but this model expects {wanted}: it was encoded by another model")]
    Voice {
        /// Values of the voice.
        found: usize,
        /// Values this model expects.
        wanted: usize,
    },
    /// The reference is shorter than one mel frame.
    #[error("the reference is shorter than one mel frame")]
    NoFrames,
    /// Text and codes cannot form a sequence.
    #[error(transparent)]
    Sequence(#[from] crate::sequence::SequenceError),
    /// The model's outputs are NaN or Inf.
    #[error("the model's outputs after {codes} codes are NaN or Inf: its weights are damaged")]
    NotNumbers {
        /// Codes generated before.
        codes: usize,
    },
    /// All slots are in use.
    #[error("all {slots} slots are in use: release one, or create more")]
    NoFreeSlot {
        /// Number of slots.
        slots: usize,
    },
    /// The slot was released.
    #[error("this slot was released")]
    ReleasedSlot,
    /// Guidance was requested from slots created without it.
    #[error("these slots do not support guidance: create them with `guided`")]
    NotGuided,
}

//! The error type of the crate.

use crate::voices::VoiceError;
use crate::weight_source::WeightSource;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_model::GenerateError;
use myxtts_model::shapes::ShapeError;
use myxtts_model::weights::WeightsError;
use std::path::PathBuf;

/// Error of opening a model, encoding a voice or speaking a text.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// A recording cannot be read.
    #[error(transparent)]
    Audio(#[from] myxtts_data::audio::AudioError),
    /// The model's weights cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A part of the model has tensors of unsupported shapes.
    #[error("{}: {error}", path.display())]
    Shape {
        /// The model folder.
        path: PathBuf,
        /// The unsupported shape.
        error: ShapeError,
    },
    /// The parts of the model do not fit together, or some are missing.
    #[error("{} cannot speak: {what}", path.display())]
    Unfit {
        /// The model folder.
        path: PathBuf,
        /// What is missing or does not fit.
        what: String,
    },
    /// The device failed.
    #[error(transparent)]
    Engine(#[from] myxtts_tensor::Error),
    /// Code generation failed.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The text cannot be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A reference clip is silent.
    #[error("reference {number} of {count} is silent: give a recording with someone speaking")]
    Silent {
        /// Number of the clip, from 1.
        number: usize,
        /// Number of clips.
        count: usize,
    },
    /// A reference file is silent.
    #[error("{}: the recording is silent: give one with someone speaking", path.display())]
    SilentReference {
        /// The file.
        path: PathBuf,
    },
    /// A reference file does not exist.
    #[error("there is no recording {}", path.display())]
    NoReference {
        /// The path.
        path: PathBuf,
    },
    /// A reference file is too short.
    #[error(
        "{}: it is {seconds:.2} s long; at least {shortest} s are needed, and 6 s or more make a good voice", path.display()
    )]
    ShortReference {
        /// The file.
        path: PathBuf,
        /// Seconds found.
        seconds: f64,
        /// Seconds needed.
        shortest: f64,
    },
    /// A reference is a folder.
    #[error("{} is a folder: list the recordings in it instead", path.display())]
    ReferenceIsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A stored voice or a mix cannot be used.
    #[error(transparent)]
    Voice(#[from] VoiceError),
    /// The reference clips are too short in total.
    #[error(
        "the reference is {seconds:.2} s long; at least {shortest} s are needed, and 6 s or more make a good voice"
    )]
    TooShort {
        /// Seconds found.
        seconds: f64,
        /// Seconds needed.
        shortest: f64,
    },
    /// A voice without a speaker vector that fits the decoder.
    #[error(
        "the voice has no speaker vector of size {wanted}: add it again from its recordings with this model"
    )]
    Speaker {
        /// Size of the decoder's speaker vector.
        wanted: usize,
    },
    /// None of the text's letters are in the vocabulary.
    #[error(
        "cannot speak {}: the model's vocabulary has none of the characters {}; its languages are {}",
        beginning(text),
        beginning(unknown),
        languages.join(", ")
    )]
    UnknownLetters {
        /// The cleaned text.
        text: String,
        /// Characters missing in the vocabulary, each once.
        unknown: String,
        /// Languages of the model.
        languages: Vec<String>,
    },
    /// The text has no letter and no digit.
    #[error("there is nothing to say in {}: after cleaning it has no letter and no digit", beginning(text))]
    NothingToSay {
        /// The text.
        text: String,
    },
}

/// Number of characters of a text that a message shows.
const SHOWN: usize = 60;

/// Quotes the beginning of a text for a message, with terminal control characters escaped.
fn beginning(text: &str) -> String {
    let is_control = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::from("\"");
    for c in text.chars().take(SHOWN) {
        match c {
            c if is_control(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown + if text.chars().nth(SHOWN).is_some() { "…\"" } else { "\"" }
}

impl SpeakError {
    pub(crate) fn unfit(source: &dyn WeightSource, what: &str) -> SpeakError {
        SpeakError::Unfit { path: source.path().to_owned(), what: what.to_owned() }
    }

    pub(crate) fn shape(source: &dyn WeightSource) -> impl FnOnce(ShapeError) -> SpeakError {
        let path = source.path().to_owned();
        move |error| SpeakError::Shape { path, error }
    }
}

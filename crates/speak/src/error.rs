//! Why nothing was said.

use crate::source::Source;
use crate::voices::VoiceError;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_model::GenerateError;
use myxtts_model::shapes::ShapeError;
use myxtts_model::weights::WeightsError;
use std::path::PathBuf;

/// Why nothing was said.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// A recording cannot be read.
    #[error(transparent)]
    Audio(#[from] myxtts_data::audio::AudioError),
    /// The folder cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A part has shapes that no such network has.
    #[error("{}: {error}", path.display())]
    Shape {
        /// The folder.
        path: PathBuf,
        /// What was found.
        error: ShapeError,
    },
    /// The parts of a folder do not make a voice.
    #[error("{} cannot speak: {what}", path.display())]
    Unfit {
        /// The folder.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The device failed.
    #[error(transparent)]
    Engine(#[from] myxtts_tensor::Error),
    /// The GPT did not speak.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The text could not be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A reference without sound.
    #[error("reference {number} of {count} is silent: give a recording with someone speaking")]
    Silent {
        /// Which.
        number: usize,
        /// Of how many.
        count: usize,
    },
    /// A recording that cannot be told a voice by, by its name.
    #[error("{}: nothing is to be heard in it: give a recording with someone speaking", path.display())]
    SilentReference {
        /// The file.
        path: PathBuf,
    },
    /// A recording that is too short, by its name.
    #[error(
        "{}: it has {seconds:.2} s and at least {shortest} s are needed; six or more make a good voice", path.display()
    )]
    ShortReference {
        /// The file.
        path: PathBuf,
        /// What there is.
        seconds: f64,
        /// What is needed.
        shortest: f64,
    },
    /// A folder where a recording was expected.
    #[error("{}: it is a folder: name the recordings in it", path.display())]
    ReferenceIsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A stored voice or a mix.
    #[error(transparent)]
    Voice(#[from] VoiceError),
    /// References that are too short.
    #[error(
        "the reference has {seconds:.2} seconds; at least {shortest} are needed, and six or more make a good voice"
    )]
    TooShort {
        /// What there is.
        seconds: f64,
        /// What is needed.
        shortest: f64,
    },
    /// A reference from a model without a decoder.
    #[error(
        "the reference has no speaker vector of {wanted} numbers: hear the recording again with this model"
    )]
    Speaker {
        /// Numbers of a speaker's vector.
        wanted: usize,
    },
    /// Letters, none of which the model has learnt.
    #[error(
        "nothing of {} can be said: the model's vocabulary has none of the characters {}; it speaks {}",
        beginning(text),
        beginning(unknown),
        languages.join(", ")
    )]
    UnknownLetters {
        /// The text as it was read.
        text: String,
        /// Characters that the vocabulary lacks, each once.
        unknown: String,
        /// Languages that it has a token for.
        languages: Vec<String>,
    },
    /// No letter and no number.
    #[error("there is nothing to say in {}: after cleaning it has no letter and no digit", beginning(text))]
    NothingToSay {
        /// The text.
        text: String,
    },
}

/// Characters of a text that are shown.
const SHOWN: usize = 60;

/// A text as a message shows it: quoted, without characters that a terminal would obey, and no more than its beginning.
fn beginning(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::from("\"");
    for c in text.chars().take(SHOWN) {
        match c {
            c if obeyed(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown + if text.chars().nth(SHOWN).is_some() { "…\"" } else { "\"" }
}

impl SpeakError {
    pub(crate) fn unfit(source: &dyn Source, what: &str) -> SpeakError {
        SpeakError::Unfit { path: source.place().to_owned(), what: what.to_owned() }
    }

    pub(crate) fn shape(source: &dyn Source) -> impl FnOnce(ShapeError) -> SpeakError {
        let path = source.place().to_owned();
        move |error| SpeakError::Shape { path, error }
    }
}

//! Why a voice could not be kept or taken.

use myxtts_run::durable::DurableError;
use std::path::PathBuf;

/// Why a voice could not be kept or taken.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// No name for a voice.
    #[error(
        "{name:?} is no name for a voice: take letters, digits, spaces, `-`, `_` and `.`, {longest} at most, with a letter or digit at both ends"
    )]
    Name {
        /// What was asked for.
        name: String,
        /// Characters at most.
        longest: usize,
    },
    /// There is no such voice.
    #[error("there is no voice and no recording {name:?}; {}", known(.names))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// The name is taken.
    #[error("there is a voice {name:?} already: choose another name, or replace it with --force")]
    Exists {
        /// The name.
        name: String,
    },
    /// The model is another one, or was trained since.
    #[error(
        "the voice {name:?} was heard by another model ({found}, and this one is {wanted}), or by this one before it was trained \
         further: hear it again with `myxtts voice add --force {name:?}` and its recordings ({})",
        references.join(", ")
    )]
    OtherModel {
        /// The voice.
        name: String,
        /// Its model's fingerprint.
        found: String,
        /// This model's.
        wanted: String,
        /// File names of its recordings.
        references: Vec<String>,
    },
    /// The file is no voice.
    #[error("{}: it is no voice: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// A mix that makes no sense.
    #[error("the mix {text:?} cannot be made: {why}; write it as \"anna(2)+ben(1)\"")]
    Mix {
        /// What was asked for.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl VoiceError {
    pub(crate) fn unknown(name: &str, names: Vec<String>) -> VoiceError {
        VoiceError::Unknown { name: name.to_owned(), names }
    }
}

/// Voices that are named in a message.
const NAMED: usize = 12;

fn known(names: &[String]) -> String {
    match names.len() {
        0 => "this model has none yet: `myxtts voice add NAME recording.wav` makes one".to_owned(),
        count if count <= NAMED => format!("there are {}", names.join(", ")),
        count => format!(
            "there are {} and {} more (`myxtts voice list`)",
            names[..NAMED].join(", "),
            count - NAMED
        ),
    }
}

//! Errors of stored voices and mixes.

use myxtts_run::config::nearest;
use myxtts_run::durable::DurableError;
use std::path::PathBuf;

/// Error of a stored voice or a mix.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// Invalid name.
    #[error(
        "{name:?} is not a valid voice name: use at most {longest} letters, digits, spaces, `-`, `_` and `.`, with a letter or digit at both ends"
    )]
    Name {
        /// The requested name.
        name: String,
        /// Largest number of characters.
        longest: usize,
    },
    /// Unknown voice.
    #[error("no voice named {name:?}; {}", known(.names))]
    Unknown {
        /// The requested name.
        name: String,
        /// Names of existing voices.
        names: Vec<String>,
    },
    /// A value of `--voice` is neither a voice nor a file.
    #[error(
        "{name:?} is neither a voice of this model ({}) nor a file{}",
        listed(.names),
        did_you_mean(.name, .names)
    )]
    NeitherVoiceNorFile {
        /// The given value.
        name: String,
        /// Names of existing voices.
        names: Vec<String>,
    },
    /// A voice of this name exists.
    #[error("the voice {name:?} already exists: choose another name, or replace it with --force")]
    Exists {
        /// The name.
        name: String,
    },
    /// The voice was encoded by another model, or by this one before it was trained further.
    #[error(
        "the voice {name:?} was made with another model ({found}; this one is {wanted}), or with this one before it was trained \
         further: make it again with `myxtts voice add --force {name:?}` and its recordings ({})",
        references.join(", ")
    )]
    OtherModel {
        /// The voice.
        name: String,
        /// Fingerprint of the model that encoded it.
        found: String,
        /// Fingerprint of this model.
        wanted: String,
        /// File names of its recordings.
        references: Vec<String>,
    },
    /// The file is not a valid voice.
    #[error("{}: not a valid voice file: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// Invalid mix.
    #[error("the mix {text:?} cannot be made: {why}; write it as \"anna(2)+ben(1)\"")]
    Mix {
        /// The requested mix.
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

/// Number of voices that a message names.
const NAMED: usize = 12;

fn known(names: &[String]) -> String {
    match names {
        [] => "the model has no voices yet: `myxtts voice add NAME recording.wav` adds one".to_owned(),
        names => format!("the model has: {}", listed(names)),
    }
}

fn listed(names: &[String]) -> String {
    match names.len() {
        0 => "it has none".to_owned(),
        count if count <= NAMED => names.join(", "),
        count => {
            format!("{} and {} more, see `myxtts voice list`", names[..NAMED].join(", "), count - NAMED)
        }
    }
}

fn did_you_mean(name: &str, names: &[String]) -> String {
    let nearest = nearest(name, names.iter().map(String::as_str));
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

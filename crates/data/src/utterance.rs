//! One spoken sentence, the common form of every corpus layout.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One recording with its transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Utterance {
    /// Unique within the corpus and stable from run to run; order, split and cache depend on it.
    pub id: String,
    /// Path of the audio file, absolute or relative to the working directory.
    pub audio: PathBuf,
    /// The transcript as in the corpus (its normalised column if there is one), uncleaned.
    pub text: String,
    /// Speaker name; the name of the corpus if it has none.
    pub speaker: String,
    /// Language code in lower case: `en`, `fa`, `zh-cn`.
    pub language: String,
    /// Where this utterance was declared.
    pub origin: Origin,
}

/// Location in the user's files that declared something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The metadata file, or the audio file itself if the layout has none.
    pub file: PathBuf,
    /// One-based line number; `None` if the whole file is meant.
    pub line: Option<u64>,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

//! One spoken sentence: what every corpus layout is turned into.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One recording with its transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Utterance {
    /// Unique within the corpus and stable from run to run; order, split and cache hang on it.
    pub id: String,
    /// The sound file, as a path that can be opened from the working directory.
    pub audio: PathBuf,
    /// The transcript as the corpus gives it (its normalised column where there is one), uncleaned.
    pub text: String,
    /// Speaker name; the corpus' own name where it names none.
    pub speaker: String,
    /// Language code in lower case: `en`, `fa`, `zh-cn`.
    pub language: String,
    /// Where this utterance was declared.
    pub origin: Origin,
}

/// The place in the user's files that declared something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The metadata file, or the sound file itself where the layout has none.
    pub file: PathBuf,
    /// Line in it, counted from 1.
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

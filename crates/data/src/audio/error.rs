//! Why a sound file gave no samples: what was found, in which file, and what to do about it.

use std::path::{Path, PathBuf};

use crate::problem::ProblemKind;

/// What is wrong with a sound file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// There is no such file.
    #[error("{}: there is no such file; correct the path or remove the line that names it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The system could not read it.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder, a pipe or a device stands there.
    #[error("{}: is not a regular file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// The content is in no format, or no variant of a format, that we read.
    #[error("{}: {found}; WAV, FLAC, MP3, Ogg Vorbis and M4A (AAC-LC, ALAC) are read", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What the content looks like.
        found: String,
    },
    /// The file ends before its own header says.
    #[error(
        "{}: cut off: the header declares {declared} {unit}, {found} are there; copy it again from its source",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// How much there should be.
        declared: u64,
        /// How much there is.
        found: u64,
        /// What is counted: `bytes of data`, `samples`.
        unit: &'static str,
    },
    /// The end is missing, and nothing says how much that is.
    #[error("{}: cut off: {what}; copy it again from its source", path.display())]
    EndMissing {
        /// The file.
        path: PathBuf,
        /// What shows it.
        what: String,
    },
    /// All of it decodes, but to another length than the header declares.
    #[error(
        "{}: the header declares {declared} {unit}, {found} are there; re-encode it if it sounds right",
        path.display()
    )]
    LengthDiffers {
        /// The file.
        path: PathBuf,
        /// The declared length.
        declared: u64,
        /// The length found.
        found: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// The content contradicts itself, its checksum, or is no sound.
    #[error("{}: damaged: {what}; copy it again from its source", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What gives the damage away.
        what: String,
    },
    /// There is no sound in it.
    #[error("{}: {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// How empty it is.
        what: &'static str,
    },
    /// Larger than anything that is read whole.
    #[error("{}: has {bytes} bytes, more than the {limit} that are read; cut it into utterances first", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The most that is read.
        limit: u64,
    },
    /// Longer than anything that is decoded in one piece.
    #[error(
        "{}: more than {limit} samples in one piece; cut it into utterances first",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most that is decoded.
        limit: u64,
    },
}

impl AudioError {
    /// How this is counted in a report.
    pub fn kind(&self) -> ProblemKind {
        match self {
            AudioError::Missing { .. } => ProblemKind::Missing,
            AudioError::Io { .. } | AudioError::NotAFile { .. } | AudioError::Unsupported { .. } => {
                ProblemKind::Unreadable
            }
            AudioError::Truncated { .. } | AudioError::EndMissing { .. } => ProblemKind::Truncated,
            AudioError::LengthDiffers { .. } => ProblemKind::LengthDiffers,
            AudioError::Corrupt { .. } => ProblemKind::Corrupt,
            AudioError::Empty { .. } => ProblemKind::TooShort,
            AudioError::TooLong { .. } | AudioError::TooLarge { .. } => ProblemKind::TooLong,
        }
    }

    /// The file it is about.
    pub fn path(&self) -> &Path {
        match self {
            AudioError::Missing { path }
            | AudioError::Io { path, .. }
            | AudioError::NotAFile { path }
            | AudioError::Unsupported { path, .. }
            | AudioError::Truncated { path, .. }
            | AudioError::EndMissing { path, .. }
            | AudioError::LengthDiffers { path, .. }
            | AudioError::Corrupt { path, .. }
            | AudioError::Empty { path, .. }
            | AudioError::TooLong { path, .. }
            | AudioError::TooLarge { path, .. } => path,
        }
    }

    pub(super) fn io(path: &Path, source: std::io::Error) -> AudioError {
        match source.kind() {
            std::io::ErrorKind::NotFound => AudioError::Missing { path: path.to_owned() },
            _ => AudioError::Io { path: path.to_owned(), source },
        }
    }

    pub(super) fn unsupported(path: &Path, found: impl Into<String>) -> AudioError {
        AudioError::Unsupported { path: path.to_owned(), found: found.into() }
    }

    pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> AudioError {
        AudioError::Corrupt { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn truncated(path: &Path, declared: u64, found: u64, unit: &'static str) -> AudioError {
        AudioError::Truncated { path: path.to_owned(), declared, found, unit }
    }

    pub(super) fn end_missing(path: &Path, what: impl Into<String>) -> AudioError {
        AudioError::EndMissing { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn length_differs(path: &Path, declared: u64, found: u64, unit: &'static str) -> AudioError {
        AudioError::LengthDiffers { path: path.to_owned(), declared, found, unit }
    }

    pub(super) fn empty(path: &Path, what: &'static str) -> AudioError {
        AudioError::Empty { path: path.to_owned(), what }
    }
}

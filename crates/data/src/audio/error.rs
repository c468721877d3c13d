//! Errors of reading audio files: what was found, in which file, and what to do about it.

use std::path::{Path, PathBuf};

use crate::problem::ProblemKind;

/// An audio file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The file does not exist.
    #[error("{}: the file does not exist; correct the path or remove its line", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// A folder, a pipe or a device instead of a file.
    #[error("{}: is not a regular file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// An unsupported format or variant of a format.
    #[error("{}: unsupported: {found}; use WAV, FLAC, MP3, Ogg Vorbis or M4A (AAC-LC, ALAC)", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What the content looks like.
        found: String,
    },
    /// The file ends before the length its header declares.
    #[error(
        "{}: cut off: the header declares {declared} {unit}, found {found}; copy it again from its source",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Declared length in `unit`.
        declared: u64,
        /// Actual length in `unit`.
        found: u64,
        /// Unit of the lengths: `bytes of data`, `samples`.
        unit: &'static str,
    },
    /// The end is missing, by an unknown amount.
    #[error("{}: cut off: {what}; copy it again from its source", path.display())]
    EndMissing {
        /// The file.
        path: PathBuf,
        /// How the missing end was detected.
        what: String,
    },
    /// The file decodes completely, but its length differs from the header's.
    #[error(
        "{}: the header declares {declared} {unit}, found {found}; re-encode it if it sounds right",
        path.display()
    )]
    LengthDiffers {
        /// The file.
        path: PathBuf,
        /// Declared length in `unit`.
        declared: u64,
        /// Actual length in `unit`.
        found: u64,
        /// Unit of the lengths.
        unit: &'static str,
    },
    /// The content contradicts itself or its checksum, or is not audio.
    #[error("{}: damaged: {what}; copy it again from its source", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// How the damage was detected.
        what: String,
    },
    /// The file contains no samples.
    #[error("{}: {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The file is over the size limit for reading at once.
    #[error("{}: {bytes} bytes exceed the limit of {limit}; split it into utterances first", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// File size in bytes.
        bytes: u64,
        /// Largest accepted size in bytes.
        limit: u64,
    },
    /// The audio is over the length limit for decoding at once.
    #[error(
        "{}: longer than {limit} samples; split it into utterances first",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Largest accepted number of samples per channel.
        limit: u64,
    },
}

impl AudioError {
    /// The category under which reports count this error.
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

    /// The file the error is about.
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

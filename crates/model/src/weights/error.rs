//! Errors of weight files.

use std::path::{Path, PathBuf};

use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;

use super::archive::ArchiveError;
use super::expected::Mismatch;
use super::pickle::PickleError;

/// Error of reading or writing weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying I/O error.
        #[source]
        source: std::io::Error,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] DurableError),
    /// The container of a `.pth` is not in torch's format.
    #[error("{}: {source}", path.display())]
    Archive {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: ArchiveError,
    },
    /// The pickle in a `.pth` is not in torch's format.
    #[error("{}: data.pkl: {source}", path.display())]
    Pickle {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: PickleError,
    },
    /// The content of a file is not what is expected.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// What was found and what to do.
        what: String,
    },
    /// Tensors are missing, unexpected or of the wrong shape.
    #[error("{}: {mismatch}", path.display())]
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// All differences.
        mismatch: Box<Mismatch>,
    },
    /// A model folder is corrupted.
    #[error("{} is damaged: {}", path.display(), findings.join("; "))]
    Damaged {
        /// Path of the folder.
        path: PathBuf,
        /// All problems found.
        findings: Vec<String>,
    },
    /// The output folder is not empty.
    #[error("{} already contains {found}; --force replaces it", path.display())]
    Occupied {
        /// Path of the folder.
        path: PathBuf,
        /// What the folder contains.
        found: &'static str,
    },
}

impl WeightsError {
    pub(crate) fn content(path: &Path, what: impl Into<String>) -> WeightsError {
        WeightsError::Content { path: path.to_owned(), what: what.into() }
    }

    /// Exit code of a command that fails with this error.
    pub fn exit(&self) -> Exit {
        match self {
            WeightsError::Io { .. } | WeightsError::Write(_) => Exit::Io,
            WeightsError::Occupied { .. } => Exit::Usage,
            _ => Exit::BadData,
        }
    }
}

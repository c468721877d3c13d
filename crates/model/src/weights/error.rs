//! What can be wrong with weight files.

use std::path::{Path, PathBuf};

use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;

use super::archive::ArchiveError;
use super::expected::Mismatch;
use super::pickle::PickleError;

/// Reading or writing weights failed.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] DurableError),
    /// The container of a `.pth` is not what torch writes.
    #[error("{}: {source}", path.display())]
    Archive {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: ArchiveError,
    },
    /// The pickle in a `.pth` is not what torch writes.
    #[error("{}: data.pkl: {source}", path.display())]
    Pickle {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: PickleError,
    },
    /// A file holds something else than it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What was found and what to do.
        what: String,
    },
    /// Tensors are missing, left over or of the wrong shape.
    #[error("{}: {mismatch}", path.display())]
    Mismatch {
        /// Which file.
        path: PathBuf,
        /// All of them.
        mismatch: Box<Mismatch>,
    },
    /// A model folder is not as it was written.
    #[error("{} is damaged: {}", path.display(), findings.join("; "))]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// Every damage that was found.
        findings: Vec<String>,
    },
    /// The folder to write to holds something already.
    #[error("{} holds {found} already; --force replaces it", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
}

impl WeightsError {
    pub(crate) fn content(path: &Path, what: impl Into<String>) -> WeightsError {
        WeightsError::Content { path: path.to_owned(), what: what.into() }
    }

    /// The exit code a command ends with.
    pub fn exit(&self) -> Exit {
        match self {
            WeightsError::Io { .. } | WeightsError::Write(_) => Exit::Io,
            WeightsError::Occupied { .. } => Exit::Usage,
            _ => Exit::BadData,
        }
    }
}

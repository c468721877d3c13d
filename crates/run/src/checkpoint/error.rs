//! Errors of checkpoints and of saving or reading them.

use std::io;
use std::path::PathBuf;

use crate::durable::DurableError;
use crate::lock::LockError;

/// What is wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The manifest is missing.
    #[error("it has no manifest")]
    ManifestMissing,
    /// The manifest differs from what was written.
    #[error("its manifest was modified or truncated: the checksum does not match")]
    ManifestChanged,
    /// The manifest is intact, but its format is unknown.
    #[error("its manifest cannot be read ({0}); was it written by a newer version of this program?")]
    ManifestUnknown(String),
    /// A blob is missing.
    #[error("{blob}.bin is missing")]
    BlobMissing {
        /// Name of the blob.
        blob: String,
    },
    /// A blob has the wrong length.
    #[error("{blob}.bin has {found} bytes instead of {wanted}")]
    BlobLength {
        /// Name of the blob.
        blob: String,
        /// Actual bytes.
        found: u64,
        /// Expected bytes.
        wanted: u64,
    },
    /// A blob differs from what was written.
    #[error("{blob}.bin was modified: bytes {from} to {to} do not match their checksum")]
    BlobChanged {
        /// Name of the blob.
        blob: String,
        /// First byte of the damaged chunk.
        from: u64,
        /// End of the damaged chunk, exclusive.
        to: u64,
    },
    /// A file cannot be read.
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        /// Name of the file in the checkpoint's folder.
        file: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A checkpoint that cannot be used, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("checkpoint {} cannot be used: {damage}", folder.display())]
pub struct Damaged {
    /// Folder of the checkpoint.
    pub folder: PathBuf,
    /// Name of the checkpoint in the store.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub damage: Damage,
}

/// Why a checkpoint operation failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The requested checkpoint is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// There is no checkpoint of that name.
    #[error("there is no checkpoint {name} in {}{}", dir.display(), existing(names))]
    Unknown {
        /// The store.
        dir: PathBuf,
        /// The requested name.
        name: String,
        /// Existing checkpoints.
        names: Vec<String>,
    },
    /// The requested blob is not part of the checkpoint.
    #[error("checkpoint {name} has no blob {blob}: it was saved by another stage or version")]
    NoBlob {
        /// The checkpoint.
        name: String,
        /// The blob.
        blob: String,
    },
    /// A blob does not have the size that the reader expects.
    #[error(
        "{blob} of checkpoint {name} has {found} bytes instead of {wanted}: it may belong to another model"
    )]
    Size {
        /// The checkpoint.
        name: String,
        /// The blob.
        blob: String,
        /// Actual bytes.
        found: u64,
        /// Expected bytes.
        wanted: u64,
    },
    /// The checkpoint folder cannot be read.
    #[error("cannot read the checkpoint folder {}", dir.display())]
    Folder {
        /// The store.
        dir: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A disk operation failed.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

fn existing(names: &[String]) -> String {
    match names {
        [] => "; the folder contains none".to_owned(),
        names => format!("; existing checkpoints: {}", names.join(", ")),
    }
}

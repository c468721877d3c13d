//! What can be wrong with a checkpoint, and with saving or reading one.

use std::io;
use std::path::PathBuf;

use crate::durable::DurableError;
use crate::lock::LockError;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// There is no manifest.
    #[error("it has no manifest")]
    ManifestMissing,
    /// The manifest is not what was written.
    #[error("its manifest was changed or cut off: the checksum does not fit")]
    ManifestChanged,
    /// The manifest is what was written, but not by a program we know.
    #[error("its manifest cannot be understood ({0}); was it written by a newer version of this program?")]
    ManifestUnknown(String),
    /// A blob is not there.
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
        /// Bytes there.
        found: u64,
        /// Bytes there should be.
        wanted: u64,
    },
    /// A blob is not what was written.
    #[error("{blob}.bin was changed: bytes {from} to {to} do not fit their checksum")]
    BlobChanged {
        /// Name of the blob.
        blob: String,
        /// First byte of the stretch that one checksum covers.
        from: u64,
        /// The byte after its last.
        to: u64,
    },
    /// The system does not let us read it.
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        /// The file in the checkpoint's folder.
        file: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A checkpoint that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("checkpoint {} cannot be used: {damage}", folder.display())]
pub struct Damaged {
    /// Its folder.
    pub folder: PathBuf,
    /// Its name within the store.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub damage: Damage,
}

/// Why something could not be done with checkpoints.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The checkpoint asked for is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// There is none of that name.
    #[error("there is no checkpoint {name} in {}{}", dir.display(), known(names))]
    Unknown {
        /// The store.
        dir: PathBuf,
        /// What was asked for.
        name: String,
        /// Those that there are.
        names: Vec<String>,
    },
    /// The blob asked for is not part of the checkpoint.
    #[error("checkpoint {name} has no part called {blob}: it was saved by another stage or version")]
    NoBlob {
        /// The checkpoint.
        name: String,
        /// The blob.
        blob: String,
    },
    /// A blob does not have the size its reader has room for.
    #[error("{blob} of checkpoint {name} has {found} bytes where {wanted} are needed: another model's?")]
    Size {
        /// The checkpoint.
        name: String,
        /// The blob.
        blob: String,
        /// Its bytes.
        found: u64,
        /// The reader's.
        wanted: u64,
    },
    /// The folder of checkpoints cannot be read.
    #[error("cannot read the folder of checkpoints {}", dir.display())]
    Folder {
        /// The store.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else writes there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A step on the disk failed.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

fn known(names: &[String]) -> String {
    match names {
        [] => "; the folder holds none".to_owned(),
        names => format!("; there are {}", names.join(", ")),
    }
}

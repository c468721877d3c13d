//! The prepared corpus on disk: shards of numpy arrays, a checksummed index, `prepare` and `verify`.
//!
//! A store is a folder. Every file in it is a pure function of the corpus and the recipe. It does not depend on the number
//! of workers, the order of the metadata, or how often `prepare` was killed and resumed.
//!
//! | file | content |
//! |---|---|
//! | `shard-0012of0064-1f3a9c04.dvae_mel.npy` | one column of all records of a shard, concatenated; a plain numpy array |
//! | `shard-0012of0064-1f3a9c04.seal` | contents of the shard, with checksums; written last, it commits the shard |
//! | `index.bin` | all seals in one mapped table; written after the last shard, it commits the store |
//! | `write.lock` | held by the single writing process, empty otherwise; readers and a `prepare` with nothing to write do not take it |
//! | `write.owner` | process and machine of the writer, present while it writes |
//! | `part-0003of0016/` | shards made by one of several machines, until they are merged: see `parts` |
//!
//! The eight hex digits are the start of the seal's hash, so a changed shard gets a new file name. Until the new index is in
//! place, the old one still finds every file it names. A reader that opened the store before a rebuild sees its old bytes or
//! an error, never a mixture. Files that no index names any more are removed after the new index is durable.
//!
//! Modules in the order a record passes through them: `featurizer` -> [`fingerprint`] -> [`shard`] and [`seal`] -> [`index`]
//! -> `store`. [`prepare()`] and [`verify()`] drive them, [`prepare_part()`] and [`merge()`] do so on several machines;
//! `runtime` is the record source without a store.

pub mod audio_overlay;
mod featurizer;
pub mod fingerprint;
pub mod index;
mod memory;
mod merge;
pub mod names;
mod parts;
mod prepare;
mod runtime;
pub mod seal;
pub mod shard;
mod store;
mod verify;

mod build;
mod current;
mod source;
mod wire;
mod workers;

use std::io;
use std::path::{Path, PathBuf};

use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::lock::LockError;

use crate::problem::Problem;

pub use audio_overlay::AudioOverlay;
pub use featurizer::{AudioLocation, Features, Featurizer, Measured};
pub use fingerprint::Fingerprint;
pub use merge::{MergeOptions, merge};
pub use parts::{Part, PartError, prepare_part};
pub use prepare::{PrepareOptions, PrepareReport, open, prepare};
pub use runtime::{Runtime, RuntimeOptions};
pub use store::Store;
pub use verify::{Finding, FindingKind, VerifyReport, repair, verify};

/// Version of the on-disk format of a store. Changing it makes existing stores stale.
pub const FORMAT: u32 = 1;

/// Why a store could not be created, read or checked.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Another process is writing to the folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Writing failed.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// A read failed for a reason other than the content of the file.
    #[error("cannot read {}", path.display())]
    Read {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The folder holds no finished store.
    #[error("no finished cache in {} (index.bin is missing): run `myxtts prepare` to create or finish it", dir.display())]
    NoStore {
        /// Folder of the cache.
        dir: PathBuf,
    },
    /// Another process rewrote the store after it was found to be current.
    #[error(
        "the cache in {} was rewritten by another process with other settings while this one opened it: give each its own \
         cache folder (data.cache_dir), or run this command again",
        dir.display()
    )]
    Replaced {
        /// Folder of the cache.
        dir: PathBuf,
    },
    /// The parts made by several machines do not form a store.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A file of the store differs from what was written.
    #[error("{} is damaged: {what}; `myxtts verify --fix` rebuilds it", path.display())]
    Damaged {
        /// Damaged file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// More utterances failed than the budget allows.
    #[error(
        "at least {failed} of {total} utterances (including unreadable lines) cannot be used, more than the {:.1} % allowed: \
         `myxtts check` lists them; finished work is kept",
        budget * 100.0
    )]
    OverBudget {
        /// Number of failed utterances.
        failed: u64,
        /// Number of utterances in the corpus.
        total: u64,
        /// Fraction that is allowed to fail.
        budget: f64,
        /// Problems found before the work was stopped.
        problems: Vec<Problem>,
    },
    /// The caller requested a stop.
    #[error("stopped on request; finished work is kept, run the same command again to continue")]
    Stopped,
    /// A column has more rows than a shard can address.
    #[error("shard {shard} has more than 2^32 rows of {column}: split the corpus")]
    ShardTooLong {
        /// Shard number.
        shard: u32,
        /// Column name.
        column: String,
    },
    /// A bug in this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl CacheError {
    /// Returns the exit code of the process for this error.
    pub fn exit(&self) -> Exit {
        match self {
            CacheError::Lock(lock) => lock.exit(Exit::Io),
            CacheError::Disk(_) | CacheError::Read { .. } | CacheError::Replaced { .. } => Exit::Io,
            CacheError::NoStore { .. } | CacheError::Damaged { .. } | CacheError::OverBudget { .. } => {
                Exit::BadData
            }
            CacheError::Part(_) | CacheError::ShardTooLong { .. } => Exit::BadData,
            CacheError::Stopped => Exit::Stopped,
            CacheError::Internal(_) => Exit::Internal,
        }
    }

    fn read(path: &Path) -> impl FnOnce(io::Error) -> CacheError + use<> {
        let path = path.to_owned();
        move |source| CacheError::Read { path, source }
    }
}

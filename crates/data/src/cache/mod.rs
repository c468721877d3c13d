//! The prepared set on disk: shards of numpy arrays, a checksummed index, `prepare` and `verify`.
//!
//! A store is a folder. Every file in it is a pure function of the corpus and the recipe: not of the
//! number of workers, the order of the metadata, or how often `prepare` was killed on the way.
//!
//! | file | content |
//! |---|---|
//! | `shard-0012of0064-1f3a9c04.dvae_mel.npy` | one column of all records of a shard, end to end; a plain numpy array |
//! | `shard-0012of0064-1f3a9c04.seal` | what is in the shard, with checksums; written last, it commits the shard |
//! | `index.bin` | all seals in one mapped table; written after the last shard, it commits the store |
//! | `write.lock` | held by the one process that writes; empty otherwise. Who only reads, or finds nothing to write, takes none |
//! | `write.owner` | which process of which machine that is, as long as it writes |
//! | `part-0003of0016/` | shards that one of several machines has made, until they are merged: see `parts` |
//!
//! The eight digits are the beginning of the seal's hash, so a changed shard has another name: until
//! the new index is in place the old one still finds every file it names, and a reader that opened
//! the store before a rebuild sees its old bytes or an error, never a mixture. What no index names
//! any more is removed after the new one is durable.
//!
//! Modules in the order a record passes them: `featurizer` -> [`fingerprint`] -> [`shard`] and
//! [`seal`] -> [`index`] -> `store`; [`prepare()`] and [`verify()`] drive them, [`prepare_part()`] and [`merge()`] on
//! several machines; `runtime` is the record source without a store.

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
pub mod sounds;
mod store;
mod verify;

mod build;
mod source;
mod whole;
mod wire;
mod workers;

use std::io;
use std::path::{Path, PathBuf};

use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::lock::LockError;

use crate::problem::Problem;

pub use featurizer::{Features, Featurizer, Measured, Sounding};
pub use fingerprint::Fingerprint;
pub use merge::{MergeOptions, merge};
pub use parts::{Part, PartError, prepare_part};
pub use prepare::{PrepareOptions, PrepareReport, open, prepare};
pub use runtime::{Runtime, RuntimeOptions};
pub use sounds::Sounds;
pub use store::Store;
pub use verify::{Finding, FindingKind, VerifyReport, repair, verify};

/// Version of everything below a store's folder; a change makes old stores stale.
pub const FORMAT: u32 = 1;

/// Why a store could not be made, read or checked.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Another process writes there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Writing failed.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// Reading failed, and not because of what was read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no finished store.
    #[error("there is no finished cache in {} (no index.bin): run `myxtts prepare` to make or finish it", dir.display())]
    NoStore {
        /// The folder.
        dir: PathBuf,
    },
    /// Another process has written since the store was found to be current.
    #[error(
        "the cache in {} was written by another process, with other settings, while this one opened it: give one of them \
         a cache of its own (data.cache_dir), or run this command again",
        dir.display()
    )]
    Replaced {
        /// The folder.
        dir: PathBuf,
    },
    /// The parts that several machines have made do not make a store.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A file of the store is not as it was written.
    #[error("{} is damaged: {what}; `myxtts verify --fix` rebuilds it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// More utterances failed than the budget allows.
    #[error(
        "at least {failed} of {total} utterances cannot be used, unreadable lines counted, more than the {:.1} % allowed: `myxtts check` lists \
         them; what was finished is kept",
        budget * 100.0
    )]
    OverBudget {
        /// Utterances that failed.
        failed: u64,
        /// Utterances there are.
        total: u64,
        /// The share that is allowed to fail.
        budget: f64,
        /// Those that failed before the work was stopped.
        problems: Vec<Problem>,
    },
    /// The caller asked to stop.
    #[error("stopped on request; what was finished is kept and the same command continues")]
    Stopped,
    /// More rows than a shard can count.
    #[error("shard {shard} has more than 2^32 rows of {column}: split the corpus")]
    ShardTooLong {
        /// The shard.
        shard: u32,
        /// The column.
        column: String,
    },
    /// A defect of ours.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl CacheError {
    /// The exit code that belongs to it.
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

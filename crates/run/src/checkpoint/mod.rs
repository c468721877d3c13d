//! Checkpoints of a run: binary blobs with a manifest, saved atomically.
//!
//! ```text
//! checkpoints/
//!   000007-step-1200/     the 7th saved checkpoint, at step 1200
//!     manifest            step, score, caller's data, and checksums of every blob
//!     weights.bin         one file per blob
//!     pinned              an empty file that marks a pinned checkpoint
//!   write.lock            locked by the process that saves here
//!   write.owner           process and machine that hold the lock
//! ```
//!
//! A checkpoint is written under a temporary name, synced file by file, and then renamed: a folder with a checkpoint name
//! is complete. It is deleted in the reverse order. Checkpoints are ordered by saving, not by step: after a rollback to
//! an older checkpoint, a smaller step can be the newer one.
//!
//! [`CheckpointStore`] (the single writer) -> [`CheckpointWriter`] (a checkpoint being written) -> [`Checkpoint`] (its
//! manifest) -> [`Checkpoints`] (lists, finds the newest valid one, reads); [`expired`] selects those to delete.

mod error;
mod manifest;
mod reader;
mod retention;
mod store;
mod writer;

pub use error::{CheckpointError, Damage, Damaged};
pub use manifest::{Blob, CHUNK_BYTES, Checkpoint, MANIFEST};
pub use reader::{Checkpoints, Latest, Listing, OpenCheckpoint};
pub use retention::{RetentionCandidate, RetentionPolicy, expired};
pub use store::CheckpointStore;
pub use writer::{BlobWriter, CheckpointWriter};

//! Checkpoints of a run: blobs of bytes with a manifest, whole or not there.
//!
//! ```text
//! checkpoints/
//!   000007-step-1200/     the 7th checkpoint saved here, at step 1200
//!     manifest            step, score, what the caller says of it, and checksums of every blob
//!     weights.bin         one file per blob
//!     pinned              an empty file, where a person wants it kept
//!   write.lock            held by the process that saves here
//!   write.owner           which process of which machine that is
//! ```
//!
//! A checkpoint is written under another name, brought to the device file by file, and gets its own
//! name by one rename: a folder of that name is complete. It is taken away the same way, backwards.
//! Order is the order of saving and not of steps: after going back to an older checkpoint, a smaller
//! step is the newer one.
//!
//! [`CheckpointStore`] (the one writer) -> [`Saving`] (a checkpoint on its way) -> [`Checkpoint`]
//! (what stands in its manifest) -> [`Checkpoints`] (lists, finds the newest whole one, reads);
//! [`retain()`] says which may go.

mod error;
mod manifest;
mod reader;
mod retain;
mod saving;
mod store;

pub use error::{CheckpointError, Damage, Damaged};
pub use manifest::{Blob, CHUNK_BYTES, Checkpoint, MANIFEST};
pub use reader::{Checkpoints, Latest, Listing, Loaded};
pub use retain::{Keep, Kept, retain};
pub use saving::{BlobWriter, Saving};
pub use store::CheckpointStore;

//! Batches: length buckets, the shape ladder, and collation into memory the caller owns.
//!
//! In the order a batch is built: `settings` (the options) -> `ladder` (the few shapes) -> `buckets` (the records of each
//! shape) -> [`balance`] (how often each record occurs) -> `plan` and its `step`s (the record of every row, computed instead
//! of stored) -> `layout` (byte offsets) -> `collate` (bytes in the caller's slab). `state` is what a run saves.

pub mod balance;
mod buckets;
mod collate;
mod ladder;
pub(crate) mod layout;
mod plan;
mod settings;
mod state;
mod step;
pub(crate) mod worker_position;

pub use buckets::{Bucket, Excluded, Reason};
pub use collate::{BatchError, BatchInfo, Collator, OwnCompanion, Substitution};
pub use ladder::{Ladder, Rung};
pub use layout::{Content, Field, Layout};
pub use plan::{Plan, PlanError};
pub use settings::{Order, Part, Role, Rows, Settings, Tail, Take};
pub use state::{State, StateError};
pub use step::Step;

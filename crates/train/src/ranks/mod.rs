//! One run on several processes, on one machine or on many: a rank each, of which rank 0 runs the loop, validates and writes.
//!
//! [`discovery`] (which rank this is) -> `rendezvous` (they find each other) -> [`health`] (all are there), `link` (orders and
//! answers), [`sums`] (numbers added up without a GPU) -> `join` (engines meet) -> [`lead`] and `follow` (a stage on all).

pub mod discovery;
pub mod health;
pub(crate) mod join;
pub mod lead;
pub(crate) mod link;
mod rendezvous;
pub mod sums;
mod wire;

pub use crate::rank_error::{DiscoveryError, RankError};
pub use link::{Options, Ranks};
pub use rendezvous::Token;

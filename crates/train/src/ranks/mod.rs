//! One run with several processes, on one machine or many: each process is a rank, and rank 0 runs the loop, validates and
//! writes.
//!
//! [`discovery`] (the rank of this process) -> `rendezvous` (connections) -> [`health`] (heartbeats) with `rank_activity` (what each rank
//! does), `link` (orders and answers), [`sums`] (sums without a GPU) -> `join` (joins the engines) -> [`lead`] and `follow` (a stage
//! on all ranks).

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

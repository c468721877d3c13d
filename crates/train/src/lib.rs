//! Training: what stands between a prepared corpus, the networks and a person who waits.
//!
//! In the order of a run: [`strategy`] and [`machine`] (where) -> [`beside`] (records with codes) -> [`align`] (which token each code says) -> [`feed`] (batches,
//! ahead of time) -> [`stages`] (what is trained), [`mirrored`] (on several devices), [`ranks`] (on several processes and machines) ->
//! [`session`] (the loop: steps, guards, checkpoints), `best` (validation and the weights it prefers) and [`samples`] (what it sounds like on the way),
//! driven by [`pipeline`] -> [`model`] (what comes of it) -> [`evaluate`] (what it sounds like, by `myxtts-speak`).

pub mod error;
pub mod share;
pub mod strategy;

pub mod align;
mod asked;
pub mod beside;
pub mod feed;
pub mod model;
pub mod stages;

pub mod mirrored;
pub mod ranks;

mod bad_step;
mod best;
mod pace;
pub mod samples;
pub mod session;
pub mod sizes;

pub mod low_data;
pub mod pipeline;

pub mod bench;
pub mod diagnose;
pub mod tune;

pub mod evaluate;
pub mod resynthesize;

pub use myxtts_speak::machine;

pub use best::Chosen;
pub use error::TrainError;
pub use machine::Machine;
pub use model::Model;

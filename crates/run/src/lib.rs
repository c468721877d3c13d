//! What a run stands on, with no tensor in it: configuration as written and as resolved on this
//! machine, seeds, durable files, progress and exit codes.
//!
//! In the order a run meets them:
//! [`config`] (what the user wrote) -> [`plan`] (what it means here) -> [`seed`] -> [`durable`] and
//! [`lock`] (files that survive) -> [`progress`] -> [`exit`].

pub mod checkpoint;
pub mod config;
pub mod durable;
pub mod exit;
pub mod guard;
pub mod lock;
pub mod plan;
pub mod progress;
pub mod schedule;
pub mod seed;
pub mod trend;

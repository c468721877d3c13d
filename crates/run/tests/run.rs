//! Integration tests of the crate, one module per part.

// Clippy exempts only functions marked as tests from this lint; test helpers need it too.
#![allow(clippy::unwrap_used)]

#[path = "run/checkpoint.rs"]
mod checkpoint;
#[path = "run/checkpoint_damage.rs"]
mod checkpoint_damage;
#[path = "run/checkpoint_kill.rs"]
mod checkpoint_kill;
#[path = "run/checkpoint_order.rs"]
mod checkpoint_order;
#[path = "run/config.rs"]
mod config;
#[path = "run/config_errors.rs"]
mod config_errors;
#[path = "run/durable.rs"]
mod durable;
#[path = "run/events.rs"]
mod events;
#[path = "run/folder.rs"]
mod folder;
#[path = "run/fuzzed.rs"]
mod fuzzed;
#[path = "run/guard.rs"]
mod guard;
#[path = "run/lock.rs"]
mod lock;
#[path = "../../../fuzz/mutator.rs"]
mod mutator;
#[path = "../../../fuzz/parsers/run.rs"]
mod parsers;
#[path = "run/resume_changes.rs"]
mod resume_changes;
#[path = "run/retention.rs"]
mod retention;
#[path = "run/tensorboard.rs"]
mod tensorboard;

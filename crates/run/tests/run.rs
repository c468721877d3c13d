//! Behaviour of the crate, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "run/durable.rs"]
mod durable;
#[path = "run/lock.rs"]
mod lock;

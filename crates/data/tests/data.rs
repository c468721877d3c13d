//! Behaviour of the data path, seen from outside the crate.

// Helpers of tests count as tests, which clippy does not see.
#![allow(clippy::unwrap_used)]

#[path = "data/batches.rs"]
mod batches;
#[path = "data/loader.rs"]
mod loader;
#[path = "data/order.rs"]
mod order;
#[path = "data/restores.rs"]
mod restores;
#[path = "data/synthetic.rs"]
mod synthetic;

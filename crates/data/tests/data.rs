//! Behaviour of the crate, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "data/batches.rs"]
mod batches;
#[path = "data/cache.rs"]
mod cache;
#[path = "data/loader.rs"]
mod loader;
#[path = "data/order.rs"]
mod order;
#[path = "data/restores.rs"]
mod restores;
#[path = "data/synthetic.rs"]
mod synthetic;

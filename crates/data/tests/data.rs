//! Behaviour of the crate, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "data/cache.rs"]
mod cache;

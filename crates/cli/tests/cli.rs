//! Behaviour of the program, one module per command or noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "cli/cache.rs"]
mod cache;

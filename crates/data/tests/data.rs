//! Behaviour of the data crate, one module per subject.

// Helpers of tests may unwrap like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "data/check.rs"]
mod check;
#[path = "data/dataset.rs"]
mod dataset;

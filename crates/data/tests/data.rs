//! Behaviour of the data crate, one module per subject.

#[path = "data/check.rs"]
mod check;
#[path = "data/dataset.rs"]
mod dataset;

//! The crate as others use it, one module per subject.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

mod hostile;
mod made;
mod weights;

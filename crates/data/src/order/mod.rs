//! The order of records: a pure function of seed, epoch and position.
//!
//! `bijection` shuffles a range without storing it; `speakers` finds a record's companion, another recording of the same
//! speaker.

pub(crate) mod bijection;
mod speakers;

pub(crate) use bijection::Bijection;
pub use speakers::Speakers;

//! The order of records: a pure function of seed, epoch and position.
//!
//! [`bijection`] shuffles a range without storing it; [`speakers`] finds a record's companion, another
//! recording of the same voice.

pub mod bijection;
pub mod speakers;

pub use bijection::Bijection;
pub use speakers::Speakers;

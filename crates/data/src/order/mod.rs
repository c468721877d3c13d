//! The order of records: a pure function of seed, epoch and position.

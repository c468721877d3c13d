//! Training and speaking: what stands between a prepared corpus, the networks and a person who waits.

pub mod voice;

pub mod evaluate;

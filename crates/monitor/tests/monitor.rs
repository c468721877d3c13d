//! Behaviour of the crate as its users see it, one module per noun. No GPU is needed.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "monitor/attached.rs"]
mod attached;
#[path = "monitor/host.rs"]
mod host;
#[path = "monitor/log.rs"]
mod log;
#[path = "monitor/sampler.rs"]
mod sampler;
#[path = "monitor/statistics.rs"]
mod statistics;

//! Behaviour of the crate as its users see it, one module per noun. No GPU is needed.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "monitor/attached_run.rs"]
mod attached_run;
#[path = "monitor/host.rs"]
mod host;
#[path = "monitor/log.rs"]
mod log;
#[path = "monitor/sampler.rs"]
mod sampler;
#[path = "monitor/simulated.rs"]
mod simulated;
#[path = "monitor/statistics.rs"]
mod statistics;

//! Watching a machine while it trains.
//!
//! In the order of a sample: [`probe`] asks [`nvml`] and [`host`], [`attached`] reads what a run says of itself; together
//! they are a [`sample`], taken in turn or by a [`sampler`] beside other work. Samples go to a [`log`], and into a [`summary`] by way of [`statistics`].

pub mod attached;
pub mod host;
pub mod log;
pub mod nvml;
pub mod probe;
pub mod sample;
pub mod sampler;
pub mod statistics;
pub mod summary;

pub use attached::Attached;
pub use log::Log;
pub use probe::{Machine, Monitor, Probe, Simulated};
pub use sample::{Gpu, Host, Limit, Process, Run, Sample, Unit};
pub use sampler::Sampler;
pub use summary::{Summary, Tally};

//! Monitors a machine while it trains.
//!
//! In the order of a sample: [`probe`] queries [`nvml`] and [`host`], and [`attached_run`] reads the events of a run;
//! together they form a [`sample`]. Samples are taken one at a time or by a background [`sampler`], appended to a [`log`],
//! and summarised in a [`summary`] by [`statistics`].

pub mod attached_run;
pub mod host;
pub mod log;
pub mod nvml;
pub mod probe;
pub mod sample;
pub mod sampler;
pub mod statistics;
pub mod summary;

pub use attached_run::AttachedRun;
pub use log::SampleLog;
pub use probe::{LocalMachine, Monitor, Probe};
pub use sample::{ClockLimit, GpuProcess, GpuSample, HostSample, RunSample, Sample, Unit};
pub use sampler::Sampler;
pub use summary::{Summary, SummaryBuilder};

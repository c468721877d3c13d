//! Finds why a device is idle, and what to set.
//!
//! ```text
//! a stage on its own feed ──collect──> trace::Trace ──rules::diagnose──> diagnosis::Diagnosis ──report──> text, HTML
//! ```
//!
//! [`inject`] puts a fault into the real pipeline on purpose. Everything after [`mod@collect`] is a pure function of the
//! trace, and is tested on traces of a simulated pipeline whose fault is known.

mod cpu_usage;
pub mod diagnosis;
mod facts;
pub mod period;
pub mod rules;
pub mod trace;

pub mod collect;
pub mod html;
pub mod inject;
pub mod text;

pub use crate::fault::{Fault, FaultKind};
pub use collect::{BatchSetup, MachineSampler, MachineSamples, NoMachineSampler, TraceSettings, collect};
pub use diagnosis::{Cause, Diagnosis, Finding};
pub use rules::diagnose;
pub use trace::Trace;

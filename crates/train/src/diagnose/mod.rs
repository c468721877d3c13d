//! Why a device stands still, and what to set.
//!
//! ```text
//! a stage on its own feed ──collect──> trace::Trace ──rules::diagnose──> diagnosis::Diagnosis ──report──> text, HTML
//! ```
//!
//! [`plant`] puts a fault into the real pipeline on purpose. Everything after [`mod@collect`] is a pure function of the trace, and is tested on traces of a simulated pipeline whose
//! fault is known.

pub mod diagnosis;
mod facts;
mod processor;
pub mod rules;
pub mod statistics;
pub mod trace;

pub mod collect;
pub mod html;
pub mod plant;
pub mod text;

pub use collect::{Amount, MachineSampler, NoMachineSampler, MachineSamples, collect};
pub use diagnosis::{Cause, Diagnosis, Finding};
pub use plant::{Fault, Plant};
pub use rules::diagnose;
pub use trace::Trace;

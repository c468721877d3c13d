//! What watches a run: losses that leap, steps that are no numbers, scores that no longer improve.
//!
//! Each is a state machine without a clock, a file or a random number: it is told one number per step,
//! answers what to do, and its state goes into the checkpoint. A resumed run answers as the undisturbed
//! one would, to the last bit. JSON has no infinities, so no state holds one.

mod advice;
mod bad_steps;
mod early_stop;
mod spikes;

pub use advice::{Advice, Advised};
pub use bad_steps::{BadSteps, BadVerdict};
pub use early_stop::{EarlyStop, StopVerdict};
pub use spikes::{SpikeVerdict, Spikes};

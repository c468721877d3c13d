//! Loss guards: spikes, NaN or Inf steps, and scores that no longer improve.
//!
//! Each guard is a deterministic state machine without clock, files or randomness: it receives one number per step,
//! returns a verdict, and its state is part of the checkpoint. A resumed run gets the same verdicts as an uninterrupted
//! one, bit for bit. JSON has no infinities, so no state contains one.

mod advice;
mod bad_steps;
mod early_stop;
mod spikes;

pub use advice::{TrainingAdvice, TrainingAdvisor};
pub use bad_steps::{BadStepGuard, BadStepVerdict};
pub use early_stop::{EarlyStop, StopVerdict};
pub use spikes::{SpikeDetector, SpikeVerdict};

//! Tests the networks against the reference implementation, and weight files, valid and hostile.

// Clippy exempts only functions marked as tests from this lint; test helpers need it too.
#![allow(clippy::unwrap_used)]

mod goldens;
mod rig;
mod torch_builder;

mod compact;
mod decoder;
mod discriminator;
mod dvae;
mod fuzzed;
mod generate;
mod gpt;
mod gpt_steps;
mod hostile;
mod perceiver;
mod precision;
mod sequence;
mod shapes;
mod slots;
mod speaker;
mod weights;

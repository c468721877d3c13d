//! The networks from outside, beside what the reference implementation computed.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

mod goldens;
mod rig;

mod decoder;
mod discriminator;
mod dvae;
mod gpt;
mod gpt_steps;
mod precision;
mod sequence;
mod shapes;
mod speaker;

//! The networks from outside, beside what the reference implementation computed.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod goldens;
#[allow(dead_code)]
mod rig;

mod gpt;
mod gpt_steps;
mod sequence;

//! The networks from outside, beside what the reference implementation computed; and weight files, good and hostile.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

mod goldens;
mod made;
mod rig;

mod decoder;
mod discriminator;
mod dvae;
mod fuzzed;
mod generate;
mod gpt;
mod gpt_steps;
mod hostile;
mod precision;
mod sequence;
mod shapes;
mod slots;
mod speaker;
mod weights;

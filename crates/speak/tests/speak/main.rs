//! Speaking from outside.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

mod tiny;

mod long_text;
mod many;
mod narration;
mod sound_file;
mod speaking;
mod synthesizer;
mod texts;
mod voices;

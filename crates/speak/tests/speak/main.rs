//! Speaking from outside.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
#[path = "../../../../fuzz/mutator.rs"]
mod mutator;
#[cfg(unix)]
#[path = "../../../../fuzz/parsers/speak.rs"]
mod parsers;
mod tiny;

#[cfg(target_os = "linux")]
mod flat;
#[cfg(unix)]
mod fuzzed;
mod joined;
mod long_text;
mod many;
mod narration;
mod sound_file;
mod speaking;
mod synthesizer;
mod texts;
mod voices;

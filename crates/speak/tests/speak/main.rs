//! Tests of the public interface.

// Clippy exempts only functions marked as tests, not their helpers.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
#[path = "../../../../fuzz/mutator.rs"]
mod mutator;
#[cfg(unix)]
#[path = "../../../../fuzz/parsers/speak.rs"]
mod parsers;
mod tiny;

mod audio_file;
mod batch;
mod continuous;
#[cfg(unix)]
mod fuzzed;
mod long_text;
#[cfg(target_os = "linux")]
mod memory;
mod narration;
mod reading;
mod several_speakers;
mod speaking;
mod synthesizer;
mod texts;
#[cfg(target_os = "linux")]
mod threads;
mod voices;

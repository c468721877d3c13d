//! Behaviour of the data path, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "data/audio.rs"]
mod audio;
#[path = "data/broken_audio.rs"]
mod broken_audio;
#[path = "data/mel_goldens.rs"]
mod mel_goldens;

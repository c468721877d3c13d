//! Behaviour of the data crate, seen from outside.

// Helpers of tests may unwrap like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "data/audio.rs"]
mod audio;
#[path = "data/broken_audio.rs"]
mod broken_audio;
#[path = "data/check.rs"]
mod check;
#[path = "data/coqui_goldens.rs"]
mod coqui_goldens;
#[path = "data/dataset.rs"]
mod dataset;
#[path = "data/mel_goldens.rs"]
mod mel_goldens;
#[path = "data/persian.rs"]
mod persian;
#[path = "data/text.rs"]
mod text;
#[path = "data/text_table.rs"]
mod text_table;
#[path = "data/tokenizer.rs"]
mod tokenizer;

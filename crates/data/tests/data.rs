//! Behaviour of the data crate, seen from outside.

#[path = "data/audio.rs"]
mod audio;
#[path = "data/broken_audio.rs"]
mod broken_audio;
#[path = "data/demo.rs"]
mod demo;
#[path = "data/mel_goldens.rs"]
mod mel_goldens;

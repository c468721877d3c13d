//! Text to sound: voices, decoding, long text, sound files.
//!
//! In the order of an utterance: [`source`] (weights, in a folder or in training) on a [`machine`] -> [`synthesizer`] (the opened
//! model) -> [`reference`] (recordings of a speaker) -> [`voice`], [`voices`] (a speaker heard; kept, chosen, mixed) -> [`sound`] (states to samples), [`stream`] (while codes still come), [`guard`] (is it what such a text sounds like), [`proofread`] (does it say the text) -> [`waveform`] (what was said).

pub mod error;
pub mod language;
pub mod long_text;
pub mod machine;
pub mod narration;
pub mod source;

pub mod guard;
mod hearing;
mod proofread;
pub mod reference;
pub mod sound;
pub mod sound_file;
pub mod speaking;
pub mod stream;
pub mod synthesizer;
pub mod text_measure;
pub mod voice;
pub mod voices;
pub mod waveform;

pub use error::SpeakError;
pub use guard::{Attempt, Flaw};
pub use machine::Machine;
pub use sound::Quality;
pub use source::Source;
pub use speaking::{SpeakOptions, Speech};
pub use stream::AudibleStart;
pub use synthesizer::{Decoding, Synthesizer, as_heard};
pub use text_measure::TextMeasure;
pub use voice::Voice;
pub use waveform::{Fit, Waveform};

//! Speech synthesis: voices, decoding, streaming, long text, audio files.
//!
//! The modules in the order of an utterance:
//!
//! 1. [`weight_source`], [`synthesizer`]: weights of a model, opened on a device ([`compute_device`])
//! 2. [`reference`], [`voice`], [`voices`]: recordings of a speaker, the encoded voice, stored voices and mixes
//! 3. [`long_text`], [`token_budget`], [`language`]: a text split into pieces that fit into one utterance
//! 4. [`speaking`], [`guard`]: codes sampled, checked and retried; the codes of a text are checked against it by `proofread`
//! 5. [`vocoder`], [`stream`], [`waveform`]: latents decoded to samples, whole or while codes are still generated
//! 6. [`narration`], [`audio_file`]: pieces joined to one recording, encoded and written

pub mod audio_file;
pub mod compute_device;
pub mod error;
pub mod guard;
pub mod language;
pub mod long_text;
pub mod narration;
mod proofread;
pub mod reference;
pub mod speaking;
pub mod stream;
pub mod synthesizer;
pub mod threads;
pub mod token_budget;
pub mod vocoder;
pub mod voice;
mod voice_encoding;
pub mod voices;
pub mod waveform;
pub mod weight_source;

pub use compute_device::ComputeDevice;
pub use error::SpeakError;
pub use guard::{Attempt, Flaw};
pub use speaking::{SpeakOptions, Speech};
pub use stream::AudibleStart;
pub use synthesizer::{Decoding, Synthesizer, prepare_reference};
pub use token_budget::TokenBudget;
pub use vocoder::Quality;
pub use voice::Voice;
pub use waveform::{Fit, Waveform};
pub use weight_source::WeightSource;

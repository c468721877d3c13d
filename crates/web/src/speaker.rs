//! Whoever speaks, as the server sees it.

use crate::metrics::Metrics;
use crate::queue::Jobs;
use myxtts_speak::reference::ReferenceReport;
use myxtts_speak::voices::VoiceError;

/// Samples per second of everything that is sent; the API says so for PCM.
pub const RATE: u32 = 24_000;

/// Speaks what is asked for. It lives on the worker thread, where it was opened.
pub trait Speaker {
    /// What is known of it.
    fn facts(&self) -> SpeakerFacts;

    /// Bytes of memory that opening it took, where that is known.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Says something once, so that the first client does not wait for what is made on first use. Called before
    /// [`Speaker::work`].
    fn warm_up(&mut self) -> Result<(), myxtts_speak::SpeakError>;

    /// Takes jobs until there will be none, or nothing can be said any more. Whoever says one after the other asks
    /// [`Jobs::next`]; whoever says several at once asks [`Jobs::try_next`] between two steps, as often as it has room.
    fn work(&mut self, jobs: &Jobs, metrics: &Metrics) -> Result<(), myxtts_speak::SpeakError>;
}

/// What is known of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerFacts {
    /// Codes of the languages it speaks.
    pub languages: Vec<String>,
}

/// What is to be said, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// At most [`crate::limits::TEXT_CHARACTERS`].
    pub text: String,
    /// A voice's name, a mix `anna(2)+ben(1)`, or `default`. Never a path.
    pub voice: String,
    /// None to guess it by the letters of the text.
    pub language: Option<String>,
    /// 0.25 to 4.
    pub speed: f64,
    /// The same seed says it the same way.
    pub seed: u64,
    /// What differs from the model's usual sampling.
    pub sampling: Sampling,
}

/// Sampling that a client asks for; none for what is usual for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Above 0.
    pub temperature: Option<f32>,
    /// 0 for all codes.
    pub top_k: Option<usize>,
    /// Above 0, at most 1.
    pub top_p: Option<f32>,
    /// Above 0; 1 changes nothing.
    pub repetition_penalty: Option<f32>,
}

/// What an utterance took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the text.
    pub text_tokens: usize,
    /// Codes of the sound.
    pub audio_tokens: usize,
}

/// Why something was not said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpeakerError {
    /// The client's request cannot be done.
    #[error("{message}")]
    Refused {
        /// The field of the request.
        param: &'static str,
        /// A word for programs.
        code: &'static str,
        /// What to do instead.
        message: String,
    },
    /// It took longer than [`crate::limits::REQUEST_TIME`].
    #[error("it took too long and was stopped")]
    TimedOut,
    /// The server is stopping, or its speaker is gone.
    #[error("the server is stopping")]
    Stopping,
    /// The speaker failed.
    #[error("{0}")]
    Failed(String),
}

/// A voice that was heard in an uploaded recording and is kept now.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardVoice {
    /// Seconds of the recording.
    pub seconds: f64,
    /// What would make it better.
    pub advice: Vec<String>,
}

/// What is known of a voice that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceDetails {
    /// Seconds of its recordings.
    pub seconds: f64,
    /// How good they were, where that is known.
    pub report: Option<ReferenceReport>,
}

/// The voices that are kept, which need no speaker to be listed or removed.
pub trait VoiceStore: Send + Sync {
    /// Names, those that are kept first.
    fn names(&self) -> Result<Vec<String>, VoiceError>;

    /// Removes one that is kept.
    fn remove(&self, name: &str) -> Result<(), VoiceError>;

    /// What is known of one that is kept, and could be removed; none for those of the model itself.
    fn details(&self, name: &str) -> Result<Option<VoiceDetails>, VoiceError>;
}

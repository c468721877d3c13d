//! The synthesiser interface of the server.

use crate::metrics::Metrics;
use crate::queue::Jobs;
use myxtts_speak::reference::ReferenceReport;
use myxtts_speak::voices::VoiceError;

/// Samples per second of all audio that is sent; OpenAI's API specifies it for PCM.
pub const RATE: u32 = 24_000;

/// Speaks the jobs of a queue. It stays on the worker thread on which it was opened.
pub trait Speaker {
    /// Static properties of the model.
    fn facts(&self) -> SpeakerFacts;

    /// Memory that opening it used, in bytes, if known.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Speaks something once, so that the first client does not wait for lazy initialisation. Called before
    /// [`Speaker::work`].
    fn warm_up(&mut self) -> Result<(), myxtts_speak::SpeakError>;

    /// Processes jobs until the queue is closed or the device fails. A sequential speaker calls [`Jobs::next`]; one that
    /// speaks several jobs at once calls [`Jobs::try_next`] between two steps while it has capacity.
    fn work(&mut self, jobs: &Jobs, metrics: &Metrics) -> Result<(), myxtts_speak::SpeakError>;
}

/// Static properties of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerFacts {
    /// Language codes it supports.
    pub languages: Vec<String>,
}

/// A text to speak, with its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// The text, at most [`crate::limits::TEXT_CHARACTERS`] characters.
    pub text: String,
    /// Voice name, a mix such as `anna(2)+ben(1)`, or `default`. Never a path.
    pub voice: String,
    /// Language code; `None` guesses it from the text.
    pub language: Option<String>,
    /// Speed factor, 0.25 to 4.
    pub speed: f64,
    /// Random seed; the same seed gives the same audio.
    pub seed: u64,
    /// Overrides of the model's default sampling.
    pub sampling: Sampling,
}

/// Sampling options of a client; `None` uses the model's default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Temperature, above 0.
    pub temperature: Option<f32>,
    /// Number of most likely codes to sample from; 0 for all.
    pub top_k: Option<usize>,
    /// Nucleus probability, above 0 and at most 1.
    pub top_p: Option<f32>,
    /// Repetition penalty, above 0; 1 disables it.
    pub repetition_penalty: Option<f32>,
}

/// Token counts of an utterance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Text tokens.
    pub text_tokens: usize,
    /// Audio codes.
    pub audio_tokens: usize,
}

impl Usage {
    /// The counts in the format of OpenAI's API.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::json!({
            "input_tokens": self.text_tokens,
            "output_tokens": self.audio_tokens,
            "total_tokens": self.text_tokens + self.audio_tokens,
        })
    }
}

/// Why an utterance was not spoken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpeakerError {
    /// The request is invalid.
    #[error("{message}")]
    Refused {
        /// Field of the request.
        param: &'static str,
        /// Machine-readable error code.
        code: &'static str,
        /// Description for the user.
        message: String,
    },
    /// The request took longer than [`crate::limits::REQUEST_TIME`].
    #[error("the request took too long and was stopped")]
    TimedOut,
    /// The server is stopping, or its speaker has ended.
    #[error("the server is stopping")]
    Stopping,
    /// The speaker failed.
    #[error("{0}")]
    Failed(String),
}

/// A voice that was encoded from an uploaded recording and stored.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedVoice {
    /// Length of the recording in seconds.
    pub seconds: f64,
    /// Advice on improving the recording.
    pub advice: Vec<String>,
}

/// Details of a stored voice.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceDetails {
    /// Total length of its recordings in seconds.
    pub seconds: f64,
    /// Quality report of the recordings, if available.
    pub report: Option<ReferenceReport>,
}

/// Stored voices; listing and removing them needs no open model.
pub trait VoiceStore: Send + Sync {
    /// Names of all voices, stored ones first.
    fn names(&self) -> Result<Vec<String>, VoiceError>;

    /// Removes a stored voice.
    fn remove(&self, name: &str) -> Result<(), VoiceError>;

    /// Details of a stored voice; `None` for built-in voices of the model, which cannot be removed.
    fn details(&self, name: &str) -> Result<Option<VoiceDetails>, VoiceError>;
}

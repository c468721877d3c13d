//! A spoken text: its samples and how it was made.

use crate::guard::{Attempt, Flaw};
use myxtts_model::StopReason;
use serde::{Deserialize, Serialize};

/// A spoken text.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// Mono, in [-1, 1] except for peaks without a decoder.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
    /// The text after cleaning.
    pub cleaned: String,
    /// Number of text tokens.
    pub tokens: usize,
    /// Characters that are missing in the vocabulary and were not spoken.
    pub unknown: Vec<char>,
    /// Number of codes.
    pub codes: usize,
    /// Why generation ended.
    pub ended: StopReason,
    /// The flaw that remains after all attempts; `None` if there is none, or if it was not checked.
    pub flaw: Option<Flaw>,
    /// All attempts in order, including the one returned.
    pub attempts: Vec<Attempt>,
    /// Number of samples of leading silence that were removed.
    pub trimmed: usize,
}

impl Waveform {
    /// Duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}

/// How well the GPT predicts the codes of a recording (teacher forcing).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Mean cross-entropy of the codes and the stop token, in nats.
    pub loss: f64,
    /// Fraction of codes that were the most likely prediction.
    pub accuracy: f64,
}

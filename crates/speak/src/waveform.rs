//! What was said, as sound and in figures.

use crate::guard::{Attempt, Flaw};
use myxtts_model::Ended;
use serde::{Deserialize, Serialize};

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// Mono, in [-1, 1] but for peaks of early sound.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
    /// The text as it was read.
    pub cleaned: String,
    /// Its tokens.
    pub tokens: usize,
    /// Characters that the vocabulary does not have and that were not said.
    pub unknown: Vec<char>,
    /// Codes that were said.
    pub codes: usize,
    /// Why it ended.
    pub ended: Ended,
    /// What is wrong with it still; none where it is as such a text should be, or where nobody looked.
    pub flaw: Option<Flaw>,
    /// All tries in their order, this one among them.
    pub attempts: Vec<Attempt>,
    /// Samples of silence that were left out before the first.
    pub cut: usize,
}

impl Waveform {
    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}

/// How well the GPT predicts the codes of a recording that it is given one by one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Mean cross-entropy of the codes and their end, in nats.
    pub loss: f64,
    /// The share that was most likely.
    pub accuracy: f64,
}

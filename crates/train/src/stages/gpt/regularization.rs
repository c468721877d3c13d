//! The settings of what keeps the GPT from memorising clips.

use crate::align::Alignments;
use std::sync::Arc;

/// Options against memorising clips. The default does nothing.
#[derive(Clone, Debug, Default)]
pub struct Regularization {
    /// Share of input codes that are hidden.
    pub masking: f64,
    /// Share of rows that are made of pieces of several clips.
    pub recombination: f64,
    /// Weight of the alignment head's loss; 0 leaves it out.
    pub alignment_weight: f64,
    /// Whether attention begins along the text, in a GPT that begins from nothing.
    pub diagonal: bool,
    /// Share of rows whose text is left out.
    pub text_dropout: f64,
    /// Whether codes begin as the DVAE's vectors of them, in a GPT that begins from nothing.
    pub codebook_start: bool,
    /// Which token each code says; recombination, head and diagonal start need it.
    pub alignments: Option<Arc<Alignments>>,
    /// The token of a space.
    pub space: i32,
}

impl Regularization {
    /// Whether any part of it has to know which token each code says.
    pub fn needs_alignments(&self) -> bool {
        self.recombination > 0.0 || self.alignment_weight > 0.0 || self.diagonal
    }

    /// Whether an alignment head is trained.
    pub fn aligns(&self) -> bool {
        self.alignment_weight > 0.0 && self.alignments.is_some()
    }

    /// Tokens per code that attention begins with, where it does.
    pub fn diagonal_rate(&self) -> Option<f64> {
        self.alignments.as_ref().filter(|_| self.diagonal)?.rate()
    }

    /// In words, for the stage's description.
    pub(super) fn described(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut parts = Vec::new();
        if self.masking > 0.0 {
            parts.push(format!("{} of the input codes masked", percent(self.masking)));
        }
        if self.recombination > 0.0 && self.alignments.is_some() {
            parts.push(format!("{} of the rows joined from pieces of clips", percent(self.recombination)));
        }
        if self.aligns() {
            parts.push(format!("an alignment head with weight {}", self.alignment_weight));
        }
        if self.text_dropout > 0.0 {
            parts.push(format!("{} of the rows without their text", percent(self.text_dropout)));
        }
        if self.diagonal_rate().is_some() {
            parts.push("attention starting along the text".to_owned());
        }
        (!parts.is_empty()).then(|| format!("against learning by heart: {}", parts.join(", ")))
    }
}

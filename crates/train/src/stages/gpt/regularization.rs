//! Settings against memorising clips.

use crate::align::Alignments;
use std::sync::Arc;

/// Options against memorising clips. The default does nothing.
#[derive(Clone, Debug, Default)]
pub struct Regularization {
    /// Share of input codes that are masked, 0 to 1.
    pub masking: f64,
    /// Share of rows that are recombined from segments of several clips, 0 to 1.
    pub recombination: f64,
    /// Weight of the alignment head's loss; 0 leaves it out.
    pub alignment_weight: f64,
    /// Weight of the acoustic head's loss; 0 leaves it out.
    pub acoustic_weight: f64,
    /// Whether attention is initialised along the text, in a GPT trained from scratch.
    pub diagonal: bool,
    /// Share of rows without their text, 0 to 1.
    pub text_dropout: f64,
    /// Whether code embeddings are initialised with the DVAE's vectors, in a GPT trained from scratch.
    pub codebook_start: bool,
    /// The token spoken at each code; required by recombination, alignment head and diagonal start.
    pub alignments: Option<Arc<Alignments>>,
    /// Id of the space token.
    pub space: i32,
}

impl Regularization {
    /// Whether any setting requires alignments.
    pub(crate) fn needs_alignments(&self) -> bool {
        self.recombination > 0.0 || self.alignment_weight > 0.0 || self.diagonal
    }

    /// Whether an alignment head is trained.
    pub(crate) fn aligns(&self) -> bool {
        self.alignment_weight > 0.0 && self.alignments.is_some()
    }

    /// Tokens per code of the initial attention; `None` without diagonal start.
    pub(crate) fn diagonal_rate(&self) -> Option<f64> {
        self.alignments.as_ref().filter(|_| self.diagonal)?.rate()
    }

    /// One line for the stage's description; `None` if everything is off.
    pub(super) fn described(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut parts = Vec::new();
        if self.masking > 0.0 {
            parts.push(format!("{} of the input codes masked", percent(self.masking)));
        }
        if self.recombination > 0.0 && self.alignments.is_some() {
            parts.push(format!(
                "{} of the rows recombined from segments of clips",
                percent(self.recombination)
            ));
        }
        if self.aligns() {
            parts.push(format!("an alignment head with weight {}", self.alignment_weight));
        }
        if self.acoustic_weight > 0.0 {
            parts.push(format!("an acoustic head with weight {}", self.acoustic_weight));
        }
        if self.text_dropout > 0.0 {
            parts.push(format!("{} of the rows without their text", percent(self.text_dropout)));
        }
        if self.diagonal_rate().is_some() {
            parts.push("attention starting along the text".to_owned());
        }
        (!parts.is_empty()).then(|| format!("against overfitting: {}", parts.join(", ")))
    }
}

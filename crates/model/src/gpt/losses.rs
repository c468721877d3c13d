//! Losses of the GPT and their weights.

use super::{Gpt, GptOutputs, GptTargets};
use myxtts_tensor::{Tape, Value};

/// Weights of the losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights {
    /// Weight of the text loss.
    pub text: f32,
    /// Weight of the code loss.
    pub mel: f32,
    /// Weight of the alignment head's loss.
    pub alignment: f32,
    /// Weight of the acoustic head's loss.
    pub acoustic: f32,
    /// Label smoothing: the share of each target spread over all classes.
    pub smoothing: f32,
}

impl Default for LossWeights {
    fn default() -> LossWeights {
        LossWeights { text: 0.01, mel: 1.0, alignment: 0.0, acoustic: 0.0, smoothing: 0.0 }
    }
}

/// Losses of a step, each one f32.
#[derive(Clone, Copy, Debug)]
pub struct GptLosses {
    /// The weighted sum that is minimised.
    pub total: Value,
    /// Mean over the text targets that count.
    pub text: Value,
    /// Mean over the code targets that count.
    pub mel: Value,
    /// Number of codes predicted correctly.
    pub mel_correct: Value,
    /// Number of codes that count.
    pub mel_count: Value,
    /// Loss of the alignment head and its number of correct answers, if it has targets.
    pub alignment: Option<(Value, Value)>,
    /// Mean absolute error of the acoustic head over all positions, if it has targets.
    pub acoustic: Option<Value>,
}

impl GptLosses {
    /// Number of report notes used by these losses.
    pub const NOTES: usize = 7;

    /// Returns the weighted sum of the losses.
    pub fn weighted(&self, tape: &mut Tape, weights: LossWeights) -> Value {
        let mut parts = vec![(self.text, weights.text), (self.mel, weights.mel)];
        parts.extend(self.alignment.map(|(loss, _)| (loss, weights.alignment)));
        parts.extend(self.acoustic.map(|loss| (loss, weights.acoustic)));
        tape.weighted_sum(&parts)
    }

    /// Writes text loss, code loss, correct codes, counted codes, the alignment head's loss and correct answers, and
    /// the acoustic head's loss into the report's notes from `first` on. Accuracy is the third over the fourth. All of
    /// them can be summed over steps and replicas.
    pub fn note(&self, tape: &mut Tape, first: usize) {
        for (i, value) in [self.text, self.mel, self.mel_correct, self.mel_count].into_iter().enumerate() {
            tape.note(first + i, value);
        }
        if let Some((loss, correct)) = self.alignment {
            tape.note(first + 4, loss);
            tape.note(first + 5, correct);
        }
        if let Some(loss) = self.acoustic {
            tape.note(first + 6, loss);
        }
    }
}

impl Gpt {
    /// Computes the losses of a training pass.
    pub fn losses(
        &self,
        tape: &mut Tape,
        outputs: &GptOutputs,
        targets: &GptTargets,
        weights: LossWeights,
    ) -> GptLosses {
        tape.scope("loss", |tape| {
            let text = tape.cross_entropy(outputs.text_logits, targets.text, weights.smoothing);
            let mel = tape.cross_entropy(outputs.mel_logits, targets.mel, weights.smoothing);
            let alignment = outputs.alignment_logits.zip(targets.spoken).map(|(logits, spoken)| {
                let found = tape.cross_entropy(logits, spoken, 0.0);
                (found.loss, found.correct)
            });
            let acoustic =
                outputs.acoustic.zip(targets.acoustic).map(|(made, mels)| tape.l1_loss(made, mels));
            let (mel_correct, mel_count) = (mel.correct, mel.count);
            let (text, mel) = (text.loss, mel.loss);
            let mut losses = GptLosses { total: mel, text, mel, mel_correct, mel_count, alignment, acoustic };
            losses.total = losses.weighted(tape, weights);
            losses
        })
    }
}

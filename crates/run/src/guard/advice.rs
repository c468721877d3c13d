//! Advice from the validations of a stage: overfitting, or a model that ignores the text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Minimum relative rise of the score and fall of the training loss that count.
const SIGNIFICANT_CHANGE: f64 = 0.01;
/// Consecutive validations that must show overfitting: a single one may be noise.
const IN_A_ROW: u32 = 2;
/// Number of validations after which a text gain near zero is reported.
const TEXT_VALIDATIONS: u32 = 3;
/// Text gain in nats below which the text counts as ignored.
const MIN_TEXT_GAIN: f64 = 0.02;

/// Detects overfitting and ignored text in the validations of a stage, and reports each once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingAdvisor {
    best: Option<Validation>,
    overfitting: u32,
    ignoring: u32,
    validations: u32,
    #[serde(rename = "told_overfitting")]
    overfitting_reported: bool,
}

/// One validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Validation {
    step: u64,
    score: f64,
    training: f64,
}

/// A finding that is reported once per stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrainingAdvice {
    /// The validation loss rises while the training loss falls.
    Overfitting {
        /// Step of the best validation so far.
        best_step: u64,
        /// Score of the best validation; lower is better.
        best: f64,
        /// Score of the current validation.
        score: f64,
        /// Training loss at the best validation, and the current one.
        training: (f64, f64),
        /// Step of the weights that the model would take now.
        kept_step: u64,
    },
    /// With the texts of other clips the loss is the same as with the right text.
    TextIgnored {
        /// The last text gain in nats.
        gain: f64,
    },
}

impl TrainingAdvisor {
    /// Adds a validation: its step, its loss, the mean of the recent training losses, and the text gain if it was measured.
    /// `kept_step` is the step of the weights that the model would take now, which may be chosen by another measure.
    pub fn observe(
        &mut self,
        (step, kept_step): (u64, u64),
        score: f64,
        training: Option<f64>,
        text_gain: Option<f64>,
    ) -> Vec<TrainingAdvice> {
        let mut advice = Vec::new();
        advice.extend(text_gain.and_then(|gain| self.check_text_gain(gain)));
        if let Some(training) = training.filter(|training| training.is_finite() && score.is_finite()) {
            advice.extend(self.check_overfitting(Validation { step, score, training }, kept_step));
        }
        advice
    }

    fn check_text_gain(&mut self, gain: f64) -> Option<TrainingAdvice> {
        self.validations = self.validations.saturating_add(1);
        if gain < MIN_TEXT_GAIN {
            self.ignoring += 1;
        }
        (self.validations == TEXT_VALIDATIONS && self.ignoring == TEXT_VALIDATIONS)
            .then_some(TrainingAdvice::TextIgnored { gain })
    }

    fn check_overfitting(&mut self, now: Validation, kept_step: u64) -> Option<TrainingAdvice> {
        let best = match self.best {
            Some(best) if now.score >= best.score => best,
            _ => {
                (self.best, self.overfitting) = (Some(now), 0);
                return None;
            }
        };
        let risen = now.score - best.score > SIGNIFICANT_CHANGE * best.score.abs();
        let fallen = best.training - now.training > SIGNIFICANT_CHANGE * best.training.abs();
        self.overfitting = if risen && fallen { self.overfitting + 1 } else { 0 };
        if self.overfitting < IN_A_ROW || self.overfitting_reported {
            return None;
        }
        self.overfitting_reported = true;
        Some(TrainingAdvice::Overfitting {
            best_step: best.step,
            best: best.score,
            score: now.score,
            training: (best.training, now.training),
            kept_step,
        })
    }

    /// Forgets earlier scores, for when they are no longer comparable with later ones.
    pub fn restart(&mut self) {
        (self.best, self.overfitting) = (None, 0);
    }
}

impl fmt::Display for TrainingAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainingAdvice::Overfitting { best_step, best, score, training: (before, now), kept_step } => {
                // A GPT still learns to read while its loss rises: its weights are chosen by accuracy.
                let kept = match kept_step > best_step {
                    true => "its score has still improved, so training goes on",
                    false => "more steps will not help",
                };
                write!(
                    f,
                    "overfitting: since step {best_step} the validation loss rose from {best:.3} to {score:.3} while the \
                     training loss fell from {before:.3} to {now:.3}; the weights of step {kept_step}, the best score, are kept; \
                     {kept}: add recordings, fine-tune a model (--from), raise training.dropout or choose a smaller --preset"
                )
            }
            TrainingAdvice::TextIgnored { gain } => write!(
                f,
                "the text gain stays near zero ({gain:.3}): the model does not use the text yet; if that lasts, add \
                 recordings, lower data.vocab_size or fine-tune a model (--from)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overfitting_is_reported_once_after_two_consecutive_validations() {
        let mut advisor = TrainingAdvisor::default();
        let mut reported = Vec::new();
        // (validation, training): better, noise, better, then diverging.
        for (i, (score, training)) in
            [(6.2, 6.5), (6.3, 6.0), (6.0, 5.8), (6.2, 5.0), (6.6, 4.0), (7.0, 3.0)].into_iter().enumerate()
        {
            reported.push(advisor.observe((100 * (i as u64 + 1), 300), score, Some(training), None));
        }
        let counts: Vec<usize> = reported.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 0, 0, 0, 1, 0]);
        let message = reported[4][0].to_string();
        assert!(message.contains("since step 300") && message.contains("6.000 to 6.600"), "{message}");
        assert!(message.contains("more steps will not help"), "{message}");
    }

    #[test]
    fn more_steps_were_called_useless_while_the_score_improved() {
        // Loss and training loss of a run of 2026-11-16 on digits: it kept the weights of step 1400, by accuracy.
        let mut advisor = TrainingAdvisor::default();
        let mut message = String::new();
        for (step, score, training) in [(800, 5.161, 3.098), (900, 5.23, 2.8), (1000, 5.275, 2.606)] {
            let advice = advisor.observe((step, step), score, Some(training), None);
            message.extend(advice.iter().map(ToString::to_string));
        }
        assert!(
            message.contains("the weights of step 1000") && message.contains("training goes on"),
            "{message}"
        );
        assert!(!message.contains("will not help"), "{message}");
    }

    #[test]
    fn a_rising_training_loss_is_not_overfitting() {
        let mut advisor = TrainingAdvisor::default();
        for i in 0..9 {
            let rising = 5.0 + f64::from(i);
            assert_eq!(advisor.observe((u64::from(i as u32), 0), rising, Some(rising), None), []);
        }
    }

    #[test]
    fn ignored_text_is_reported_once_and_only_at_the_start() {
        let mut advisor = TrainingAdvisor::default();
        let reported: Vec<usize> =
            (0..6).map(|i| advisor.observe((i, i), 5.0 - i as f64, Some(5.0), Some(0.001)).len()).collect();
        assert_eq!(reported, [0, 0, 1, 0, 0, 0]);
        let mut advisor = TrainingAdvisor::default();
        for (i, gain) in [0.001, 0.3, 0.001, 0.0, 0.0].into_iter().enumerate() {
            assert_eq!(advisor.observe((i as u64, 0), 5.0, Some(5.0), Some(gain)), []);
        }
    }
}

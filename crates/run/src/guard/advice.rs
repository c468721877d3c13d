//! What validations say of the whole stage: that it overfits, or that the text is ignored.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A score that is this share above the best one has risen; a training loss this share below has fallen.
const CLEARLY: f64 = 0.01;
/// Validations in a row that must show it: one alone may be noise.
const IN_A_ROW: u32 = 2;
/// Validations after which a text gain that stayed near zero is worth a word.
const FIRST: u32 = 3;
/// A text gain below this many nats is near zero.
const NEAR_ZERO: f64 = 0.02;

/// Looks for overfitting and for ignored text in the validations of a stage, and says each once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Advice {
    best: Option<Seen>,
    overfitting: u32,
    ignoring: u32,
    validations: u32,
    told_overfitting: bool,
}

/// A validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    step: u64,
    score: f64,
    training: f64,
}

/// Something to be told once per stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advised {
    /// The validation loss rises while the training loss falls.
    Overfitting {
        /// Step of the best validation so far.
        best_step: u64,
        /// Its score.
        best: f64,
        /// The score now.
        score: f64,
        /// Training loss at the best validation and now.
        training: (f64, f64),
    },
    /// Text from other clips serves the model as well as the right one.
    TextIgnored {
        /// The last text gain, in nats.
        gain: f64,
    },
}

impl Advice {
    /// Takes a validation: after how many steps, its score (lower is better), the mean of the last training losses,
    /// and the text gain where there is one.
    pub fn observe(
        &mut self,
        step: u64,
        score: f64,
        training: Option<f64>,
        text_gain: Option<f64>,
    ) -> Vec<Advised> {
        let mut advised = Vec::new();
        advised.extend(text_gain.and_then(|gain| self.text(gain)));
        if let Some(training) = training.filter(|training| training.is_finite() && score.is_finite()) {
            advised.extend(self.overfitting(Seen { step, score, training }));
        }
        advised
    }

    fn text(&mut self, gain: f64) -> Option<Advised> {
        self.validations = self.validations.saturating_add(1);
        if gain < NEAR_ZERO {
            self.ignoring += 1;
        }
        (self.validations == FIRST && self.ignoring == FIRST).then_some(Advised::TextIgnored { gain })
    }

    fn overfitting(&mut self, now: Seen) -> Option<Advised> {
        let best = match self.best {
            Some(best) if now.score >= best.score => best,
            _ => {
                (self.best, self.overfitting) = (Some(now), 0);
                return None;
            }
        };
        let risen = now.score - best.score > CLEARLY * best.score.abs();
        let fallen = best.training - now.training > CLEARLY * best.training.abs();
        self.overfitting = if risen && fallen { self.overfitting + 1 } else { 0 };
        if self.overfitting < IN_A_ROW || self.told_overfitting {
            return None;
        }
        self.told_overfitting = true;
        Some(Advised::Overfitting {
            best_step: best.step,
            best: best.score,
            score: now.score,
            training: (best.training, now.training),
        })
    }

    /// From now on scores measure something else: the next validation is the first to compare with.
    pub fn restart(&mut self) {
        (self.best, self.overfitting) = (None, 0);
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advised::Overfitting { best_step, best, score, training: (before, now) } => write!(
                f,
                "overfitting: since step {best_step} the loss on held-out clips rose from {best:.3} to {score:.3} while the \
                 training loss fell from {before:.3} to {now:.3}; the weights of the best validation are kept, and more \
                 steps will not help: add recordings, begin from a model (--from), raise training.dropout or take a \
                 smaller --preset"
            ),
            Advised::TextIgnored { gain } => write!(
                f,
                "the text gain stays near zero ({gain:.3}): the model does not use the text yet; if that lasts, more \
                 recordings, a smaller data.vocab_size or a model to begin from (--from) help"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overfitting_is_told_once_after_two_validations_in_a_row() {
        let mut advice = Advice::default();
        let mut told = Vec::new();
        // (validation, training): better, noise, better, then apart for good.
        for (i, (score, training)) in
            [(6.2, 6.5), (6.3, 6.0), (6.0, 5.8), (6.2, 5.0), (6.6, 4.0), (7.0, 3.0)].into_iter().enumerate()
        {
            told.push(advice.observe(100 * (i as u64 + 1), score, Some(training), None));
        }
        let counts: Vec<usize> = told.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 0, 0, 0, 1, 0]);
        let words = told[4][0].to_string();
        assert!(words.contains("since step 300") && words.contains("6.000 to 6.600"), "{words}");
    }

    #[test]
    fn a_training_loss_that_rises_too_is_no_overfitting() {
        let mut advice = Advice::default();
        for i in 0..9 {
            let rising = 5.0 + f64::from(i);
            assert_eq!(advice.observe(u64::from(i as u32), rising, Some(rising), None), []);
        }
    }

    #[test]
    fn ignored_text_is_told_once_and_only_at_the_beginning() {
        let mut advice = Advice::default();
        let told: Vec<usize> =
            (0..6).map(|i| advice.observe(i, 5.0 - i as f64, Some(5.0), Some(0.001)).len()).collect();
        assert_eq!(told, [0, 0, 1, 0, 0, 0]);
        let mut advice = Advice::default();
        for (i, gain) in [0.001, 0.3, 0.001, 0.0, 0.0].into_iter().enumerate() {
            assert_eq!(advice.observe(i as u64, 5.0, Some(5.0), Some(gain)), []);
        }
    }
}

//! Is it what such a text sounds like? Expected length, loops, silences and early stops, and which of several tries is best.

use myxtts_data::check::Pace;
use myxtts_model::Ended;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Seconds of breath and silence that any text may have besides what it says.
const SPARE_SECONDS: f64 = 2.0;

/// How many times longer than the fastest reading the slowest is: about a quarter of the ordinary pace.
const SLOWEST: f64 = 10.0;

/// Letters a second of scripts that nobody has measured: the fastest and the slowest that may be.
const UNKNOWN_FASTEST: f64 = 33.0;
const UNKNOWN_SLOWEST: f64 = 12.0;

/// A pause that no reader makes within a sentence.
const LONG_SILENCE: f64 = 2.0;

/// Frames so many dB below the loudest are silent.
const SILENT_DB: f32 = 45.0;

/// A waveform whose loudest frame is below this has no sound: -60 dBFS.
const INAUDIBLE: f32 = 1e-3;

const FRAME_MS: u32 = 20;

/// What is wrong with speech by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Flaw {
    /// Nothing can be heard.
    Silent,
    /// It stopped before so much text can be said.
    EarlyStop {
        /// Seconds that were said.
        seconds: f64,
        /// Seconds that the fastest reader needs.
        least: f64,
    },
    /// It said the same again and again.
    Loop,
    /// It went on for longer than such a text can take, and was stopped.
    NoEnd,
    /// A silence inside it, or at one of its ends.
    LongSilence {
        /// How long.
        seconds: f64,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Silent => f.write_str("nothing can be heard"),
            Flaw::EarlyStop { seconds, least } => {
                write!(f, "it stopped after {seconds:.1} s, and such a text takes {least:.1} s and more")
            }
            Flaw::Loop => f.write_str("it said the same again and again and was stopped"),
            Flaw::NoEnd => f.write_str("it did not find its end and was stopped"),
            Flaw::LongSilence { seconds } => write!(f, "it is silent for {seconds:.1} s"),
        }
    }
}

impl Flaw {
    /// How bad it is to listen to.
    fn rank(self) -> u8 {
        match self {
            Flaw::LongSilence { .. } => 1,
            Flaw::NoEnd => 2,
            Flaw::Loop => 3,
            Flaw::EarlyStop { .. } => 4,
            Flaw::Silent => 5,
        }
    }
}

/// One try at saying a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The seed of its draws: `--seed` says the same again.
    pub seed: u64,
    /// Why it ended.
    pub ended: Ended,
    /// Codes it said.
    pub codes: usize,
    /// What was wrong with it.
    pub flaw: Option<Flaw>,
    /// How far its codes are from saying the text, per token (0: not at all), where the model can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<f64>,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} codes", self.seed, self.codes)?;
        if let Some(mismatch) = self.mismatch {
            write!(f, ", {mismatch:.2} off the text")?;
        }
        self.flaw.map_or(Ok(()), |flaw| write!(f, ", {flaw}"))
    }
}

impl Attempt {
    /// Whether its codes are a better reading than another's of the same text.
    pub(crate) fn says_more(&self, other: &Attempt) -> bool {
        let rank = |attempt: &Attempt| attempt.flaw.map_or(0, Flaw::rank);
        let mismatch = |attempt: &Attempt| attempt.mismatch.unwrap_or(0.0);
        (rank(self), mismatch(self)) < (rank(other), mismatch(other))
    }
}

/// Whether a try is better than the best before it.
pub(crate) fn is_better(flaw: Option<Flaw>, best: Option<Flaw>) -> bool {
    flaw.map_or(0, Flaw::rank) < best.map_or(0, Flaw::rank)
}

/// How long a text is when it is spoken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Seconds that the fastest reader needs.
    pub least: f64,
    /// Seconds that the slowest takes.
    pub most: f64,
}

impl Expected {
    /// Of a text as it is read aloud: numbers and abbreviations written out.
    pub fn of(cleaned: &str) -> Expected {
        let pace = Pace::of(cleaned);
        let letters = cleaned.chars().filter(|c| c.is_alphanumeric()).count();
        let unknown = letters.saturating_sub(pace.letters) as f64;
        Expected {
            least: pace.least_seconds + unknown / UNKNOWN_FASTEST,
            most: SPARE_SECONDS + SLOWEST * pace.least_seconds + SLOWEST * unknown / UNKNOWN_SLOWEST,
        }
    }

    /// What is wrong with codes that ended so, `per_second` of them in a second.
    pub(crate) fn judge(&self, ended: Ended, codes: usize, per_second: f64) -> Option<Flaw> {
        let seconds = codes as f64 / per_second;
        match ended {
            Ended::Loop => Some(Flaw::Loop),
            Ended::Limit | Ended::TooManyForText => Some(Flaw::NoEnd),
            Ended::Stop if seconds < self.least => Some(Flaw::EarlyStop { seconds, least: self.least }),
            Ended::Stop | Ended::Watcher => None,
        }
    }
}

/// Silences, in samples that come in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Silences {
    rate: u32,
    frame: usize,
    rest: Vec<f32>,
    /// The level of every frame.
    levels: Vec<f32>,
}

impl Silences {
    pub(crate) fn new(rate: u32) -> Silences {
        Silences {
            rate,
            frame: (rate * FRAME_MS / 1000).max(1) as usize,
            rest: Vec::new(),
            levels: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, samples: &[f32]) {
        self.rest.extend_from_slice(samples);
        let whole = self.rest.len() / self.frame * self.frame;
        let level = |frame: &[f32]| {
            (frame.iter().map(|sample| sample * sample).sum::<f32>() / frame.len() as f32).sqrt()
        };
        self.levels.extend(self.rest[..whole].chunks_exact(self.frame).map(level));
        self.rest.drain(..whole);
    }

    fn loudest(&self) -> f32 {
        self.levels.iter().copied().fold(0.0, f32::max)
    }

    /// Seconds of silence at the end so far; 0 before anything was heard.
    pub(crate) fn is_stuck(&self) -> bool {
        let threshold = self.threshold();
        let quiet = self.levels.iter().rev().take_while(|level| **level < threshold).count();
        self.loudest() >= INAUDIBLE && quiet < self.levels.len() && self.seconds(quiet) > LONG_SILENCE
    }

    /// What is wrong with all of it.
    pub(crate) fn judge(&self) -> Option<Flaw> {
        if self.loudest() < INAUDIBLE {
            return Some(Flaw::Silent);
        }
        let threshold = self.threshold();
        let (mut run, mut longest) = (0, 0);
        for level in &self.levels {
            run = if *level < threshold { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let seconds = self.seconds(longest);
        (seconds > LONG_SILENCE).then_some(Flaw::LongSilence { seconds })
    }

    fn threshold(&self) -> f32 {
        self.loudest() * 10f32.powf(-SILENT_DB / 20.0)
    }

    fn seconds(&self, frames: usize) -> f64 {
        (frames * self.frame) as f64 / f64::from(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 22_050.0 / 1024.0;

    fn codes(seconds: f64) -> usize {
        (seconds * RATE).round() as usize
    }

    #[test]
    fn ordinary_readings_are_expected_and_cut_or_endless_ones_are_not() {
        for text in [
            "The quick brown fox jumps over the lazy dog, and then it sleeps.",
            "این یک جمله‌ی کوتاه برای آزمودن است.",
            "今日は天気がいいですね。",
            "Καλημέρα, τι κάνετε σήμερα;",
        ] {
            let expected = Expected::of(text);
            // 40 % of the fastest pace is how people read.
            let ordinary = expected.least / 0.4;
            let judge = |seconds: f64, ended| expected.judge(ended, codes(seconds), RATE);
            assert_eq!(judge(ordinary, Ended::Stop), None, "{text}");
            assert_eq!(judge(2.0 * ordinary, Ended::Stop), None, "{text}");
            assert!(2.5 * ordinary < expected.most, "{text}: {expected:?}");
            assert!(
                matches!(judge(0.5 * expected.least, Ended::Stop), Some(Flaw::EarlyStop { .. })),
                "{text}"
            );
            assert_eq!(judge(ordinary, Ended::Loop), Some(Flaw::Loop));
            assert_eq!(judge(ordinary, Ended::Limit), Some(Flaw::NoEnd));
            assert_eq!(judge(ordinary, Ended::TooManyForText), Some(Flaw::NoEnd));
        }
    }

    #[test]
    fn very_short_inputs_and_quotes_that_end_in_a_question_have_a_bound_of_seconds() {
        for text in ["Hi", "No.", "a", "\"Really?\"", "Is it you?\"", "Stop!\"", "؟\"آیا"] {
            let expected = Expected::of(text);
            assert!(expected.most < 6.0, "{text}: {expected:?}");
            // One word takes half a second, and the shortest of them less.
            assert!(expected.least < 0.45 && expected.most > 2.0, "{text}: {expected:?}");
            assert_eq!(expected.judge(Ended::Stop, codes(0.6), RATE), None, "{text}");
        }
    }

    fn tone(seconds: f64, level: f32) -> Vec<f32> {
        (0..(seconds * 24_000.0) as usize).map(|i| level * (i as f32 * 0.1).sin()).collect()
    }

    #[test]
    fn silences_are_seen_while_they_last() {
        let mut silences = Silences::new(24_000);
        silences.push(&tone(3.0, 0.0));
        assert!(!silences.is_stuck(), "before the first sound it may still come");
        assert_eq!(silences.judge(), Some(Flaw::Silent));
        let mut silences = Silences::new(24_000);
        for piece in tone(1.0, 0.3).chunks(777) {
            silences.push(piece);
        }
        silences.push(&tone(1.9, 1e-4));
        assert!(!silences.is_stuck() && silences.judge().is_none());
        silences.push(&tone(0.3, 1e-4));
        assert!(silences.is_stuck());
        silences.push(&tone(1.0, 0.3));
        assert!(!silences.is_stuck());
        assert!(
            matches!(silences.judge(), Some(Flaw::LongSilence { seconds }) if (2.1..2.3).contains(&seconds))
        );
    }

    #[test]
    fn the_best_of_several_tries_is_the_one_with_the_least_of_a_flaw() {
        let early = Flaw::EarlyStop { seconds: 0.1, least: 1.0 };
        let order = [
            None,
            Some(Flaw::LongSilence { seconds: 3.0 }),
            Some(Flaw::NoEnd),
            Some(Flaw::Loop),
            Some(early),
            Some(Flaw::Silent),
        ];
        for (i, better) in order.iter().enumerate() {
            assert!(!is_better(*better, *better), "the first of equals stays");
            assert!(
                order[i + 1..].iter().all(|worse| is_better(*better, *worse) && !is_better(*worse, *better))
            );
        }
    }
}

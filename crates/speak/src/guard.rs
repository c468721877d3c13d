//! Checks speech for flaws: unexpected length, loops, long silences and early stops; and ranks attempts.

use myxtts_data::check::SpeakingTime;
use myxtts_model::StopReason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Seconds of breath and silence that any text may have in addition to its speech.
const SPARE_SECONDS: f64 = 2.0;

/// Duration of the slowest plausible speech over the fastest: about a quarter of the ordinary pace.
const SLOWEST: f64 = 10.0;

/// Letters per second, fastest and slowest, of scripts without measured rates.
const UNKNOWN_FASTEST: f64 = 33.0;
const UNKNOWN_SLOWEST: f64 = 12.0;

/// Seconds; longer pauses do not occur within a sentence.
const LONG_SILENCE: f64 = 2.0;

/// Frames this many dB below the loudest one are silent.
const SILENT_DB: f32 = 45.0;

/// A waveform whose loudest frame is below this, -60 dBFS, is inaudible.
const INAUDIBLE: f32 = 1e-3;

/// Milliseconds of a frame whose level is measured.
const FRAME_MS: u32 = 20;

/// A flaw of generated speech.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Flaw {
    /// The waveform is inaudible.
    Silent,
    /// It is shorter than the fastest speech of the text.
    EarlyStop {
        /// Seconds of speech.
        seconds: f64,
        /// Seconds of the fastest plausible speech.
        least: f64,
    },
    /// The speech looped and was cut off.
    Loop,
    /// It did not end within the longest plausible duration and was stopped.
    NoEnd,
    /// A long silence inside it or at one of its ends.
    LongSilence {
        /// Duration of the silence.
        seconds: f64,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Silent => f.write_str("the waveform is silent"),
            Flaw::EarlyStop { seconds, least } => {
                write!(
                    f,
                    "it stopped after {seconds:.1} s; a text of this length takes at least {least:.1} s"
                )
            }
            Flaw::Loop => f.write_str("the speech looped and was cut off"),
            Flaw::NoEnd => f.write_str("it did not end by itself and was stopped"),
            Flaw::LongSilence { seconds } => write!(f, "it is silent for {seconds:.1} s"),
        }
    }
}

impl Flaw {
    /// Severity for a listener; higher is worse.
    fn severity(self) -> u8 {
        match self {
            Flaw::LongSilence { .. } => 1,
            Flaw::NoEnd => 2,
            Flaw::Loop => 3,
            Flaw::EarlyStop { .. } => 4,
            Flaw::Silent => 5,
        }
    }
}

/// One attempt at speaking a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Sampling seed; `--seed` with this value repeats the attempt.
    pub seed: u64,
    /// Why generation ended.
    pub ended: StopReason,
    /// Number of codes.
    pub codes: usize,
    /// The flaw found; `None` if there is none.
    pub flaw: Option<Flaw>,
    /// Alignment cost of codes and text per text token, 0 for a perfect match; `None` without a proofreader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<f64>,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} codes", self.seed, self.codes)?;
        if let Some(mismatch) = self.mismatch {
            write!(f, ", text mismatch {mismatch:.2}")?;
        }
        self.flaw.map_or(Ok(()), |flaw| write!(f, ", {flaw}"))
    }
}

impl Attempt {
    /// Whether this candidate ranks before another candidate of the same text: first by the severity of its flaw, then by
    /// `mismatch / codes^length_penalty`. A penalty of 0 divides by 1 and leaves the mismatch as it is.
    pub(crate) fn ranks_before(&self, other: &Attempt, length_penalty: f64) -> bool {
        let key = |attempt: &Attempt| {
            let length = attempt.codes.max(1) as f64;
            let severity = attempt.flaw.map_or(0, Flaw::severity);
            (severity, attempt.mismatch.unwrap_or(0.0) / length.powf(length_penalty))
        };
        key(self) < key(other)
    }
}

/// Whether an attempt's flaw is less severe than that of the best attempt so far.
pub(crate) fn is_better(flaw: Option<Flaw>, best: Option<Flaw>) -> bool {
    flaw.map_or(0, Flaw::severity) < best.map_or(0, Flaw::severity)
}

/// Plausible duration of a spoken text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedLength {
    /// Seconds of the fastest plausible speech.
    pub least: f64,
    /// Seconds of the slowest plausible speech.
    pub most: f64,
}

impl ExpectedLength {
    /// Estimates the duration of a cleaned text, in which numbers and abbreviations are written out.
    pub fn from_text(cleaned: &str) -> ExpectedLength {
        let speaking = SpeakingTime::from_text(cleaned);
        let letters = cleaned.chars().filter(|c| c.is_alphanumeric()).count();
        let unknown = letters.saturating_sub(speaking.letters) as f64;
        ExpectedLength {
            least: speaking.min_seconds + unknown / UNKNOWN_FASTEST,
            most: SPARE_SECONDS + SLOWEST * speaking.min_seconds + SLOWEST * unknown / UNKNOWN_SLOWEST,
        }
    }

    /// Returns the flaw of codes by their number and the reason they ended; `per_second` is the code rate.
    pub(crate) fn find_flaw(&self, ended: StopReason, codes: usize, per_second: f64) -> Option<Flaw> {
        let seconds = codes as f64 / per_second;
        match ended {
            StopReason::Loop => Some(Flaw::Loop),
            StopReason::Limit | StopReason::TooManyForText => Some(Flaw::NoEnd),
            StopReason::Stop if seconds < self.least => Some(Flaw::EarlyStop { seconds, least: self.least }),
            StopReason::Stop | StopReason::Observer => None,
        }
    }
}

/// Detects silence in samples that arrive in chunks.
#[derive(Clone, Debug)]
pub(crate) struct SilenceDetector {
    rate: u32,
    frame: usize,
    /// Samples of an incomplete frame.
    rest: Vec<f32>,
    /// RMS level of every frame.
    levels: Vec<f32>,
}

impl SilenceDetector {
    pub(crate) fn new(rate: u32) -> SilenceDetector {
        SilenceDetector {
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

    /// Whether the samples end with a long silence after audible speech.
    pub(crate) fn is_stuck(&self) -> bool {
        let threshold = self.threshold();
        let quiet = self.levels.iter().rev().take_while(|level| **level < threshold).count();
        self.loudest() >= INAUDIBLE && quiet < self.levels.len() && self.seconds(quiet) > LONG_SILENCE
    }

    /// Returns the flaw of all samples together.
    pub(crate) fn find_flaw(&self) -> Option<Flaw> {
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
    use myxtts_model::decoder::CODES_PER_SECOND as RATE;

    fn codes(seconds: f64) -> usize {
        (seconds * RATE).round() as usize
    }

    #[test]
    fn ordinary_durations_are_accepted_and_truncated_or_endless_ones_are_not() {
        for text in [
            "The quick brown fox jumps over the lazy dog, and then it sleeps.",
            "این یک جمله‌ی کوتاه برای آزمودن است.",
            "今日は天気がいいですね。",
            "Καλημέρα, τι κάνετε σήμερα;",
        ] {
            let expected = ExpectedLength::from_text(text);
            // People read at 40 % of the fastest pace.
            let ordinary = expected.least / 0.4;
            let judge = |seconds: f64, ended| expected.find_flaw(ended, codes(seconds), RATE);
            assert_eq!(judge(ordinary, StopReason::Stop), None, "{text}");
            assert_eq!(judge(2.0 * ordinary, StopReason::Stop), None, "{text}");
            assert!(2.5 * ordinary < expected.most, "{text}: {expected:?}");
            assert!(
                matches!(judge(0.5 * expected.least, StopReason::Stop), Some(Flaw::EarlyStop { .. })),
                "{text}"
            );
            assert_eq!(judge(ordinary, StopReason::Loop), Some(Flaw::Loop));
            assert_eq!(judge(ordinary, StopReason::Limit), Some(Flaw::NoEnd));
            assert_eq!(judge(ordinary, StopReason::TooManyForText), Some(Flaw::NoEnd));
        }
    }

    #[test]
    fn very_short_inputs_and_quotes_that_end_in_a_question_have_a_bound_of_seconds() {
        for text in ["Hi", "No.", "a", "\"Really?\"", "Is it you?\"", "Stop!\"", "؟\"آیا"] {
            let expected = ExpectedLength::from_text(text);
            assert!(expected.most < 6.0, "{text}: {expected:?}");
            // One word takes half a second, and the shortest of them less.
            assert!(expected.least < 0.45 && expected.most > 2.0, "{text}: {expected:?}");
            assert_eq!(expected.find_flaw(StopReason::Stop, codes(0.6), RATE), None, "{text}");
        }
    }

    fn tone(seconds: f64, level: f32) -> Vec<f32> {
        (0..(seconds * 24_000.0) as usize).map(|i| level * (i as f32 * 0.1).sin()).collect()
    }

    #[test]
    fn long_silences_are_detected_while_samples_arrive() {
        let mut silences = SilenceDetector::new(24_000);
        silences.push(&tone(3.0, 0.0));
        assert!(!silences.is_stuck(), "silence before the first speech is not a stall");
        assert_eq!(silences.find_flaw(), Some(Flaw::Silent));
        let mut silences = SilenceDetector::new(24_000);
        for piece in tone(1.0, 0.3).chunks(777) {
            silences.push(piece);
        }
        silences.push(&tone(1.9, 1e-4));
        assert!(!silences.is_stuck() && silences.find_flaw().is_none());
        silences.push(&tone(0.3, 1e-4));
        assert!(silences.is_stuck());
        silences.push(&tone(1.0, 0.3));
        assert!(!silences.is_stuck());
        assert!(
            matches!(silences.find_flaw(), Some(Flaw::LongSilence { seconds }) if (2.1..2.3).contains(&seconds))
        );
    }

    #[test]
    fn length_penalty_moves_the_choice_between_candidates_and_zero_leaves_it() {
        let candidate = |codes, mismatch, flaw| Attempt {
            seed: 0,
            ended: StopReason::Stop,
            codes,
            flaw,
            mismatch: Some(mismatch),
        };
        let (short, long) = (candidate(20, 1.0, None), candidate(40, 1.1, None));
        assert!(short.ranks_before(&long, 0.0) && !long.ranks_before(&short, 0.0));
        assert!(long.ranks_before(&short, 1.0) && !short.ranks_before(&long, 1.0));
        let better_long = candidate(40, 0.9, None);
        assert!(better_long.ranks_before(&short, 0.0));
        assert!(short.ranks_before(&better_long, -1.0));
        // A flaw counts before any length.
        let looped = candidate(400, 0.1, Some(Flaw::Loop));
        assert!(short.ranks_before(&looped, 10.0));
        // The first of two equal candidates is kept.
        assert!(!short.ranks_before(&short.clone(), 0.0));
        assert!(!candidate(0, 1.0, None).ranks_before(&candidate(0, 1.0, None), 1.0));
    }

    #[test]
    fn the_best_attempt_has_the_least_severe_flaw() {
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
            assert!(!is_better(*better, *better), "the first of two equal attempts is kept");
            assert!(
                order[i + 1..].iter().all(|worse| is_better(*better, *worse) && !is_better(*worse, *better))
            );
        }
    }
}

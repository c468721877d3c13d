//! All measures of one utterance, and the metrics over many of them.
//!
//! | metric | needs | how |
//! |---|---|---|
//! | WER, CER | a recogniser | errors over all words and characters ([`super::words`]) |
//! | mel-cepstral distortion | a recording | silence at the ends cut, aligned by warping ([`super::cepstrum`]) |
//! | mel distance | a recording | mean absolute difference of log-mels along the same path |
//! | log-F0 RMSE, voicing error | a recording | pitch along the same path ([`super::pitch`]) |
//! | duration ratio | a recording | without the silence at the ends |
//! | speaker cosine | a speaker encoder | the model's own: biased towards the output of this model |
//! | silence, pauses, loops | nothing | [`super::flaws`] |

use super::cepstrum;
use super::dtw::{DtwOptions, Frames, align};
use super::flaws::{self, Flaws};
use super::interval::{self, Figure};
use super::pitch;
use super::words::Score;
use myxtts_data::audio::{Clip, Resampler, trim_silence};
use myxtts_data::mel::{FrontEnd, MelExtractor};
use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Silence at the ends of a recording is cut where it is this many decibels below the loudest, except for this many
/// milliseconds.
const TRIM_DB: f32 = 45.0;
const KEEP_MS: f32 = 50.0;

/// Differences from the recording of the same text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceMeasures {
    /// Mel-cepstral distortion in dB.
    pub distortion: Option<f32>,
    /// Mean absolute difference of natural log-mels.
    pub mel_distance: Option<f32>,
    /// Root mean square difference of the natural logarithms of the pitch.
    pub log_f0_rmse: Option<f32>,
    /// Share of aligned frame pairs in which only one frame has a pitch.
    pub voicing_error: Option<f32>,
    /// Duration over that of the recording, both without silence at their ends.
    pub duration_ratio: Option<f32>,
}

/// The result of a recogniser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recognition {
    /// The transcript as the recogniser wrote it.
    pub transcript: String,
    /// Errors compared with the text.
    #[serde(flatten)]
    pub score: Score,
}

/// Measures of one utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Duration in seconds.
    pub seconds: f32,
    /// Flaws that show without a recording.
    #[serde(flatten)]
    pub flaws: Flaws,
    /// Differences from the recording; all `None` if there is none.
    #[serde(flatten)]
    pub against: ReferenceMeasures,
    /// Cosine between the speaker vectors of the audio and of its voice, by the model's own encoder.
    pub similarity: Option<f32>,
    /// Recogniser result; `None` without a recogniser.
    #[serde(flatten)]
    pub heard: Option<Recognition>,
}

/// Measures utterances. Reuse it: it caches front-ends.
pub struct Meter {
    extractor: MelExtractor,
}

/// Audio prepared for comparison: without silence at its ends, at the rate of the DVAE's front-end.
struct Spoken {
    samples: Vec<f32>,
    mel: Vec<f32>,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter::new()
    }
}

impl Meter {
    /// Creates a meter.
    pub fn new() -> Meter {
        Meter { extractor: MelExtractor::new(FrontEnd::Dvae) }
    }

    /// Measures audio, compared with the recording of the same text if there is one. The caller fills in speaker
    /// similarity and recognition.
    pub fn measure(&mut self, sound: &Clip, recording: Option<&Clip>) -> Measures {
        let hop = FrontEnd::Dvae.hop() as f32 / FrontEnd::Dvae.sample_rate() as f32;
        let whole = self.prepare(sound, false);
        let channels = FrontEnd::Dvae.channels();
        // Audio with NaN or Inf counts as silent.
        let flaws = match Frames::new(&whole.mel, channels) {
            Ok(frames) => flaws::flaws(&whole.samples, frames, hop),
            Err(_) => Flaws { silent: true, quiet: 1.0, ..Flaws::default() },
        };
        let against = recording.filter(|_| !flaws.silent).map(|recording| self.compare(sound, recording));
        Measures {
            seconds: sound.seconds() as f32,
            flaws,
            against: against.unwrap_or_default(),
            ..Measures::default()
        }
    }

    fn compare(&mut self, sound: &Clip, recording: &Clip) -> ReferenceMeasures {
        let (a, b) = (self.prepare(sound, true), self.prepare(recording, true));
        let channels = FrontEnd::Dvae.channels();
        let (Ok(x), Ok(y)) = (Frames::new(&a.mel, channels), Frames::new(&b.mel, channels)) else {
            return ReferenceMeasures::default();
        };
        let path = align(x, y, &DtwOptions::default());
        let apart = |&(i, j): &(usize, usize)| {
            let row = |mel: &[f32], at: usize| mel[at * channels..][..channels].to_vec();
            row(&a.mel, i).iter().zip(row(&b.mel, j)).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>()
        };
        let pairs = path.pairs.len();
        let mel_distance = path.pairs.iter().map(apart).sum::<f64>() / (pairs * channels) as f64;
        let pitches = pitch::compare(&pitch::pitch(&a.samples), &pitch::pitch(&b.samples), &path.pairs);
        let finite = |value: f32| Some(value).filter(|value| value.is_finite());
        ReferenceMeasures {
            distortion: finite(cepstrum::distortion_along(x, y, &path)),
            mel_distance: finite(mel_distance as f32),
            log_f0_rmse: pitches.and_then(|pitches| pitches.log_rmse),
            voicing_error: pitches.map(|pitches| pitches.voicing),
            duration_ratio: finite(a.samples.len() as f32 / b.samples.len() as f32),
        }
    }

    fn prepare(&mut self, clip: &Clip, trimmed: bool) -> Spoken {
        let rate = FrontEnd::Dvae.sample_rate();
        let mut samples = Resampler::new(clip.sample_rate, rate).resample(&clip.samples);
        if trimmed {
            samples = samples[trim_silence(&samples, rate, TRIM_DB, KEEP_MS)].to_vec();
        }
        let mut mel = Vec::new();
        self.extractor.compute(&samples, &mut mel);
        Spoken { samples, mel }
    }
}

/// A metric over many utterances: its key, title and unit, and how it is computed.
pub struct Metric {
    /// Its key in JSON reports.
    pub key: &'static str,
    /// Its name in text reports.
    pub title: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Numerator and denominator of one utterance.
    of: fn(&Measures) -> Option<(f64, f64)>,
}

/// Unit of a metric, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share in percent.
    Percent,
    /// Decibels.
    Decibels,
    /// Seconds.
    Seconds,
    /// A plain number.
    Plain,
}

impl Unit {
    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Percent => format!("{:.1} %", 100.0 * value),
            Unit::Decibels => format!("{value:.2} dB"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Plain => format!("{value:.3}"),
        }
    }
}

fn one(value: Option<f32>) -> Option<(f64, f64)> {
    value.map(|value| (f64::from(value), 1.0))
}

fn yes(flag: bool) -> Option<(f64, f64)> {
    one(Some(if flag { 1.0 } else { 0.0 }))
}

fn errors(errors: super::words::Errors) -> (f64, f64) {
    (errors.errors as f64, errors.of as f64)
}

/// All figures, in display order.
pub const METRICS: [Metric; 16] = {
    use Unit::{Decibels, Percent, Plain, Seconds};
    const fn metric(
        key: &'static str,
        title: &'static str,
        unit: Unit,
        of: fn(&Measures) -> Option<(f64, f64)>,
    ) -> Metric {
        Metric { key, title, unit, of }
    }
    [
        metric("wer", "word error rate", Percent, |m| Some(errors(m.heard.as_ref()?.score.words))),
        // One text whose transcript repeats itself can outweigh all others.
        metric("capped_wer", "the same, a text at most 100 %", Percent, |m| {
            let (errors, words) = errors(m.heard.as_ref()?.score.words);
            Some((errors.min(words), words))
        }),
        metric("cer", "character error rate", Percent, |m| Some(errors(m.heard.as_ref()?.score.characters))),
        metric("mean_wer", "mean of each text's word error rate", Percent, |m| {
            Some((m.heard.as_ref()?.score.words.rate(), 1.0))
        }),
        metric("distortion", "mel-cepstral distortion", Decibels, |m| one(m.against.distortion)),
        metric("mel_distance", "mel distance", Plain, |m| one(m.against.mel_distance)),
        metric("log_f0_rmse", "log-F0 RMSE", Plain, |m| one(m.against.log_f0_rmse)),
        metric("voicing_error", "voicing error", Percent, |m| one(m.against.voicing_error)),
        metric("duration_ratio", "duration ratio", Plain, |m| one(m.against.duration_ratio)),
        metric("similarity", "speaker cosine (own encoder)", Plain, |m| one(m.similarity)),
        metric("seconds", "length of speech", Seconds, |m| one(Some(m.seconds))),
        metric("silent", "silent", Percent, |m| yes(m.flaws.silent)),
        metric("quiet", "quiet frames", Percent, |m| one(Some(m.flaws.quiet))),
        metric("longest_pause", "longest pause", Seconds, |m| one(Some(m.flaws.longest_pause))),
        metric("long_pause", "speech with a pause over 1.5 s", Percent, |m| yes(m.flaws.long_pause)),
        metric("looping", "speech that loops", Percent, |m| yes(m.flaws.looping.is_some())),
    ]
};

/// Values of metrics by their keys, with 95 % intervals; metrics without a measurement are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(pub BTreeMap<String, Figure>);

impl Figures {
    /// Computes all metrics over utterances.
    pub fn of<'a>(all: impl IntoIterator<Item = &'a Measures>, seed: Seed) -> Figures {
        let all: Vec<&Measures> = all.into_iter().collect();
        let figure = |metric: &Metric| {
            let pairs: Vec<(f64, f64)> = all.iter().filter_map(|measures| (metric.of)(measures)).collect();
            let found = interval::ratio(&pairs, seed.derive("interval").derive(metric.key))?;
            Some((metric.key.to_owned(), found))
        };
        Figures(METRICS.iter().filter_map(figure).collect())
    }

    /// The value of a metric by its key; `None` if it was not measured.
    pub fn get(&self, key: &str) -> Option<Figure> {
        self.0.get(key).copied()
    }

    /// One line per metric, as text.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for metric in &METRICS {
            if let Some(figure) = self.get(metric.key) {
                let [value, low, high] = [figure.value, figure.low, figure.high].map(|v| metric.unit.show(v));
                let _ = writeln!(
                    text,
                    "{:<36} {value:>9}  ({low} to {high}, {} texts)",
                    metric.title, figure.count
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::words::Errors;

    #[test]
    fn one_transcript_that_repeats_itself_outweighed_all_others() {
        let heard = |errors| {
            let words = Errors { errors, of: 10 };
            let score = Score { words, characters: words };
            Measures { heard: Some(Recognition { transcript: String::new(), score }), ..Measures::default() }
        };
        let texts = [heard(1), heard(1), heard(220)];
        let figures = Figures::of(&texts, Seed::new(1));
        let value = |key| figures.get(key).unwrap().value;
        assert_eq!((value("wer"), value("capped_wer")), (7.4, 0.4));
    }
}

//! References: recordings of a speaker that a voice is made of, and how good they are for it.

use crate::error::SpeakError;
use crate::voice::cosine;
use myxtts_data::audio::{self, Clip};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Seconds used of each reference.
pub(crate) const MAX_SECONDS: usize = 30;

/// Minimum length of a reference in hundredths of a second.
pub(crate) const MIN_HUNDREDTHS: usize = 33;

/// A recording whose loudest sample is below this is empty.
pub(crate) const SILENT: f32 = 1e-4;

/// Seconds from which a voice is a good one.
const GOOD: f64 = 6.0;

/// Below so many dB of signal over noise the noise becomes part of the voice.
const NOISY_DB: f64 = 20.0;

/// Above this share of samples at full scale the distortion becomes part of the voice.
const CLIPPED: f64 = 0.001;

/// Two parts whose speaker vectors have a cosine below this are suspected to be two speakers. Seconds of one speaker are
/// usually above 0.6, those of two below 0.4.
const ANOTHER: f64 = 0.5;

/// Frames over which loudness is measured, in milliseconds.
const FRAME_MS: usize = 25;

/// Below full scale, in dB, that count as no noise at all.
const NO_NOISE_DB: f64 = -100.0;

/// A recording that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Where it lies.
    pub path: PathBuf,
    /// Its sound, channels mixed to one.
    pub clip: Clip,
    /// Channels of the file.
    pub channels: u16,
    /// The share of samples in runs at full scale.
    pub clipped: f64,
}

impl Reference {
    /// Reads a recording; what cannot be a reference is an error that names the file.
    pub fn read(path: &Path) -> Result<Reference, SpeakError> {
        if path.is_dir() {
            return Err(SpeakError::ReferenceIsFolder { path: path.to_owned() });
        }
        let decoded = audio::decode(path)?;
        let clip = decoded.clip;
        if clip.samples.len() * 100 < SHORTEST * clip.sample_rate as usize {
            return Err(SpeakError::ShortReference {
                path: path.to_owned(),
                seconds: clip.seconds(),
                shortest: SHORTEST as f64 / 100.0,
            });
        }
        if !clip.samples.iter().any(|sample| sample.abs() >= SILENT) {
            return Err(SpeakError::SilentReference { path: path.to_owned() });
        }
        Ok(Reference {
            path: path.to_owned(),
            channels: decoded.info.channels,
            clipped: decoded.clipped as f64 / clip.samples.len() as f64,
            clip,
        })
    }

    /// The name of the file, without its folders.
    pub fn file(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn facts(&self) -> ReferenceFacts {
        ReferenceFacts {
            file: self.file(),
            seconds: self.clip.seconds(),
            used_seconds: self.clip.seconds().min(HEARD as f64),
            sample_rate: self.clip.sample_rate,
            channels: self.channels,
            signal_to_noise_db: signal_to_noise(&self.clip),
            clipped: self.clipped,
        }
    }
}

/// A part of a reference and its speaker vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The number of the reference, from 0.
    pub reference: usize,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Its speaker vector.
    pub vector: Vec<f32>,
}

/// What is known of one reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceFacts {
    /// The file's name, without folders.
    pub file: String,
    /// Its length.
    pub seconds: f64,
    /// How much of it is heard at most.
    pub used_seconds: f64,
    /// Samples per second of the file.
    pub sample_rate: u32,
    /// Channels of the file.
    pub channels: u16,
    /// The loudest tenth of frames of 25 ms over the quietest, in dB: an estimate.
    pub signal_to_noise_db: f64,
    /// The share of samples at full scale.
    pub clipped: f64,
}

/// What is amiss with references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concern {
    /// Little to hear.
    Short,
    /// Only a part of it is used, or it was converted.
    Adapted,
    /// Noise.
    Noisy,
    /// Samples at full scale.
    Clipped,
    /// Parts that sound like different people.
    SeveralSpeakers,
}

/// A concern, what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Of which kind.
    pub concern: Concern,
    /// A sentence for people.
    pub text: String,
}

/// How good references are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceReport {
    /// Seconds in all.
    pub seconds: f64,
    /// One for each.
    pub references: Vec<ReferenceFacts>,
    /// The least cosine between the speaker vectors of two parts of them; none where the model has no speaker encoder, or
    /// there is only one part.
    pub least_similarity: Option<f64>,
    /// What to know and what to do; empty where all is well.
    pub advice: Vec<Advice>,
}

impl ReferenceReport {
    /// Looks at references and at the speaker vectors of their parts.
    pub fn of(references: &[Reference], parts: &[Part]) -> ReferenceReport {
        let facts: Vec<ReferenceFacts> = references.iter().map(Reference::facts).collect();
        let seconds = facts.iter().map(|one| one.seconds).sum::<f64>();
        let mut advice = Vec::new();
        let mut say = |concern, text| advice.push(Advice { concern, text });
        if seconds < GOOD {
            say(
                Concern::Short,
                format!(
                    "{seconds:.1} s in all: a voice can be told, but {GOOD} s and more make a better one"
                ),
            );
        }
        for one in &facts {
            adapted(one, &mut say);
            if one.signal_to_noise_db < NOISY_DB {
                say(
                    Concern::Noisy,
                    format!(
                        "{}: speech is about {:.0} dB above the noise; below {NOISY_DB} dB the noise is learnt with the \
                         voice. Record nearer to the microphone, or in a quieter room",
                        one.file, one.signal_to_noise_db
                    ),
                );
            }
            if one.clipped > CLIPPED {
                say(
                    Concern::Clipped,
                    format!(
                        "{}: {:.1} % of its samples are at full scale; record it again at a lower level",
                        one.file,
                        100.0 * one.clipped
                    ),
                );
            }
        }
        let used: f64 = facts.iter().map(|one| one.used_seconds).sum();
        if facts.len() > 1 && used > HEARD as f64 {
            say(
                Concern::Adapted,
                format!(
                    "the GPT is given the first {HEARD} of {used:.0} s, in the order of the files; the speaker vector is the mean of all"
                ),
            );
        }
        let farthest = farthest(parts);
        if let Some((one, other, similarity)) = farthest
            && similarity < ANOTHER
        {
            let place = |part: &Part| match facts.get(part.reference) {
                Some(one) => format!("{} at {:.0} s", one.file, part.start),
                None => format!("{:.0} s", part.start),
            };
            say(
                Concern::SeveralSpeakers,
                format!(
                    "{} and {} sound like different people (similarity {similarity:.2}); use recordings of one speaker alone",
                    place(one),
                    place(other)
                ),
            );
        }
        ReferenceReport {
            seconds,
            references: facts,
            least_similarity: farthest.map(|(_, _, similarity)| similarity),
            advice,
        }
    }
}

fn adapted(one: &ReferenceFacts, say: &mut dyn FnMut(Concern, String)) {
    if one.used_seconds < one.seconds {
        let (file, used, all) = (&one.file, one.used_seconds, one.seconds);
        say(Concern::Adapted, format!("{file}: only its first {used:.0} of {all:.0} s are heard"));
    }
    if one.channels > 2 {
        say(Concern::Adapted, format!("{}: its {} channels are mixed to one", one.file, one.channels));
    }
}

/// The two parts that are least alike, and how much.
fn farthest(parts: &[Part]) -> Option<(&Part, &Part, f64)> {
    let pairs =
        parts.iter().enumerate().flat_map(|(i, one)| parts[i + 1..].iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| (one, other, cosine(&one.vector, &other.vector)))
        .min_by(|(_, _, one), (_, _, other)| one.total_cmp(other))
}

/// The level of the loudest tenth of frames over that of the quietest, in dB. Speech has pauses: what is heard in them is noise.
fn signal_to_noise(clip: &Clip) -> f64 {
    let frame = (clip.sample_rate as usize * FRAME_MS / 1000).max(1);
    // A constant offset is neither speech nor noise.
    let mean =
        clip.samples.iter().map(|sample| f64::from(*sample)).sum::<f64>() / clip.samples.len().max(1) as f64;
    let power = |frame: &[f32]| {
        frame.iter().map(|sample| (f64::from(*sample) - mean).powi(2)).sum::<f64>() / frame.len() as f64
    };
    let mut levels: Vec<f64> = clip
        .samples
        .chunks_exact(frame)
        .map(|frame| (10.0 * power(frame).max(1e-30).log10()).max(NO_NOISE_DB))
        .collect();
    levels.sort_by(f64::total_cmp);
    let tenth = levels.len().div_ceil(10);
    if tenth == 0 {
        return 0.0;
    }
    let average = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    average(&levels[levels.len() - tenth..]) - average(&levels[..tenth])
}

#[cfg(test)]
mod tests {
    use myxtts_demo::{self as demo, Language, VOICES};

    use super::*;

    fn speech(noise: f32) -> Reference {
        let text =
            "This is what I sound like, most of the time. And now, after a pause, I say something more.";
        let mut samples = demo::speak(text, Language::English, &VOICES[0]);
        let mut state = 1u32;
        for sample in &mut samples {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *sample += noise * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0);
        }
        let clip = Clip { samples, sample_rate: demo::SAMPLE_RATE };
        Reference { path: "folder/anna.wav".into(), clip, channels: 1, clipped: 0.0 }
    }

    fn concerns(report: &ReferenceReport) -> Vec<Concern> {
        report.advice.iter().map(|advice| advice.concern).collect()
    }

    fn part(reference: usize, start: f64, vector: [f32; 2]) -> Part {
        Part { reference, start, vector: vector.to_vec() }
    }

    #[test]
    fn noise_is_heard_and_clean_speech_is_not_blamed() {
        let (clean, noisy) = (speech(0.0), speech(0.1));
        let levels = [&clean, &noisy].map(|one| one.facts().signal_to_noise_db);
        assert!(levels[0] > 30.0 && levels[1] < 20.0, "{levels:?}");
        assert!(!concerns(&ReferenceReport::of(&[clean], &[])).contains(&Concern::Noisy));
        let report = ReferenceReport::of(&[noisy], &[]);
        assert!(concerns(&report).contains(&Concern::Noisy), "{report:?}");
        assert!(
            report
                .advice
                .iter()
                .any(|advice| advice.text.contains("anna.wav") && !advice.text.contains("folder"))
        );
    }

    #[test]
    fn each_fault_has_its_advice() {
        let mut long = speech(0.0);
        long.clip.samples = long.clip.samples.repeat(20);
        let report = ReferenceReport::of(&[long.clone(), speech(0.0)], &[]);
        assert_eq!(concerns(&report), [Concern::Adapted, Concern::Adapted]);
        assert!(report.advice[0].text.contains("first 30 of"), "{report:?}");
        let clipped = Reference { clipped: 0.02, ..long.clone() };
        let text = &ReferenceReport::of(&[clipped], &[]).advice[1].text;
        assert!(text.contains("2.0 %"), "{text}");
        let eight = Reference { channels: 8, ..speech(0.0) };
        assert!(
            ReferenceReport::of(&[eight], &[]).advice.iter().any(|advice| advice.text.contains("8 channels"))
        );
        let mut short = speech(0.0);
        short.clip.samples.truncate(2 * 22_050);
        assert_eq!(concerns(&ReferenceReport::of(&[short], &[])), [Concern::Short]);
    }

    #[test]
    fn parts_that_differ_are_suspected_to_be_two_speakers() {
        let all = [speech(0.0), speech(0.0)];
        let same = [part(0, 0.0, [1.0, 0.1]), part(0, 3.0, [1.0, 0.0]), part(1, 0.0, [0.9, 0.2])];
        let report = ReferenceReport::of(&all, &same);
        assert!(report.least_similarity.is_some_and(|least| least > 0.9));
        assert!(!concerns(&report).contains(&Concern::SeveralSpeakers));
        let two = [part(0, 0.0, [1.0, 0.1]), part(0, 3.0, [1.0, 0.0]), part(1, 6.0, [0.1, 1.0])];
        let report = ReferenceReport::of(&all, &two);
        assert!(concerns(&report).contains(&Concern::SeveralSpeakers));
        let text = &report.advice.last().unwrap().text;
        assert!(text.contains("anna.wav at 3 s and anna.wav at 6 s"), "{text}");
        assert_eq!(ReferenceReport::of(&all, &same[..1]).least_similarity, None);
    }
}

//! Reference recordings of a speaker, and a report on their quality.

use crate::error::SpeakError;
use crate::voice::cosine;
use myxtts_data::audio::{self, AudioError, Clip};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Seconds used of each reference.
pub(crate) const MAX_SECONDS: usize = 30;

/// Minimum length of a reference in hundredths of a second.
pub(crate) const MIN_HUNDREDTHS: usize = 33;

/// A recording whose largest absolute sample is below this is silent.
pub(crate) const SILENT: f32 = 1e-4;

/// Seconds of recordings that make a good voice.
const GOOD_SECONDS: f64 = 6.0;

/// Below this signal-to-noise ratio in dB the noise becomes part of the voice.
const NOISY_DB: f64 = 20.0;

/// Above this fraction of samples at full scale the distortion becomes part of the voice.
const CLIPPED: f64 = 0.001;

/// Two segments whose speaker vectors have a cosine below this are suspected to be of two speakers.
const SAME_SPEAKER: f64 = 0.5;

/// Milliseconds of a frame whose level is measured.
const FRAME_MS: usize = 25;

/// Lower limit of measured levels, in dB of full scale.
const NO_NOISE_DB: f64 = -100.0;

/// A recording read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Path of the file.
    pub path: PathBuf,
    /// Samples, mixed to mono.
    pub clip: Clip,
    /// Number of channels of the file.
    pub channels: u16,
    /// Fraction of samples in runs at full scale.
    pub clipped: f64,
}

impl Reference {
    /// Reads a recording. Fails if it is unreadable, silent or too short.
    pub fn read(path: &Path) -> Result<Reference, SpeakError> {
        if path.is_dir() {
            return Err(SpeakError::ReferenceIsFolder { path: path.to_owned() });
        }
        let decoded = audio::decode(path).map_err(|error| match error {
            AudioError::Missing { path } => SpeakError::NoReference { path },
            error => SpeakError::Audio(error),
        })?;
        let clip = decoded.clip;
        if clip.samples.len() * 100 < MIN_HUNDREDTHS * clip.sample_rate as usize {
            return Err(SpeakError::ShortReference {
                path: path.to_owned(),
                seconds: clip.seconds(),
                shortest: MIN_HUNDREDTHS as f64 / 100.0,
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

    /// File name without folders.
    pub fn file(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn facts(&self) -> ReferenceFacts {
        ReferenceFacts {
            file: self.file(),
            seconds: self.clip.seconds(),
            used_seconds: self.clip.seconds().min(MAX_SECONDS as f64),
            sample_rate: self.clip.sample_rate,
            channels: self.channels,
            signal_to_noise_db: signal_to_noise(&self.clip),
            clipped: self.clipped,
        }
    }
}

/// A segment of a reference and its speaker vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Index of the reference.
    pub reference: usize,
    /// Start in seconds.
    pub start: f64,
    /// Speaker vector of the segment.
    pub vector: Vec<f32>,
}

/// Measurements of one reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceFacts {
    /// File name without folders.
    pub file: String,
    /// Duration of the recording.
    pub seconds: f64,
    /// Seconds used of it at most.
    pub used_seconds: f64,
    /// Sample rate of the file in Hz.
    pub sample_rate: u32,
    /// Number of channels of the file.
    pub channels: u16,
    /// Estimate in dB: the level of the loudest tenth of 25 ms frames over that of the quietest tenth.
    pub signal_to_noise_db: f64,
    /// Fraction of samples at full scale.
    pub clipped: f64,
}

/// A concern about references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concern {
    /// The recordings are short.
    Short,
    /// Only a part of a recording is used, or its channels were mixed.
    Adapted,
    /// A recording is noisy.
    Noisy,
    /// A recording is clipped.
    Clipped,
    /// Segments have different speaker vectors.
    SeveralSpeakers,
}

/// A concern with its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The concern.
    pub concern: Concern,
    /// What was found and what to do.
    pub text: String,
}

/// Quality report on references.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceReport {
    /// Total duration in seconds.
    pub seconds: f64,
    /// Measurements of each recording.
    pub references: Vec<ReferenceFacts>,
    /// Smallest cosine between the speaker vectors of two segments; `None` without a speaker encoder or with a single segment.
    pub least_similarity: Option<f64>,
    /// Concerns found; empty if there are none.
    pub advice: Vec<Advice>,
}

impl ReferenceReport {
    /// Reports on references and the speaker vectors of their segments.
    pub fn new(references: &[Reference], segments: &[Segment]) -> ReferenceReport {
        let facts: Vec<ReferenceFacts> = references.iter().map(Reference::facts).collect();
        let seconds = facts.iter().map(|one| one.seconds).sum::<f64>();
        let mut advice = Vec::new();
        let mut advise = |concern, text| advice.push(Advice { concern, text });
        if seconds < GOOD_SECONDS {
            advise(
                Concern::Short,
                format!("{seconds:.1} s in all: usable, but {GOOD_SECONDS} s or more make a better voice"),
            );
        }
        for one in &facts {
            adapted(one, &mut advise);
            if one.signal_to_noise_db < NOISY_DB {
                advise(
                    Concern::Noisy,
                    format!(
                        "{}: speech is about {:.0} dB above the noise; below {NOISY_DB} dB the noise becomes part of the \
                         voice. Record nearer to the microphone, or in a quieter room",
                        one.file, one.signal_to_noise_db
                    ),
                );
            }
            if one.clipped > CLIPPED {
                advise(
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
        if facts.len() > 1 && used > MAX_SECONDS as f64 {
            advise(
                Concern::Adapted,
                format!(
                    "the GPT is conditioned on the first {MAX_SECONDS} of {used:.0} s, in the order of the files; the speaker vector is the mean over all files"
                ),
            );
        }
        let farthest = farthest(segments);
        if let Some((one, other, similarity)) = farthest
            && similarity < SAME_SPEAKER
        {
            let position = |segment: &Segment| match facts.get(segment.reference) {
                Some(one) => format!("{} at {:.0} s", one.file, segment.start),
                None => format!("{:.0} s", segment.start),
            };
            advise(
                Concern::SeveralSpeakers,
                format!(
                    "{} and {} sound like different people (similarity {similarity:.2}); use recordings of one speaker alone",
                    position(one),
                    position(other)
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

fn adapted(one: &ReferenceFacts, advise: &mut dyn FnMut(Concern, String)) {
    if one.used_seconds < one.seconds {
        let (file, used, all) = (&one.file, one.used_seconds, one.seconds);
        advise(Concern::Adapted, format!("{file}: only its first {used:.0} of {all:.0} s are used"));
    }
    if one.channels > 2 {
        advise(Concern::Adapted, format!("{}: its {} channels are mixed to one", one.file, one.channels));
    }
}

/// The two segments with the smallest cosine, and that cosine.
fn farthest(segments: &[Segment]) -> Option<(&Segment, &Segment, f64)> {
    let pairs = segments
        .iter()
        .enumerate()
        .flat_map(|(i, one)| segments[i + 1..].iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| (one, other, cosine(&one.vector, &other.vector)))
        .min_by(|(_, _, one), (_, _, other)| one.total_cmp(other))
}

/// The level of the loudest tenth of frames over that of the quietest tenth, in dB. Speech has pauses, in which only the noise
/// remains.
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

    fn segment(reference: usize, start: f64, vector: [f32; 2]) -> Segment {
        Segment { reference, start, vector: vector.to_vec() }
    }

    #[test]
    fn noise_is_reported_and_clean_speech_is_not() {
        let (clean, noisy) = (speech(0.0), speech(0.1));
        let levels = [&clean, &noisy].map(|one| one.facts().signal_to_noise_db);
        assert!(levels[0] > 30.0 && levels[1] < 20.0, "{levels:?}");
        assert!(!concerns(&ReferenceReport::new(&[clean], &[])).contains(&Concern::Noisy));
        let report = ReferenceReport::new(&[noisy], &[]);
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
        let report = ReferenceReport::new(&[long.clone(), speech(0.0)], &[]);
        assert_eq!(concerns(&report), [Concern::Adapted, Concern::Adapted]);
        assert!(report.advice[0].text.contains("first 30 of"), "{report:?}");
        let clipped = Reference { clipped: 0.02, ..long.clone() };
        let text = &ReferenceReport::new(&[clipped], &[]).advice[1].text;
        assert!(text.contains("2.0 %"), "{text}");
        let eight = Reference { channels: 8, ..speech(0.0) };
        assert!(
            ReferenceReport::new(&[eight], &[])
                .advice
                .iter()
                .any(|advice| advice.text.contains("8 channels"))
        );
        let mut short = speech(0.0);
        short.clip.samples.truncate(2 * 22_050);
        assert_eq!(concerns(&ReferenceReport::new(&[short], &[])), [Concern::Short]);
    }

    #[test]
    fn segments_that_differ_are_suspected_to_be_of_two_speakers() {
        let all = [speech(0.0), speech(0.0)];
        let same = [segment(0, 0.0, [1.0, 0.1]), segment(0, 3.0, [1.0, 0.0]), segment(1, 0.0, [0.9, 0.2])];
        let report = ReferenceReport::new(&all, &same);
        assert!(report.least_similarity.is_some_and(|least| least > 0.9));
        assert!(!concerns(&report).contains(&Concern::SeveralSpeakers));
        let two = [segment(0, 0.0, [1.0, 0.1]), segment(0, 3.0, [1.0, 0.0]), segment(1, 6.0, [0.1, 1.0])];
        let report = ReferenceReport::new(&all, &two);
        assert!(concerns(&report).contains(&Concern::SeveralSpeakers));
        let text = &report.advice.last().unwrap().text;
        assert!(text.contains("anna.wav at 3 s and anna.wav at 6 s"), "{text}");
        assert_eq!(ReferenceReport::new(&all, &same[..1]).least_similarity, None);
    }
}

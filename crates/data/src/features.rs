//! One utterance's arrays: its sound through the mel front-ends, its text through cleaner and tokenizer.
//!
//! This is the only place that says how a file becomes a record, so that the cache, runtime mode and
//! `inspect` cannot disagree about it.

use std::sync::Mutex;

use myxtts_run::plan::DataPlan;

use crate::audio::{self, AudioError, Decoded, Resampler};
use crate::cache::{Features, Featurizer};
use crate::mel::{FrontEnd, MelExtractor};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::{CONDITIONING_MEL, Column, DVAE_MEL, SPEAKER_MEL, TOKENS, WAVEFORM};
use crate::text::Cleaner;
use crate::tokenizer::Tokenizer;
use crate::utterance::Utterance;

/// Rate at which XTTS hears: GPT, DVAE and conditioning.
pub const LISTENING_RATE: u32 = 22_050;
/// Rate at which the decoder speaks.
pub const SPEAKING_RATE: u32 = 24_000;

/// Counted into every fingerprint: raise it when the same settings give other numbers.
const VERSION: u32 = 1;

/// Everything that shapes a record besides the utterance itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Which arrays to make, in this order.
    pub columns: Vec<Column>,
    /// Cut silence at both ends, this many decibels below the loudest frame.
    pub trim_db: Option<f32>,
    /// Bring every clip to this loudness.
    pub loudness_lufs: Option<f64>,
    /// Shorter clips are refused.
    pub min_seconds: f32,
    /// Clips with more mel frames are refused.
    pub max_mel_frames: u32,
    /// Texts with more tokens are refused.
    pub max_text_tokens: u32,
    /// How text is cleaned.
    pub cleaner: Cleaner,
}

impl Recipe {
    /// What the settings of a run say.
    pub fn of(plan: &DataPlan) -> Self {
        // A clip of exactly the longest time is allowed: its frames are whole hops and one.
        let frames = FrontEnd::Dvae.frames((plan.longest_seconds() * f64::from(LISTENING_RATE)) as usize);
        Recipe {
            columns: plan
                .cache_columns
                .iter()
                .map(|name| Column::named(name).expect("the configuration knows no other columns"))
                .collect(),
            trim_db: plan.trim_silence.then_some(plan.trim_db as f32),
            loudness_lufs: plan.loudness_lufs,
            min_seconds: plan.min_seconds as f32,
            max_mel_frames: (frames as u32).min(plan.max_mel_frames as u32),
            max_text_tokens: plan.max_text_tokens as u32,
            cleaner: plan.cleaner.parse().expect("the configuration knows no other cleaners"),
        }
    }
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            columns: vec![TOKENS, DVAE_MEL, CONDITIONING_MEL],
            trim_db: Some(45.0),
            loudness_lufs: None,
            min_seconds: 0.5,
            max_mel_frames: 1000,
            max_text_tokens: 400,
            cleaner: Cleaner::Default,
        }
    }
}

/// Silence left standing at each end by trimming: a cut at the first loud sample clips plosives.
const KEEP_MS: f32 = 50.0;

/// Computes records by a recipe. Shared by all worker threads.
pub struct Extractor {
    recipe: Recipe,
    tokenizer: Tokenizer,
    /// Front-ends keep plans and buffers; each computation borrows a set and gives it back.
    tools: Mutex<Vec<Tools>>,
}

/// The sound of an utterance, ready for the front-ends.
struct Sound {
    /// At [`LISTENING_RATE`], trimmed and levelled.
    heard: Vec<f32>,
    /// At [`SPEAKING_RATE`], the same span; empty unless the waveform is wanted.
    spoken: Vec<f32>,
}

impl Extractor {
    /// An extractor for `recipe`, speaking `tokenizer`'s vocabulary.
    pub fn new(recipe: Recipe, tokenizer: Tokenizer) -> Self {
        Extractor { recipe, tokenizer, tools: Mutex::new(Vec::new()) }
    }

    /// The recipe in force.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The tokenizer, when no more features are computed.
    pub fn into_tokenizer(self) -> Tokenizer {
        self.tokenizer
    }

    /// The tokenizer in force.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The sound that mels are made of: at [`LISTENING_RATE`], trimmed and levelled.
    pub fn heard(&self, utterance: &Utterance, bytes: &[u8]) -> Result<Vec<f32>, Problem> {
        Ok(self.with_tools(|tools| self.sound(utterance, bytes, tools))?.heard)
    }

    fn with_tools<T>(&self, act: impl FnOnce(&mut Tools) -> T) -> T {
        let pool = || self.tools.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut tools = pool().pop().unwrap_or_default();
        let result = act(&mut tools);
        pool().push(tools);
        result
    }

    fn tokens(&self, utterance: &Utterance) -> Result<Vec<i32>, Problem> {
        let encoded = self
            .tokenizer
            .encode(&utterance.text, &utterance.language, self.recipe.cleaner)
            .map_err(|error| refused(utterance, ProblemKind::UnspeakableText, error.to_string()))?;
        if encoded.cleaned.trim().is_empty() {
            let detail =
                format!("no text is left of {:?} after cleaning: give it a transcript", utterance.text);
            return Err(refused(utterance, ProblemKind::EmptyText, detail));
        }
        if !encoded.unknown.is_empty() {
            let detail = format!(
                "the tokenizer has no piece for {:?}: extend it with `myxtts tokenizer extend`, or correct the text",
                encoded.unknown
            );
            return Err(refused(utterance, ProblemKind::UnknownCharacters, detail));
        }
        if encoded.ids.len() > self.recipe.max_text_tokens as usize {
            let detail = format!(
                "{} tokens, {} is the most (data.max_text_tokens): split the recording",
                encoded.ids.len(),
                self.recipe.max_text_tokens
            );
            return Err(refused(utterance, ProblemKind::TextTooLong, detail));
        }
        Ok(encoded.ids)
    }

    fn sound(&self, utterance: &Utterance, bytes: &[u8], tools: &mut Tools) -> Result<Sound, Problem> {
        let unusable = |error: AudioError| refused(utterance, error.kind(), error.to_string());
        let Decoded { clip, .. } = audio::decode_bytes(bytes, &utterance.audio).map_err(unusable)?;
        let mut heard = tools.resample(&clip.samples, clip.sample_rate, LISTENING_RATE);
        let mut spoken = if self.recipe.columns.contains(&WAVEFORM) {
            tools.resample(&clip.samples, clip.sample_rate, SPEAKING_RATE)
        } else {
            Vec::new()
        };
        let peak = heard.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        if peak < SILENT_PEAK {
            let detail = format!("nothing is to be heard: the loudest sample is {peak:.6} of full scale");
            return Err(refused(utterance, ProblemKind::Silent, detail));
        }
        if let Some(below_peak_db) = self.recipe.trim_db {
            let span = audio::trim_silence(&heard, LISTENING_RATE, below_peak_db, KEEP_MS);
            if !spoken.is_empty() {
                let scale =
                    |at: usize| (at as u64 * u64::from(SPEAKING_RATE) / u64::from(LISTENING_RATE)) as usize;
                spoken.truncate(scale(span.end).min(spoken.len()));
                spoken.drain(..scale(span.start).min(spoken.len()));
            }
            heard.truncate(span.end);
            heard.drain(..span.start);
        }
        let seconds = heard.len() as f32 / LISTENING_RATE as f32;
        if seconds < self.recipe.min_seconds {
            let detail =
                format!("{seconds:.2} s after trimming, {:.2} s is the least", self.recipe.min_seconds);
            return Err(refused(utterance, ProblemKind::TooShort, detail));
        }
        let frames = FrontEnd::Dvae.frames(heard.len());
        if frames > self.recipe.max_mel_frames as usize {
            let detail = format!(
                "{seconds:.2} s are {frames} mel frames, {} is the most (data.max_mel_frames): split it",
                self.recipe.max_mel_frames
            );
            return Err(refused(utterance, ProblemKind::TooLong, detail));
        }
        if let Some(target) = self.recipe.loudness_lufs
            && let Some(loudness) = audio::integrated_loudness(&heard, LISTENING_RATE)
        {
            let gain = audio::gain_to(target, loudness, peak, HIGHEST_PEAK);
            heard.iter_mut().chain(&mut spoken).for_each(|sample| *sample *= gain);
        }
        Ok(Sound { heard, spoken })
    }
}

/// -60 dBFS.
const SILENT_PEAK: f32 = 1e-3;
/// -1 dBFS: levelling stops here.
const HIGHEST_PEAK: f32 = 0.891;

impl Featurizer for Extractor {
    fn columns(&self) -> &[Column] {
        &self.recipe.columns
    }

    fn fingerprint(&self) -> [u8; 32] {
        let Recipe { columns, trim_db, loudness_lufs, min_seconds, max_mel_frames, max_text_tokens, cleaner } =
            &self.recipe;
        let mut hash = blake3::Hasher::new();
        let mut field = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(b"myxtts features");
        field(&VERSION.to_le_bytes());
        for column in columns {
            field(column.name.as_bytes());
        }
        field(&trim_db.map_or([0xff; 4], f32::to_le_bytes));
        field(&loudness_lufs.map_or([0xff; 8], f64::to_le_bytes));
        field(&min_seconds.to_le_bytes());
        field(&max_mel_frames.to_le_bytes());
        field(&max_text_tokens.to_le_bytes());
        field(cleaner.to_string().as_bytes());
        field(&self.tokenizer.fingerprint());
        *hash.finalize().as_bytes()
    }

    fn bound(&self, utterance: &Utterance) -> Result<Vec<u32>, Problem> {
        let tokens = self.tokens(utterance)?.len();
        // Longer clips are refused when they are computed, unless trimming makes them fit; so nothing
        // that comes out is ever longer than this.
        let most = self.recipe.max_mel_frames as usize * FrontEnd::Dvae.hop();
        let samples = usize::try_from(self.samples_at_most(utterance)?).unwrap_or(usize::MAX).min(most);
        Ok(self
            .recipe
            .columns
            .iter()
            .map(|column| match *column {
                TOKENS => tokens as u32,
                SPEAKER_MEL => {
                    FrontEnd::Speaker.frames(at_rate(samples, FrontEnd::Speaker.sample_rate())) as u32
                }
                WAVEFORM => at_rate(samples, SPEAKING_RATE) as u32,
                _ => FrontEnd::Dvae.frames(samples).min(self.recipe.max_mel_frames as usize) as u32,
            })
            .collect())
    }

    fn compute(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Features, Problem> {
        let tokens = self.tokens(utterance)?;
        self.with_tools(|tools| {
            let sound = self.sound(utterance, source_bytes, tools)?;
            let mut arrays = Vec::with_capacity(self.recipe.columns.len());
            for column in &self.recipe.columns {
                arrays.push(match *column {
                    TOKENS => bytemuck::cast_slice(&tokens).to_vec(),
                    DVAE_MEL => tools.mel(FrontEnd::Dvae, &sound.heard),
                    CONDITIONING_MEL => tools.mel(FrontEnd::Conditioning, &sound.heard),
                    SPEAKER_MEL => {
                        let rate = FrontEnd::Speaker.sample_rate();
                        let at_16k = tools.resample(&sound.heard, LISTENING_RATE, rate);
                        tools.mel(FrontEnd::Speaker, &at_16k)
                    }
                    WAVEFORM => sound.spoken.iter().flat_map(|&sample| pcm16(sample).to_le_bytes()).collect(),
                    other => unreachable!("no front-end makes column {:?}", other.name),
                });
            }
            let seconds = sound.heard.len() as f32 / LISTENING_RATE as f32;
            Ok(Features { arrays, seconds })
        })
    }
}

impl Extractor {
    /// Samples of the whole file at [`LISTENING_RATE`], by its header alone where that says so.
    fn samples_at_most(&self, utterance: &Utterance) -> Result<u64, Problem> {
        let unusable = |error: AudioError| refused(utterance, error.kind(), error.to_string());
        let info = audio::probe(&utterance.audio).map_err(unusable)?;
        let frames = match info.declared_frames {
            Some(frames) => frames,
            None => audio::decode(&utterance.audio).map_err(unusable)?.frames,
        };
        let exact = u128::from(frames) * u128::from(LISTENING_RATE);
        Ok(u64::try_from(exact.div_ceil(u128::from(info.sample_rate.max(1)))).unwrap_or(u64::MAX))
    }
}

/// Samples at another rate, rounded up.
fn at_rate(samples: usize, rate: u32) -> usize {
    (samples as u64 * u64::from(rate)).div_ceil(u64::from(LISTENING_RATE)) as usize
}

fn pcm16(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * 32767.0).round() as i16
}

fn refused(utterance: &Utterance, kind: ProblemKind, detail: String) -> Problem {
    Problem {
        kind,
        severity: Severity::Error,
        id: Some(utterance.id.clone()),
        origin: utterance.origin.clone(),
        detail,
    }
}

/// What one computation needs at hand: made on demand, kept for the next.
#[derive(Default)]
struct Tools {
    resamplers: Vec<(u32, u32, Resampler)>,
    dvae: Option<MelExtractor>,
    conditioning: Option<MelExtractor>,
    speaker: Option<MelExtractor>,
    frames: Vec<f32>,
}

impl Tools {
    fn resample(&mut self, samples: &[f32], from: u32, to: u32) -> Vec<f32> {
        let known = self.resamplers.iter().position(|&(a, b, _)| (a, b) == (from, to));
        let at = known.unwrap_or_else(|| {
            self.resamplers.push((from, to, Resampler::new(from, to)));
            self.resamplers.len() - 1
        });
        self.resamplers[at].2.resample(samples)
    }

    fn mel(&mut self, front_end: FrontEnd, samples: &[f32]) -> Vec<u8> {
        let extractor = match front_end {
            FrontEnd::Dvae => &mut self.dvae,
            FrontEnd::Conditioning => &mut self.conditioning,
            FrontEnd::Speaker => &mut self.speaker,
        };
        let extractor = extractor.get_or_insert_with(|| MelExtractor::new(front_end));
        extractor.compute(samples, &mut self.frames);
        bytemuck::cast_slice(&self.frames).to_vec()
    }
}

//! Computes the arrays of one utterance: mels from its audio, tokens from its text.
//!
//! This is the only code that defines how a file becomes a record, so that the cache, runtime mode and `inspect` cannot
//! disagree.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use myxtts_run::plan::DataPlan;
use myxtts_text::Cleaner;

use crate::audio::{self, AudioError, Decoded, Resampler, SegmentReader};
use crate::cache::{AudioLocation, Features, Featurizer, Measured};
use crate::mel::{FrontEnd, MelExtractor};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::{CONDITIONING_MEL, Column, DVAE_MEL, SPEAKER_MEL, TOKENS, WAVEFORM, note_computing};
use crate::tokenizer::Tokenizer;
use crate::utterance::Utterance;

/// Input sample rate of the GPT, the DVAE and conditioning, in Hz.
pub const INPUT_SAMPLE_RATE: u32 = 22_050;
/// Output sample rate of the decoder, in Hz.
pub const OUTPUT_SAMPLE_RATE: u32 = 24_000;

/// Part of every fingerprint: raise it when the same settings give other numbers.
const VERSION: u32 = 1;

/// Everything that shapes a record besides the utterance itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Arrays to compute, in this order.
    pub columns: Vec<Column>,
    /// Trim silence at both ends, this many decibels below the loudest frame; `None` does not trim.
    pub trim_db: Option<f32>,
    /// Integrated loudness to normalise every clip to; `None` leaves it unchanged.
    pub loudness_lufs: Option<f64>,
    /// Shorter clips are rejected.
    pub min_seconds: f32,
    /// Clips with more mel frames are rejected.
    pub max_mel_frames: u32,
    /// Setting that `max_mel_frames` comes from, for messages.
    pub limited_by: &'static str,
    /// Texts with more tokens are rejected.
    pub max_text_tokens: u32,
    /// Text cleaner.
    pub cleaner: Cleaner,
}

impl Recipe {
    /// Returns the recipe of a run's settings. If `data.cleaner` is unset, the default cleaner is used; call
    /// [`crate::tokenizer::choose_cleaner`] before to select another.
    pub fn from_plan(plan: &DataPlan) -> Self {
        // A clip of exactly the maximum length is allowed: its frames are its whole hops plus one.
        let frames = FrontEnd::Dvae.frames((plan.longest_seconds() * f64::from(INPUT_SAMPLE_RATE)) as usize);
        Recipe {
            columns: plan
                .cache_columns
                .iter()
                .map(|name| Column::from_name(name).expect("the configuration accepts only known columns"))
                .collect(),
            trim_db: plan.trim_silence.then_some(plan.trim_db as f32),
            loudness_lufs: plan.loudness_lufs,
            min_seconds: plan.min_seconds as f32,
            max_mel_frames: (frames as u32).min(plan.max_mel_frames as u32),
            limited_by: plan.longest_setting(),
            max_text_tokens: plan.max_text_tokens as u32,
            cleaner: plan.cleaner.as_deref().map_or(Cleaner::Default, |name| {
                name.parse().expect("the configuration accepts only known cleaners")
            }),
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
            limited_by: "data.max_mel_frames",
            max_text_tokens: 400,
            cleaner: Cleaner::Default,
        }
    }
}

/// Silence that trimming keeps at each end: a cut at the first loud sample clips plosives.
const KEPT_SILENCE_MS: f32 = 50.0;

/// Computes records by a recipe. Shared by all worker threads.
pub struct Extractor {
    recipe: Recipe,
    tokenizer: Tokenizer,
    /// Front-ends hold FFT plans and buffers; each computation borrows a set and returns it.
    tools: Mutex<Vec<Tools>>,
}

/// The decoded audio of an utterance, ready for the front-ends.
struct DecodedAudio {
    /// At [`INPUT_SAMPLE_RATE`], trimmed and normalised.
    samples: Vec<f32>,
    /// At [`OUTPUT_SAMPLE_RATE`], the same span; empty unless the waveform is wanted.
    waveform: Vec<f32>,
    /// Number of samples of the waveform, whether computed or not.
    waveform_samples: usize,
    /// Sample range that remains after trimming, at [`INPUT_SAMPLE_RATE`].
    span: Range<usize>,
    /// Factor the samples were multiplied by; `None` if they were not scaled.
    gain: Option<f32>,
}

impl Extractor {
    /// Creates an extractor for `recipe` with `tokenizer`'s vocabulary.
    pub fn new(recipe: Recipe, tokenizer: Tokenizer) -> Self {
        Extractor { recipe, tokenizer, tools: Mutex::new(Vec::new()) }
    }

    /// Returns the recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Returns the tokenizer, consuming the extractor.
    pub fn into_tokenizer(self) -> Tokenizer {
        self.tokenizer
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Decodes the audio that mels are computed from: at [`INPUT_SAMPLE_RATE`], trimmed and normalised.
    pub(crate) fn decode_audio(&self, utterance: &Utterance, bytes: &[u8]) -> Result<Vec<f32>, Problem> {
        Ok(self.with_tools(|tools| self.decode(utterance, bytes, tools, false))?.samples)
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
            .map_err(|error| problem(utterance, ProblemKind::UnspeakableText, error.to_string()))?;
        if encoded.cleaned.trim().is_empty() {
            let detail = format!("no text remains of {:?} after cleaning: add a transcript", utterance.text);
            return Err(problem(utterance, ProblemKind::EmptyText, detail));
        }
        if !encoded.unknown.is_empty() {
            let detail = format!(
                "the tokenizer has no token for {:?}: extend it with `myxtts tokenizer extend`, or correct the text",
                encoded.unknown
            );
            return Err(problem(utterance, ProblemKind::UnknownCharacters, detail));
        }
        if encoded.ids.len() > self.recipe.max_text_tokens as usize {
            let detail = format!(
                "{} tokens, the maximum is {} (data.max_text_tokens): split the recording",
                encoded.ids.len(),
                self.recipe.max_text_tokens
            );
            return Err(problem(utterance, ProblemKind::TextTooLong, detail));
        }
        Ok(encoded.ids)
    }

    /// Decodes the audio of an utterance, at the decoder's rate too if `with_waveform`.
    fn decode(
        &self,
        utterance: &Utterance,
        bytes: &[u8],
        tools: &mut Tools,
        with_waveform: bool,
    ) -> Result<DecodedAudio, Problem> {
        let unusable = |error: AudioError| problem(utterance, error.kind(), error.to_string());
        let Decoded { clip, .. } = audio::decode_bytes(bytes, &utterance.audio).map_err(unusable)?;
        let mut samples = tools.resample(&clip.samples, clip.sample_rate, INPUT_SAMPLE_RATE);
        let to_output = tools.resampler(clip.sample_rate, OUTPUT_SAMPLE_RATE);
        let mut waveform_span = 0..to_output.output_len(clip.samples.len());
        let mut waveform = if with_waveform { to_output.resample(&clip.samples) } else { Vec::new() };
        let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        if peak < SILENT_PEAK {
            let detail = format!("the audio is silent: the loudest sample is {peak:.6} of full scale");
            return Err(problem(utterance, ProblemKind::Silent, detail));
        }
        let mut span = 0..samples.len();
        if let Some(below_peak_db) = self.recipe.trim_db {
            span = audio::trim_silence(&samples, INPUT_SAMPLE_RATE, below_peak_db, KEPT_SILENCE_MS);
            let scale = |at: usize| {
                (at as u64 * u64::from(OUTPUT_SAMPLE_RATE) / u64::from(INPUT_SAMPLE_RATE)) as usize
            };
            let end = scale(span.end).min(waveform_span.end);
            waveform_span = scale(span.start).min(end)..end;
            if with_waveform {
                waveform.truncate(waveform_span.end);
                waveform.drain(..waveform_span.start);
            }
            samples.truncate(span.end);
            samples.drain(..span.start);
        }
        let seconds = samples.len() as f32 / INPUT_SAMPLE_RATE as f32;
        if seconds < self.recipe.min_seconds {
            let detail = format!(
                "{seconds:.2} s after trimming, the minimum is {:.2} s (data.min_seconds)",
                self.recipe.min_seconds
            );
            return Err(problem(utterance, ProblemKind::TooShort, detail));
        }
        let frames = FrontEnd::Dvae.frames(samples.len());
        if frames > self.recipe.max_mel_frames as usize {
            let detail = format!(
                "{seconds:.2} s are {frames} mel frames, the maximum is {} ({}): split it",
                self.recipe.max_mel_frames, self.recipe.limited_by
            );
            return Err(problem(utterance, ProblemKind::TooLong, detail));
        }
        let mut gain = None;
        if let Some(target) = self.recipe.loudness_lufs
            && let Some(loudness) = audio::integrated_loudness(&samples, INPUT_SAMPLE_RATE)
        {
            let by = audio::gain_to(target, loudness, peak, MAX_PEAK);
            samples.iter_mut().chain(&mut waveform).for_each(|sample| *sample *= by);
            gain = Some(by);
        }
        Ok(DecodedAudio { samples, waveform, waveform_samples: waveform_span.len(), span, gain })
    }
}

/// Prepares a recording at [`INPUT_SAMPLE_RATE`] as for training: trims silence at both ends and normalises the loudness.
pub fn preprocess(samples: &[f32], trim_db: Option<f32>, loudness_lufs: Option<f64>) -> Vec<f32> {
    let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
    let span = match trim_db {
        Some(below_peak_db) if peak >= SILENT_PEAK => {
            audio::trim_silence(samples, INPUT_SAMPLE_RATE, below_peak_db, KEPT_SILENCE_MS)
        }
        _ => 0..samples.len(),
    };
    let mut kept = samples[span].to_vec();
    if let Some(target) = loudness_lufs
        && let Some(loudness) = audio::integrated_loudness(&kept, INPUT_SAMPLE_RATE)
    {
        let by = audio::gain_to(target, loudness, peak, MAX_PEAK);
        kept.iter_mut().for_each(|sample| *sample *= by);
    }
    kept
}

/// -60 dBFS.
const SILENT_PEAK: f32 = 1e-3;
/// -1 dBFS: the peak that loudness normalisation does not exceed.
const MAX_PEAK: f32 = 0.891;

impl Featurizer for Extractor {
    fn columns(&self) -> &[Column] {
        &self.recipe.columns
    }

    fn fingerprint(&self) -> [u8; 32] {
        // The name of the limiting setting does not change any record.
        let Recipe { limited_by: _, columns, trim_db, loudness_lufs, min_seconds, .. } = &self.recipe;
        let Recipe { max_mel_frames, max_text_tokens, cleaner, .. } = &self.recipe;
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

    fn compute(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Features, Problem> {
        let tokens = self.tokens(utterance)?;
        self.with_tools(|tools| {
            let waveform = self.recipe.columns.contains(&WAVEFORM);
            let audio = self.decode(utterance, source_bytes, tools, waveform)?;
            let array = |column: &Column| match *column {
                TOKENS => bytemuck::cast_slice(&tokens).to_vec(),
                column => tools.array(column, &audio),
            };
            let arrays = self.recipe.columns.iter().map(array).collect();
            let seconds = audio.samples.len() as f32 / INPUT_SAMPLE_RATE as f32;
            Ok(Features { arrays, seconds })
        })
    }

    /// Decodes all of the audio once: trimming and loudness need the whole clip, and unusable clips are rejected exactly as
    /// for a cache.
    fn measure(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Measured, Problem> {
        let tokens = self.tokens(utterance)?.len();
        self.with_tools(|tools| {
            let audio = self.decode(utterance, source_bytes, tools, false)?;
            let samples = audio.samples.len();
            let frames = |column: &Column| match *column {
                TOKENS => tokens,
                SPEAKER_MEL => {
                    let rate = FrontEnd::Speaker.sample_rate();
                    FrontEnd::Speaker.frames(tools.resampler(INPUT_SAMPLE_RATE, rate).output_len(samples))
                }
                WAVEFORM => audio.waveform_samples,
                _ => FrontEnd::Dvae.frames(samples),
            };
            let rows = self.recipe.columns.iter().map(frames).map(|rows| rows as u32).collect();
            let pieces = SegmentReader::from_bytes(source_bytes, &utterance.audio)
                .map_err(|error| problem(utterance, error.kind(), error.to_string()))?;
            let audio = pieces
                .filter(|pieces| pieces.sample_rate() == INPUT_SAMPLE_RATE)
                .map(|pieces| AudioLocation { pieces, span: audio.span, gain: audio.gain });
            Ok(Measured { rows, audio })
        })
    }

    fn column(&self, utterance: &Utterance, source_bytes: &[u8], column: usize) -> Result<Vec<u8>, Problem> {
        match self.recipe.columns[column] {
            TOKENS => Ok(bytemuck::cast_slice(&self.tokens(utterance)?).to_vec()),
            column => self.with_tools(|tools| {
                let audio = self.decode(utterance, source_bytes, tools, column == WAVEFORM)?;
                Ok(tools.array(column, &audio))
            }),
        }
    }

    fn rows(
        &self,
        utterance: &Utterance,
        measured: &Measured,
        column: usize,
        first_row: u32,
        out: &mut [u8],
    ) -> Result<Option<u32>, Problem> {
        let (kind, first, rows) =
            (self.recipe.columns[column], first_row as usize, measured.rows[column] as usize);
        let count = (out.len() / kind.row_bytes()).min(rows.saturating_sub(first));
        let out = &mut out[..count * kind.row_bytes()];
        let front_end = match (kind, &measured.audio) {
            _ if count == 0 => return Ok(Some(0)),
            (TOKENS, _) => {
                let began = Instant::now();
                let tokens = self.tokens(utterance)?;
                out.copy_from_slice(bytemuck::cast_slice(&tokens[first..first + count]));
                note_computing(began.elapsed());
                return Ok(Some(count as u32));
            }
            (DVAE_MEL, Some(audio)) => (FrontEnd::Dvae, audio),
            (CONDITIONING_MEL, Some(audio)) => (FrontEnd::Conditioning, audio),
            // The file has another sample rate, or can only be decoded from its beginning.
            _ => return Ok(None),
        };
        let (front_end, AudioLocation { pieces, span, gain }) = front_end;
        self.with_tools(|tools| {
            let needed = front_end.samples_of(first..first + count, span.len());
            let range = (span.start + needed.start) as u64..(span.start + needed.end) as u64;
            pieces
                .read(&utterance.audio, range, &mut tools.bytes)
                .map_err(|error| problem(utterance, error.kind(), error.to_string()))?;
            let began = Instant::now();
            let mut samples = pieces.decode(&tools.bytes);
            if let Some(gain) = gain {
                samples.iter_mut().for_each(|sample| *sample *= gain);
            }
            let position = (needed.start, span.len());
            let (extractor, frames) = tools.extractor(front_end);
            extractor.compute_frames(&samples, position, first..first + count, frames);
            out.copy_from_slice(bytemuck::cast_slice(frames));
            note_computing(began.elapsed());
            Ok(Some(count as u32))
        })
    }
}

fn pcm16(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * 32767.0).round() as i16
}

fn problem(utterance: &Utterance, kind: ProblemKind, detail: String) -> Problem {
    Problem {
        kind,
        severity: Severity::Error,
        id: Some(utterance.id.clone()),
        origin: utterance.origin.clone(),
        detail,
    }
}

/// Reusable state of one computation, created on demand.
#[derive(Default)]
struct Tools {
    resamplers: Vec<(u32, u32, Resampler)>,
    dvae: Option<MelExtractor>,
    conditioning: Option<MelExtractor>,
    speaker: Option<MelExtractor>,
    frames: Vec<f32>,
    bytes: Vec<u8>,
}

impl Tools {
    fn resampler(&mut self, from: u32, to: u32) -> &mut Resampler {
        let known = self.resamplers.iter().position(|&(a, b, _)| (a, b) == (from, to));
        let at = known.unwrap_or_else(|| {
            self.resamplers.push((from, to, Resampler::new(from, to)));
            self.resamplers.len() - 1
        });
        &mut self.resamplers[at].2
    }

    fn resample(&mut self, samples: &[f32], from: u32, to: u32) -> Vec<f32> {
        self.resampler(from, to).resample(samples)
    }

    /// Returns a front-end and its output buffer.
    fn extractor(&mut self, front_end: FrontEnd) -> (&mut MelExtractor, &mut Vec<f32>) {
        let extractor = match front_end {
            FrontEnd::Dvae => &mut self.dvae,
            FrontEnd::Conditioning => &mut self.conditioning,
            FrontEnd::Speaker => &mut self.speaker,
        };
        (extractor.get_or_insert_with(|| MelExtractor::new(front_end)), &mut self.frames)
    }

    fn mel(&mut self, front_end: FrontEnd, samples: &[f32]) -> Vec<u8> {
        let (extractor, frames) = self.extractor(front_end);
        extractor.compute(samples, frames);
        bytemuck::cast_slice(frames).to_vec()
    }

    /// Computes an array from audio.
    fn array(&mut self, column: Column, audio: &DecodedAudio) -> Vec<u8> {
        match column {
            DVAE_MEL => self.mel(FrontEnd::Dvae, &audio.samples),
            CONDITIONING_MEL => self.mel(FrontEnd::Conditioning, &audio.samples),
            SPEAKER_MEL => {
                let rate = FrontEnd::Speaker.sample_rate();
                let at_16k = self.resample(&audio.samples, INPUT_SAMPLE_RATE, rate);
                self.mel(FrontEnd::Speaker, &at_16k)
            }
            WAVEFORM => audio.waveform.iter().flat_map(|&sample| pcm16(sample).to_le_bytes()).collect(),
            other => unreachable!("no front-end computes column {:?}", other.name),
        }
    }
}

//! Autoregressive generation: the GPT samples one code after another.
//!
//! | program | runs | inputs |
//! |---|---|---|
//! | conditioning | once per chunk of a reference | mel frames |
//! | prefill | once per text | the voice, START text STOP |
//! | step | once per code | the previous code and its position |
//!
//! The step is one program for all positions, so on CUDA it is captured once. Texts are padded to a few lengths.

mod error;
mod forced;
pub mod many;
mod programs;
pub mod slots;

pub use error::GenerateError;
pub use forced::Forced;
pub use many::SpeechRequest;
pub use slots::{SlotId, SlotOptions, SlotOutput, Slots};

use crate::declare::{Declare, Released};
use crate::gpt::{Gpt, GptSizes};
use crate::sampling::{Sampler, SamplingOptions, StopReason};
use myxtts_tensor::{Control, Device, Engine, EngineOptions, Error, InitialWeights, Precision};
use programs::{Conditioning, SequenceState};
use std::sync::Arc;

/// Codes the original keeps free at the end of its position table.
const RESERVED_POSITIONS: usize = 3;

/// Generated speech.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The codes, without STOP.
    pub codes: Vec<i32>,
    /// The states `[rows, width]` that predicted each code, and the one that predicted STOP if it came: the original
    /// passes that one to its decoder too.
    pub latents: Vec<f32>,
    /// Why generation ended.
    pub ended: StopReason,
}

/// One generated code, for an observer.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The sampled code; may be STOP.
    pub code: i32,
    /// The logits it was sampled from; empty if the device samples ([`Generator::decode_together`]).
    pub logits: &'a [f32],
    /// The state that predicted it.
    pub latent: &'a [f32],
}

/// A GPT on a device, ready to generate.
pub struct Generator {
    engine: Engine,
    gpt: Gpt,
    released: Vec<Released>,
    conditioning: Option<Conditioning>,
    sequence: SequenceState,
    /// The same sequence without its text, for guidance.
    textless: Option<SequenceState>,
    /// Used instead when codes are decoded in bf16.
    slots: Option<Box<Slots>>,
}

/// A text, and what replaces it in the unguided sequence.
#[derive(Clone, Copy, Debug)]
pub struct Guided<'a> {
    /// Tokens of the text.
    pub text: &'a [i32],
    /// Tokens of the empty text, as in training rows with text dropout; `None` turns guidance off.
    pub textless: Option<&'a [i32]>,
}

impl<'a> From<&'a [i32]> for Guided<'a> {
    fn from(text: &'a [i32]) -> Guided<'a> {
        Guided { text, textless: None }
    }
}

impl<'a> From<&'a Vec<i32>> for Guided<'a> {
    fn from(text: &'a Vec<i32>) -> Guided<'a> {
        Guided { text, textless: None }
    }
}

impl Generator {
    /// Creates a generator without weights.
    pub fn new(device: Device, precision: Precision, sizes: &GptSizes) -> Result<Generator, Error> {
        Generator::with_guidance(device, precision, sizes, false)
    }

    /// Like `new`, for a GPT trained with text dropout, which allows guidance.
    pub fn guided(device: Device, precision: Precision, sizes: &GptSizes) -> Result<Generator, Error> {
        Generator::with_guidance(device, precision, sizes, true)
    }

    fn with_guidance(
        device: Device,
        precision: Precision,
        sizes: &GptSizes,
        guided: bool,
    ) -> Result<Generator, Error> {
        let mut declare = Declare::new(0.0, &|_| false);
        let gpt = Gpt::declare(&mut declare, sizes.clone());
        let caches = gpt.declare_caches(&mut declare, "cache");
        let textless = guided.then(|| gpt.declare_caches(&mut declare, "textless_cache"));
        let (layout, mut released) = declare.finish();
        released.retain(|parameter| {
            !caches.holds(parameter.id) && !textless.as_ref().is_some_and(|caches| caches.holds(parameter.id))
        });
        // Every weight is written by the loader, and the caches start empty.
        let options = EngineOptions { initial: InitialWeights::Zeros, ..EngineOptions::default() };
        let mut engine = Engine::new(device, Arc::clone(&layout), precision, options)?;
        let sequence = SequenceState::new(&mut engine, &gpt, caches)?;
        let textless = match textless {
            Some(caches) => Some(SequenceState::new(&mut engine, &gpt, caches)?),
            None => None,
        };
        Ok(Generator { engine, gpt, released, conditioning: None, sequence, textless, slots: None })
    }

    /// Returns whether guidance is available.
    pub fn is_guided(&self) -> bool {
        self.textless.is_some()
    }

    /// Sizes of the GPT.
    pub fn sizes(&self) -> &GptSizes {
        &self.gpt.sizes
    }

    /// Loads every parameter with the values `weights` returns, in the engine's layout.
    pub fn load<E: From<Error>>(
        &mut self,
        weights: impl Fn(&Released) -> Result<Vec<f32>, E>,
    ) -> Result<(), E> {
        for parameter in &self.released {
            let data = weights(parameter)?;
            self.engine.write_parameter(parameter.id, &data)?;
            if let Some(slots) = &mut self.slots {
                slots.write(parameter, &data)?;
            }
        }
        Ok(())
    }

    /// Like `load`, on all cores: `fill` writes a parameter in the engine's layout into the given buffer.
    pub fn fill<E: From<Error> + Send>(
        &mut self,
        fill: impl Fn(&Released, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let ids: Vec<_> = self.released.iter().map(|parameter| parameter.id).collect();
        let released = &self.released;
        self.engine.fill_parameters(&ids, |number, out| fill(&released[number], out))?;
        match &mut self.slots {
            Some(slots) => slots.copy_or_fill(&self.engine, released, fill),
            None => Ok(()),
        }
    }

    /// Computes the voice `[latents, width]` of a reference: the mean over its chunks of mel frames `[frames, mels]`,
    /// each divided by the model's mel statistics.
    pub fn condition(&mut self, chunks: &[&[f32]]) -> Result<Vec<f32>, GenerateError> {
        let mels = self.gpt.sizes.conditioning.mels;
        let mut voice = vec![0f64; self.voice_len()];
        let mut count = 0;
        for chunk in chunks.iter().filter(|chunk| chunk.len() >= mels) {
            let frames = chunk.len() / mels;
            let conditioning = match self.conditioning.take() {
                Some(conditioning) if conditioning.frames == frames => conditioning,
                _ => Conditioning::new(&mut self.engine, &self.gpt, frames)?,
            };
            let Conditioning { program, mels: input, vectors, .. } = self.conditioning.insert(conditioning);
            self.engine.write(program, *input, &chunk[..frames * mels])?;
            self.engine.run(program, &Control::default())?;
            let vectors = self.engine.read(program, *vectors)?;
            voice.iter_mut().zip(vectors).for_each(|(sum, value)| *sum += f64::from(value));
            count += 1;
        }
        if count == 0 {
            return Err(GenerateError::NoFrames);
        }
        Ok(voice.into_iter().map(|sum| (sum / f64::from(count)) as f32).collect())
    }

    /// Speaks a text in a voice.
    pub fn speak<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
    ) -> Result<Spoken, GenerateError> {
        self.speak_with_observer(voice, text, options, &mut |_| true)
    }

    /// Like `speak`; `observe` sees every step and returns whether to continue.
    pub fn speak_with_observer<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
        observe: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Spoken, GenerateError> {
        let Guided { text, textless } = text.into();
        self.check(voice, text)?;
        if let Some(slots) = &mut self.slots {
            let textless = textless.filter(|_| self.textless.is_some());
            return slots.speak_with_observer(voice, Guided { text, textless }, options, observe);
        }
        let mut rows = self.sequence.begin(&mut self.engine, &self.gpt, voice, text)?;
        let mut without = match (&mut self.textless, textless) {
            (Some(sequence), Some(text)) if options.guidance > 0.0 => {
                let rows = sequence.begin(&mut self.engine, &self.gpt, voice, text)?;
                Some((sequence, rows))
            }
            _ => None,
        };
        let sizes = &self.gpt.sizes;
        let room = sizes.max_audio.saturating_sub(RESERVED_POSITIONS).min(options.max_codes);
        let most = options.guards.most(text.len());
        let mut sampler = Sampler::new(options, sizes.audio_vocabulary, sizes.start_audio);
        let (mut codes, mut latents, mut before) = (Vec::new(), Vec::new(), sizes.start_audio);
        let ended = loop {
            if codes.len() >= room {
                break StopReason::Limit;
            }
            if codes.len() >= most {
                break StopReason::TooManyForText;
            }
            let code_position = codes.len();
            let (mut logits, latent) =
                self.sequence.decode_step.run(&mut self.engine, before, code_position, rows)?;
            if let Some((sequence, rows)) = &mut without {
                let (others, _) = sequence.decode_step.run(&mut self.engine, before, code_position, *rows)?;
                guide(&mut logits, &others, options.guidance, sizes.stop_audio);
                *rows += 1;
            }
            let not_numbers = GenerateError::NotNumbers { codes: codes.len() };
            let code = sampler.next(&logits).ok_or(not_numbers)?;
            latents.extend_from_slice(&latent);
            let more = observe(Step { code, logits: &logits, latent: &latent });
            if code == self.gpt.sizes.stop_audio {
                break StopReason::Stop;
            }
            codes.push(code);
            if let Some(left) = options.guards.length_before_loop(&codes) {
                codes.truncate(left);
                latents.truncate(left * self.gpt.sizes.width);
                break StopReason::Loop;
            }
            if !more {
                break StopReason::Observer;
            }
            (before, rows) = (code, rows + 1);
        };
        Ok(Spoken { codes, latents, ended })
    }

    fn voice_len(&self) -> usize {
        self.gpt.sizes.perceiver.latents * self.gpt.sizes.width
    }

    fn check(&self, voice: &[f32], text: &[i32]) -> Result<(), GenerateError> {
        check(&self.gpt.sizes, voice, text)
    }
}

/// Checks that voice and text fit the model.
fn check(sizes: &GptSizes, voice: &[f32], text: &[i32]) -> Result<(), GenerateError> {
    let wanted = sizes.perceiver.latents * sizes.width;
    if voice.len() != wanted {
        return Err(GenerateError::Voice { found: voice.len(), wanted });
    }
    if text.is_empty() {
        return Err(GenerateError::NoText);
    }
    if text.len() > sizes.max_text {
        return Err(GenerateError::TextTooLong { found: text.len(), most: sizes.max_text });
    }
    match out_of_range(text, sizes.text_vocabulary) {
        Some(id) => Err(GenerateError::Token { id, vocabulary: sizes.text_vocabulary }),
        None => Ok(()),
    }
}

/// Classifier-free guidance: moves logits away from those without the text. STOP's probability is unchanged: without a
/// text there is no position where it belongs, and guidance that sharpens all codes but STOP would let speech run on.
fn guide(logits: &mut [f32], others: &[f32], guidance: f32, stop: i32) {
    let log_sum = |row: &mut dyn Iterator<Item = f32>| {
        let row: Vec<f32> = row.collect();
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        top + row.iter().map(|x| (x - top).exp()).sum::<f32>().ln()
    };
    let (own_sum, other_sum) = (log_sum(&mut logits.iter().copied()), log_sum(&mut others.iter().copied()));
    let stop = usize::try_from(stop).unwrap_or(usize::MAX);
    let codes = |row: &[f32]| {
        let of_codes = row.iter().enumerate().filter(|(code, _)| *code != stop).map(|(_, x)| *x);
        log_sum(&mut of_codes.collect::<Vec<f32>>().into_iter())
    };
    let before = codes(logits);
    for (code, (own, other)) in logits.iter_mut().zip(others).enumerate() {
        if code != stop {
            *own += guidance * ((*own - own_sum) - (other - other_sum));
        }
    }
    let shift = codes(logits) - before;
    if let Some(stop) = logits.get_mut(stop) {
        *stop += shift;
    }
}

/// Returns the first id that is not a row of a table of `rows` rows.
fn out_of_range(ids: &[i32], rows: usize) -> Option<i32> {
    ids.iter().copied().find(|&id| !usize::try_from(id).is_ok_and(|id| id < rows))
}

#[cfg(test)]
mod tests {
    use super::guide;

    fn probabilities(logits: &[f32]) -> Vec<f32> {
        let sum: f32 = logits.iter().map(|x| x.exp()).sum();
        logits.iter().map(|x| x.exp() / sum).collect()
    }

    #[test]
    fn guidance_does_not_change_the_probability_of_stop() {
        let (with_text, without) = ([1.0f32, 0.5, -1.0, 0.8, 0.2], [0.0f32, 0.5, 1.0, 0.8, 2.0]);
        for stop in [0, 3, 4] {
            for guidance in [0.5, 1.0, 3.0] {
                let mut logits = with_text;
                guide(&mut logits, &without, guidance, stop as i32);
                let (before, after, other) =
                    (probabilities(&with_text), probabilities(&logits), probabilities(&without));
                assert!((after[stop] - before[stop]).abs() < 1e-5, "{stop}: {before:?} {after:?}");
                // The probabilities of codes are proportional to (with / without) ^ guidance.
                let [a, b] = if stop == 0 { [1, 2] } else { [0, 2] };
                let ratio = |shares: &[f32]| shares[a] / shares[b];
                let expected = ratio(&before) * (ratio(&before) / ratio(&other)).powf(guidance);
                assert!(
                    (ratio(&after) / expected - 1.0).abs() < 1e-3,
                    "{stop}: {} {expected}",
                    ratio(&after)
                );
            }
        }
    }
}

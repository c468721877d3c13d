//! Continuous batching: texts join and leave slots while others are being decoded.
//!
//! The output of a slot depends only on its voice, text and options: not on other slots, their number, or the number of
//! steps per call. On CUDA all slots advance together in bf16; a step is one captured graph with sampling on the
//! device. Elsewhere, and for model sizes the kernels do not support, slots advance one after another in f32.

mod fused;
mod plain;
mod speech;

pub use speech::SlotOutput;

use super::many::SpeechRequest;
use super::{GenerateError, Guided, Spoken, Step, check, out_of_range};
use crate::declare::{Declare, Released};
use crate::gpt::{Gpt, GptSizes};
use crate::sampling::{SamplingOptions, StopReason};
use fused::Fused;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::{Device, Engine, Error};
use plain::Plain;
use rayon::prelude::*;
use speech::Speech;
use std::sync::Arc;

/// Identifies one use of a slot; a slot that is joined again has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    index: usize,
    serial: u64,
}

/// Number of slots and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOptions {
    /// Texts at the same time.
    pub slots: usize,
    /// Whether guidance is available; each slot then has a second set of keys and values.
    pub guided: bool,
    /// Whether bf16 may be used if the device supports it.
    pub bf16: bool,
}

impl Default for SlotOptions {
    fn default() -> SlotOptions {
        SlotOptions { slots: 1, guided: false, bf16: true }
    }
}

enum Backend {
    Fused(Box<Fused>),
    Sequential(Box<Plain>),
}

/// A GPT on a device that speaks many texts at once.
pub struct Slots {
    sizes: GptSizes,
    options: SlotOptions,
    backend: Backend,
    speeches: Vec<Option<(u64, Speech)>>,
    serial: u64,
}

impl Slots {
    /// Creates slots without weights.
    pub fn new(device: Device, sizes: &GptSizes, options: SlotOptions) -> Result<Slots, Error> {
        if let Device::Cuda(ordinal) = device
            && options.bf16
        {
            return Slots::on_cuda(Arc::new(Cuda::open(ordinal, &Default::default())?), sizes, options);
        }
        let backend = Backend::Sequential(Box::new(Plain::new(device, sizes, options)?));
        Ok(Slots::with(backend, sizes, options))
    }

    /// Like `new`, on a device that is already open.
    pub fn on_cuda(cuda: Arc<Cuda>, sizes: &GptSizes, options: SlotOptions) -> Result<Slots, Error> {
        let backend = if Slots::can_advance_together(&cuda, sizes, options) {
            Backend::Fused(Box::new(Fused::new(cuda, sizes, options)?))
        } else {
            Backend::Sequential(Box::new(Plain::on_cuda(cuda, sizes, options)?))
        };
        Ok(Slots::with(backend, sizes, options))
    }

    fn with(backend: Backend, sizes: &GptSizes, options: SlotOptions) -> Slots {
        let speeches = (0..options.slots).map(|_| None).collect();
        Slots { sizes: sizes.clone(), options, backend, speeches, serial: 0 }
    }

    /// Returns whether the device and its kernels can advance all slots in one step.
    pub(crate) fn can_advance_together(cuda: &Cuda, sizes: &GptSizes, options: SlotOptions) -> bool {
        options.bf16 && Fused::fits(cuda, sizes, options)
    }

    /// Returns whether all slots advance in one step, in bf16.
    pub fn advances_together(&self) -> bool {
        matches!(self.backend, Backend::Fused(_))
    }

    /// Sizes of the GPT.
    pub fn sizes(&self) -> &GptSizes {
        &self.sizes
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.speeches.len()
    }

    /// Returns whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.speeches.is_empty()
    }

    /// Number of free slots.
    pub fn free(&self) -> usize {
        self.speeches.iter().filter(|speech| speech.is_none()).count()
    }

    /// Loads every parameter with the values `weights` returns, in the engine's layout.
    pub fn load<E: From<Error>>(
        &mut self,
        weights: impl Fn(&Released) -> Result<Vec<f32>, E>,
    ) -> Result<(), E> {
        for parameter in self.released() {
            self.write(&parameter, &weights(&parameter)?)?;
        }
        Ok(())
    }

    /// Like `load`, on all cores: `fill` writes a parameter in the engine's layout into the given buffer.
    pub fn fill<E: From<Error> + Send>(
        &mut self,
        fill: impl Fn(&Released, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        self.fill_some(&self.released(), fill)
    }

    fn fill_some<E: From<Error> + Send>(
        &mut self,
        released: &[Released],
        fill: impl Fn(&Released, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        // A few at a time: all of them in f32 would take twice the memory of the bf16 model.
        const TOGETHER: usize = 16;
        for some in released.chunks(TOGETHER) {
            let filled = some.par_iter().map(|parameter| {
                let mut numbers = vec![0.0; parameter.shape.iter().product()];
                fill(parameter, &mut numbers).map(|()| numbers)
            });
            let filled: Vec<Vec<f32>> = filled.collect::<Result<_, E>>()?;
            some.iter().zip(&filled).try_for_each(|(parameter, numbers)| self.write(parameter, numbers))?;
        }
        Ok(())
    }

    /// Like `fill`, but copies parameters that `engine` already has on the same device; `held` lists them. `fill`
    /// provides the rest.
    pub(super) fn copy_or_fill<E: From<Error> + Send>(
        &mut self,
        engine: &Engine,
        held: &[Released],
        fill: impl Fn(&Released, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let mut left = Vec::new();
        match &mut self.backend {
            Backend::Fused(fused) => {
                for parameter in held.iter().filter(|parameter| Fused::takes(parameter)) {
                    if !fused.copy(parameter, engine)? {
                        left.push(parameter.clone());
                    }
                }
            }
            Backend::Sequential(_) => left = self.released(),
        }
        self.fill_some(&left, fill)
    }

    /// Parameters that decoding needs.
    fn released(&self) -> Vec<Released> {
        let mut declare = Declare::new(0.0, &|_| false);
        Gpt::declare(&mut declare, self.sizes.clone());
        let (_, mut released) = declare.finish();
        if self.advances_together() {
            released.retain(Fused::takes);
        }
        released
    }

    /// Writes one parameter.
    pub(super) fn write(&mut self, parameter: &Released, data: &[f32]) -> Result<(), Error> {
        match &mut self.backend {
            Backend::Fused(fused) => fused.write(parameter, data),
            Backend::Sequential(plain) => plain.write(parameter, data),
        }
    }

    /// Starts speaking a text in a voice. The prompt is processed at once; codes come with [`Slots::advance`].
    pub fn join<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
    ) -> Result<SlotId, GenerateError> {
        let request = SpeechRequest { voice, text: text.into(), options: options.clone() };
        let joined = self.join_many(std::slice::from_ref(&request))?;
        Ok(joined[0])
    }

    /// Starts several texts, with prompts processed together: all of them, or none if one cannot start.
    pub(crate) fn join_many(&mut self, requests: &[SpeechRequest<'_>]) -> Result<Vec<SlotId>, GenerateError> {
        let mut speeches = Vec::with_capacity(requests.len());
        for SpeechRequest { voice, text: Guided { text, textless }, options } in requests {
            check(&self.sizes, voice, text)?;
            let textless = textless.filter(|_| options.guidance > 0.0);
            if let Some(textless) = textless {
                if !self.options.guided {
                    return Err(GenerateError::NotGuided);
                }
                // Unlike a text, it may be empty.
                check(&self.sizes, voice, if textless.is_empty() { text } else { textless })?;
            }
            let prompt = Prompt { voice, text, textless };
            speeches.push((prompt, Speech::new(&self.sizes, options, text.len())));
        }
        self.collect_pending()?;
        let mut free: Vec<usize> = (0..self.speeches.len()).filter(|&i| self.speeches[i].is_none()).collect();
        if free.len() < requests.len() {
            return Err(GenerateError::NoFreeSlot { slots: self.speeches.len() });
        }
        let mut joining = Vec::with_capacity(speeches.len());
        for (prompt, speech) in &speeches {
            // Prefers a slot that already holds the voice.
            let has_voice = |&index: &usize| match &self.backend {
                Backend::Fused(fused) => fused.has_voice(index, prompt.voice),
                Backend::Sequential(_) => false,
            };
            let index = free.remove(free.iter().position(has_voice).unwrap_or(0));
            joining.push((index, *prompt, speech));
        }
        match &mut self.backend {
            Backend::Fused(fused) => fused.join(&self.sizes, &joining)?,
            Backend::Sequential(plain) => {
                joining.iter().try_for_each(|&(index, prompt, speech)| plain.join(index, prompt, speech))?
            }
        }
        let indices: Vec<usize> = joining.iter().map(|(index, ..)| *index).collect();
        let mut joined = Vec::with_capacity(indices.len());
        for (index, (_, speech)) in indices.into_iter().zip(speeches) {
            self.serial += 1;
            self.speeches[index] = Some((self.serial, speech));
            joined.push(SlotId { index, serial: self.serial });
        }
        Ok(joined)
    }

    /// Samples up to `steps` codes in every slot that has not ended. On CUDA this only queues them; [`Slots::take`]
    /// waits.
    pub fn advance(&mut self, steps: usize) -> Result<(), GenerateError> {
        match &mut self.backend {
            Backend::Fused(fused) => fused.advance(&mut self.speeches, &self.sizes, steps),
            Backend::Sequential(plain) => plain.advance(&mut self.speeches, &self.sizes, steps),
        }
    }

    /// Returns what a slot has generated since the last call.
    pub fn take(&mut self, slot: SlotId) -> Result<SlotOutput, GenerateError> {
        self.collect_pending()?;
        self.speech(slot)?.take()
    }

    /// Releases a slot, whether or not it has ended.
    pub fn leave(&mut self, slot: SlotId) -> Result<(), GenerateError> {
        self.collect_pending()?;
        self.speech(slot)?;
        self.speeches[slot.index] = None;
        Ok(())
    }

    /// Speaks one text to its end: `join`, `advance`, `take`, `leave`.
    pub fn speak<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
    ) -> Result<Spoken, GenerateError> {
        self.speak_with_observer(voice, text, options, &mut |_| true)
    }

    /// Like `speak`; `observe` sees every step, without logits, and returns whether to continue. The next codes are
    /// sampled meanwhile.
    pub fn speak_with_observer<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
        observe: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Spoken, GenerateError> {
        let slot = self.join(voice, text, options)?;
        let spoken = self.speak_to_end(slot, observe);
        self.leave(slot)?;
        spoken
    }

    /// Observes the codes of a slot until it ends or `observe` returns false.
    fn speak_to_end(
        &mut self,
        slot: SlotId,
        observe: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Spoken, GenerateError> {
        // Few at first, so that audio can start: it needs five codes.
        const STEPS: [usize; 3] = [5, 8, 16];
        let (width, stop) = (self.sizes.width, self.sizes.stop_audio);
        let (mut codes, mut latents) = (Vec::new(), Vec::new());
        let mut rounds = 0;
        let mut steps = || {
            rounds += 1;
            STEPS[rounds.min(STEPS.len()) - 1]
        };
        self.advance(steps())?;
        loop {
            let taken = self.take(slot)?;
            if taken.ended.is_none() {
                self.advance(steps())?;
            }
            let sampled =
                taken.codes.iter().copied().chain((taken.ended == Some(StopReason::Stop)).then_some(stop));
            for (code, latent) in sampled.zip(taken.latents.chunks_exact(width)) {
                latents.extend_from_slice(latent);
                let more = observe(Step { code, logits: &[], latent });
                if code == stop {
                    break;
                }
                codes.push(code);
                if !more {
                    return Ok(Spoken { codes, latents, ended: StopReason::Observer });
                }
            }
            if let Some(ended) = taken.ended {
                codes.truncate(taken.total);
                latents.truncate((taken.total + usize::from(ended == StopReason::Stop)) * width);
                return Ok(Spoken { codes, latents, ended });
            }
        }
    }

    /// Captures steps again, for CUPTI, which sees only the kernels of graphs captured while it is active.
    pub fn recapture(&mut self) -> Result<(), GenerateError> {
        self.collect_pending()?;
        if let Backend::Fused(fused) = &mut self.backend {
            fused.recapture()?;
        }
        Ok(())
    }

    fn speech(&mut self, slot: SlotId) -> Result<&mut Speech, GenerateError> {
        match self.speeches.get_mut(slot.index) {
            Some(Some((serial, speech))) if *serial == slot.serial => Ok(speech),
            _ => Err(GenerateError::ReleasedSlot),
        }
    }

    fn collect_pending(&mut self) -> Result<(), GenerateError> {
        match &mut self.backend {
            Backend::Fused(fused) => fused.collect_pending(&mut self.speeches, &self.sizes),
            Backend::Sequential(_) => Ok(()),
        }
    }
}

/// The start of a sequence.
#[derive(Clone, Copy)]
struct Prompt<'a> {
    voice: &'a [f32],
    text: &'a [i32],
    textless: Option<&'a [i32]>,
}

/// Returns START text STOP.
fn framed(sizes: &GptSizes, text: &[i32]) -> Vec<i32> {
    debug_assert!(out_of_range(text, sizes.text_vocabulary).is_none());
    let mut ids = Vec::with_capacity(text.len() + 2);
    ids.push(sizes.start_text);
    ids.extend_from_slice(text);
    ids.push(sizes.stop_text);
    ids
}

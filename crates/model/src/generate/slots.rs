//! Many speeches at once: slots that are joined and left while others speak.
//!
//! What a slot says is a function of its voice, text and options alone: not of the other slots, of how many there are, nor
//! of how many steps are asked for at a time. On CUDA the speeches of all slots advance together in bf16, a step being one
//! recorded graph with the draw on the device; elsewhere, and for models whose sizes the kernels do not take, slots advance
//! one after another in f32.

mod fused;
mod plain;
mod speech;

pub use speech::Taken;

use super::many::SpeechRequest;
use super::{GenerateError, Guided, Spoken, Step, check, unknown};
use crate::declare::{Declare, Released};
use crate::gpt::{Gpt, GptSizes};
use crate::sampling::{Ended, SamplingOptions};
use fused::Fused;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::{Device, Engine, Error};
use plain::Plain;
use rayon::prelude::*;
use speech::Speech;
use std::sync::Arc;

/// Which speech; a slot that was left and joined again has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    index: usize,
    serial: u64,
}

/// Where the speeches are computed, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOptions {
    /// Speeches at the same time.
    pub slots: usize,
    /// Whether speeches may be guided: each slot then has a second set of keys and values.
    pub guided: bool,
    /// Whether bf16 may be used where the device has it.
    pub bf16: bool,
}

impl Default for SlotOptions {
    fn default() -> SlotOptions {
        SlotOptions { slots: 1, guided: false, bf16: true }
    }
}

enum Computed {
    Together(Box<Fused>),
    InTurn(Box<Plain>),
}

/// A GPT on a device that says many things at once.
pub struct Slots {
    sizes: GptSizes,
    options: SlotOptions,
    computed: Computed,
    speeches: Vec<Option<(u64, Speech)>>,
    serial: u64,
}

impl Slots {
    /// Slots of a GPT that has no weights yet.
    pub fn new(device: Device, sizes: &GptSizes, options: SlotOptions) -> Result<Slots, Error> {
        if let Device::Cuda(ordinal) = device
            && options.bf16
        {
            return Slots::on_cuda(Arc::new(Cuda::open(ordinal, &Default::default())?), sizes, options);
        }
        let computed = Computed::InTurn(Box::new(Plain::new(device, sizes, options)?));
        Ok(Slots::with(computed, sizes, options))
    }

    /// The same on a device that is open already.
    pub fn on_cuda(cuda: Arc<Cuda>, sizes: &GptSizes, options: SlotOptions) -> Result<Slots, Error> {
        let computed = if Slots::can_advance_together(&cuda, sizes, options) {
            Computed::Together(Box::new(Fused::new(cuda, sizes, options)?))
        } else {
            Computed::InTurn(Box::new(Plain::on_cuda(cuda, sizes, options)?))
        };
        Ok(Slots::with(computed, sizes, options))
    }

    fn with(computed: Computed, sizes: &GptSizes, options: SlotOptions) -> Slots {
        let speeches = (0..options.slots).map(|_| None).collect();
        Slots { sizes: sizes.clone(), options, computed, speeches, serial: 0 }
    }

    /// Whether a device and its kernels can have all slots advance in one step.
    pub fn can_advance_together(cuda: &Cuda, sizes: &GptSizes, options: SlotOptions) -> bool {
        options.bf16 && Fused::fits(cuda, sizes, options)
    }

    /// Whether all slots advance in one step, in bf16.
    pub fn advances_together(&self) -> bool {
        matches!(self.computed, Computed::Together(_))
    }

    /// The sizes of the GPT.
    pub fn sizes(&self) -> &GptSizes {
        &self.sizes
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.speeches.len()
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.speeches.is_empty()
    }

    /// Slots that can be joined.
    pub fn free(&self) -> usize {
        self.speeches.iter().filter(|speech| speech.is_none()).count()
    }

    /// Fills every parameter with what `weights` gives for it, in the engine's order and number.
    pub fn load<E: From<Error>>(
        &mut self,
        weights: impl Fn(&Released) -> Result<Vec<f32>, E>,
    ) -> Result<(), E> {
        for one in self.released() {
            self.write(&one, &weights(&one)?)?;
        }
        Ok(())
    }

    /// The same on all cores: `fill` writes a parameter in the engine's order and number to where it is given.
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
        // Some at a time: all of them in f32 would be twice the model.
        const TOGETHER: usize = 16;
        for some in released.chunks(TOGETHER) {
            let filled = some.par_iter().map(|one| {
                let mut numbers = vec![0.0; one.shape.iter().product()];
                fill(one, &mut numbers).map(|()| numbers)
            });
            let filled: Vec<Vec<f32>> = filled.collect::<Result<_, E>>()?;
            some.iter().zip(&filled).try_for_each(|(one, numbers)| self.write(one, numbers))?;
        }
        Ok(())
    }

    /// As `fill`, but takes what `engine`, whose parameters are `held`, has on the same device already; `fill` is asked for
    /// the rest.
    pub(super) fn copy_or_fill<E: From<Error> + Send>(
        &mut self,
        engine: &Engine,
        held: &[Released],
        fill: impl Fn(&Released, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let mut left = Vec::new();
        match &mut self.computed {
            Computed::Together(fused) => {
                for one in held.iter().filter(|one| Fused::takes(one)) {
                    if !fused.copy(one, engine)? {
                        left.push(one.clone());
                    }
                }
            }
            Computed::InTurn(_) => left = self.released(),
        }
        self.fill_some(&left, fill)
    }

    /// The parameters it takes.
    fn released(&self) -> Vec<Released> {
        let mut declare = Declare::new(0.0, &|_| false);
        Gpt::declare(&mut declare, self.sizes.clone());
        let (_, mut released) = declare.finish();
        if self.advances_together() {
            released.retain(Fused::takes);
        }
        released
    }

    /// Fills one parameter.
    pub(super) fn write(&mut self, one: &Released, data: &[f32]) -> Result<(), Error> {
        match &mut self.computed {
            Computed::Together(fused) => fused.write(one, data),
            Computed::InTurn(plain) => plain.write(one, data),
        }
    }

    /// Begins to say a text in a voice. The prompt is read at once; codes come with [`Slots::advance`].
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

    /// Begins several speeches, whose prompts are read together: all of them, or none where one cannot be begun.
    pub fn join_many(&mut self, requests: &[SpeechRequest<'_>]) -> Result<Vec<SlotId>, GenerateError> {
        let mut speeches = Vec::with_capacity(requests.len());
        for SpeechRequest { voice, text: Guided { text, textless }, options } in requests {
            check(&self.sizes, voice, text)?;
            let textless = textless.filter(|_| options.guidance > 0.0);
            if let Some(textless) = textless {
                if !self.options.guided {
                    return Err(GenerateError::NotGuided);
                }
                // It may be empty, unlike a text.
                check(&self.sizes, voice, if textless.is_empty() { text } else { textless })?;
            }
            let prompt = Prompt { voice, text, textless };
            speeches.push((prompt, Speech::new(&self.sizes, options, text.len())));
        }
        self.settle()?;
        let mut free: Vec<usize> = (0..self.speeches.len()).filter(|&i| self.speeches[i].is_none()).collect();
        if free.len() < requests.len() {
            return Err(GenerateError::NoFreeSlot { slots: self.speeches.len() });
        }
        let mut joining = Vec::with_capacity(speeches.len());
        for (prompt, speech) in &speeches {
            // Best one that has the voice already.
            let has_voice = |&index: &usize| match &self.computed {
                Computed::Together(fused) => fused.has_voice(index, prompt.voice),
                Computed::InTurn(_) => false,
            };
            let index = free.remove(free.iter().position(has_voice).unwrap_or(0));
            joining.push((index, *prompt, speech));
        }
        match &mut self.computed {
            Computed::Together(fused) => fused.join(&self.sizes, &joining)?,
            Computed::InTurn(plain) => {
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

    /// Draws up to `steps` codes in every slot that has not ended. On CUDA this only queues them: whoever takes waits.
    pub fn advance(&mut self, steps: usize) -> Result<(), GenerateError> {
        match &mut self.computed {
            Computed::Together(fused) => fused.advance(&mut self.speeches, &self.sizes, steps),
            Computed::InTurn(plain) => plain.advance(&mut self.speeches, &self.sizes, steps),
        }
    }

    /// What a slot has said since it was last asked.
    pub fn take(&mut self, slot: SlotId) -> Result<Taken, GenerateError> {
        self.settle()?;
        self.speech(slot)?.take()
    }

    /// Ends a speech, whether it has ended by itself or not; the slot is free.
    pub fn leave(&mut self, slot: SlotId) -> Result<(), GenerateError> {
        self.settle()?;
        self.speech(slot)?;
        self.speeches[slot.index] = None;
        Ok(())
    }

    /// Whether a slot has more to say, as far as is known.
    pub fn speaks(&self, slot: SlotId) -> bool {
        matches!(self.speeches.get(slot.index), Some(Some((serial, speech))) if *serial == slot.serial && speech.goes_on())
    }

    /// Says one text to its end: `join`, `advance`, `take`, `leave`.
    pub fn speak<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
    ) -> Result<Spoken, GenerateError> {
        self.speak_watched(voice, text, options, &mut |_| true)
    }

    /// As `speak`; every step is shown to `watch`, without its logits, which says whether to go on. The next codes are
    /// drawn meanwhile.
    pub fn speak_watched<'a>(
        &mut self,
        voice: &[f32],
        text: impl Into<Guided<'a>>,
        options: &SamplingOptions,
        watch: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Spoken, GenerateError> {
        let slot = self.join(voice, text, options)?;
        let spoken = self.follow(slot, watch);
        self.leave(slot)?;
        spoken
    }

    fn follow(
        &mut self,
        slot: SlotId,
        watch: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Spoken, GenerateError> {
        // Few at first, so that sound can begin: it does with the fifth code.
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
            let drawn = taken.codes.iter().copied().chain((taken.ended == Some(Ended::Stop)).then_some(stop));
            for (code, latent) in drawn.zip(taken.latents.chunks_exact(width)) {
                latents.extend_from_slice(latent);
                let more = watch(Step { code, logits: &[], latent });
                if code == stop {
                    break;
                }
                codes.push(code);
                if !more {
                    return Ok(Spoken { codes, latents, ended: Ended::Watcher });
                }
            }
            if let Some(ended) = taken.ended {
                codes.truncate(taken.total);
                latents.truncate((taken.total + usize::from(ended == Ended::Stop)) * width);
                return Ok(Spoken { codes, latents, ended });
            }
        }
    }

    /// Has recorded steps recorded again, for CUPTI, which sees the kernels of recordings that were made while it looked.
    pub fn record_again(&mut self) -> Result<(), GenerateError> {
        self.settle()?;
        if let Computed::Together(fused) = &mut self.computed {
            fused.record_again()?;
        }
        Ok(())
    }

    fn speech(&mut self, slot: SlotId) -> Result<&mut Speech, GenerateError> {
        match self.speeches.get_mut(slot.index) {
            Some(Some((serial, speech))) if *serial == slot.serial => Ok(speech),
            _ => Err(GenerateError::LeftSlot),
        }
    }

    fn settle(&mut self) -> Result<(), GenerateError> {
        match &mut self.computed {
            Computed::Together(fused) => fused.settle(&mut self.speeches, &self.sizes),
            Computed::InTurn(_) => Ok(()),
        }
    }
}

/// What a speech begins with.
#[derive(Clone, Copy)]
struct Prompt<'a> {
    voice: &'a [f32],
    text: &'a [i32],
    textless: Option<&'a [i32]>,
}

/// START text STOP.
fn framed(sizes: &GptSizes, text: &[i32]) -> Vec<i32> {
    debug_assert!(unknown(text, sizes.text_vocabulary).is_none());
    let mut ids = Vec::with_capacity(text.len() + 2);
    ids.push(sizes.start_text);
    ids.extend_from_slice(text);
    ids.push(sizes.stop_text);
    ids
}

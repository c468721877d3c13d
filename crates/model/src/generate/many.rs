//! Speaks more texts than there are slots: a finished text makes room for the next.

use super::slots::{SlotId, SlotOptions, Slots};
use super::{GenerateError, Generator, Guided, Spoken};
use crate::sampling::{SamplingOptions, StopReason};
use myxtts_tensor::{Device, Error};
use std::sync::Arc;

/// Codes sampled in all slots before finished ones are collected.
const STEPS: usize = 16;

/// Upper bound on the keys and values of all slots on a CPU, in bytes.
pub const CACHE_BYTES: usize = 512 << 20;

/// A text to speak.
#[derive(Clone, Debug)]
pub struct SpeechRequest<'a> {
    /// The voice `[latents, width]`.
    pub voice: &'a [f32],
    /// The text, with what replaces it for guidance.
    pub text: Guided<'a>,
    /// How codes are sampled.
    pub options: SamplingOptions,
}

impl Slots {
    /// Speaks all texts, as many at a time as there are slots. Each result equals that of [`Slots::speak`].
    pub fn speak_all(&mut self, requests: &[SpeechRequest<'_>]) -> Result<Vec<Spoken>, GenerateError> {
        let mut speaking: Vec<(usize, SlotId)> = Vec::new();
        let spoken = self.all(requests, &mut speaking);
        // After a failure the remaining slots are released.
        for (_, slot) in speaking {
            let left = self.leave(slot);
            if spoken.is_ok() {
                left?;
            }
        }
        spoken
    }

    fn all(
        &mut self,
        requests: &[SpeechRequest<'_>],
        speaking: &mut Vec<(usize, SlotId)>,
    ) -> Result<Vec<Spoken>, GenerateError> {
        if self.free() == 0 && !requests.is_empty() {
            return Err(GenerateError::NoFreeSlot { slots: self.len() });
        }
        let width = self.sizes().width;
        let empty = || Spoken { codes: Vec::new(), latents: Vec::new(), ended: StopReason::Stop };
        let mut spoken: Vec<Spoken> = requests.iter().map(|_| empty()).collect();
        let (mut begun, mut waiting) = (0, requests);
        loop {
            let next = waiting.len().min(self.free());
            let slots = self.join_many(&waiting[..next])?;
            speaking.extend(slots.into_iter().enumerate().map(|(i, slot)| (begun + i, slot)));
            (begun, waiting) = (begun + next, &waiting[next..]);
            if speaking.is_empty() {
                return Ok(spoken);
            }
            self.advance(STEPS)?;
            let mut at = 0;
            while let Some(&(number, slot)) = speaking.get(at) {
                let taken = self.take(slot)?;
                let Spoken { codes, latents, ended } = &mut spoken[number];
                codes.extend(taken.codes);
                latents.extend(taken.latents);
                let Some(end) = taken.ended else {
                    at += 1;
                    continue;
                };
                *ended = end;
                codes.truncate(taken.total);
                latents.truncate((taken.total + usize::from(end == StopReason::Stop)) * width);
                speaking.swap_remove(at);
                self.leave(slot)?;
            }
        }
    }
}

impl Generator {
    /// Decodes codes in bf16 with sampling on the device from now on, `slots` texts at a time, if the device supports it: many
    /// times faster, but the blocks' weights are stored a second time. Returns the number of slots: 1 if the device does not
    /// support it. Call it before weights are loaded.
    pub fn decode_together(&mut self, slots: usize) -> Result<usize, Error> {
        let Some(cuda) = self.engine.cuda() else { return Ok(1) };
        let options = SlotOptions { slots: slots.max(1), guided: self.is_guided(), bf16: true };
        if !Slots::can_advance_together(cuda, &self.gpt.sizes, options) {
            return Ok(1);
        }
        self.slots = Some(Box::new(Slots::on_cuda(Arc::clone(cuda), &self.gpt.sizes, options)?));
        Ok(options.slots)
    }

    /// Returns whether it runs on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.engine.cuda().is_some()
    }

    /// Like [`Generator::decode_together`], on every device: without support, slots advance one after another in f32,
    /// with weights of their own. Returns the number of slots; on a CPU their keys and values are limited to
    /// [`CACHE_BYTES`].
    pub fn decode_in_slots(&mut self, slots: usize) -> Result<usize, Error> {
        self.decode_together(slots)?;
        if self.slots.is_none() {
            let sizes = &self.gpt.sizes;
            let rows = sizes.perceiver.latents + sizes.text_positions() + sizes.audio_positions();
            let sequences = 1 + usize::from(self.is_guided());
            let bytes = 2 * 4 * sizes.layers * sizes.width * rows * sequences;
            let slots = slots.min(CACHE_BYTES / bytes.max(1)).max(1);
            let options = SlotOptions { slots, guided: self.is_guided(), bf16: false };
            let made = match self.engine.cuda() {
                Some(cuda) => Slots::on_cuda(Arc::clone(cuda), sizes, options)?,
                None => Slots::new(Device::Cpu, sizes, options)?,
            };
            self.slots = Some(Box::new(made));
        }
        Ok(self.at_once())
    }

    /// The slots created by [`Generator::decode_in_slots`] or [`Generator::decode_together`]; `None` if the device does
    /// not support the latter. Guidance is available only if [`Generator::is_guided`].
    pub fn slots(&mut self) -> Option<&mut Slots> {
        self.slots.as_deref_mut()
    }

    /// Number of texts spoken at the same time.
    pub fn at_once(&self) -> usize {
        self.slots.as_ref().map_or(1, |slots| slots.len())
    }

    /// Speaks several texts. Each result equals that of [`Generator::speak`].
    pub fn speak_many(&mut self, requests: &[SpeechRequest<'_>]) -> Result<Vec<Spoken>, GenerateError> {
        for request in requests {
            self.check(request.voice, request.text.text)?;
        }
        let is_guided = self.is_guided();
        match &mut self.slots {
            Some(slots) if slots.len() > 1 => {
                let mut requests = requests.to_vec();
                if !is_guided {
                    requests.iter_mut().for_each(|request| request.text.textless = None);
                }
                slots.speak_all(&requests)
            }
            _ => requests
                .iter()
                .map(|request| self.speak(request.voice, request.text, &request.options))
                .collect(),
        }
    }
}

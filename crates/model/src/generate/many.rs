//! More texts than there are slots, said to their ends: whoever is done makes room for the next.

use super::slots::{SlotId, SlotOptions, Slots};
use super::{GenerateError, Generator, Guided, Spoken};
use crate::sampling::{Ended, SamplingOptions};
use myxtts_tensor::{Device, Error};
use std::sync::Arc;

/// Codes that are drawn in all slots before it is asked who is done.
const STEPS: usize = 16;

/// Keys and values of all slots of a processor at most.
pub const CACHE_BYTES: usize = 512 << 20;

/// Something to be said.
#[derive(Clone, Debug)]
pub struct SpeechRequest<'a> {
    /// The voice `[latents, width]`.
    pub voice: &'a [f32],
    /// The text.
    pub text: Guided<'a>,
    /// How codes are chosen.
    pub options: SamplingOptions,
}

impl Slots {
    /// Says texts to their ends, as many at the same time as there are slots; each is what [`Slots::speak`] says.
    pub fn speak_all(&mut self, requests: &[SpeechRequest<'_>]) -> Result<Vec<Spoken>, GenerateError> {
        let mut speaking: Vec<(usize, SlotId)> = Vec::new();
        let said = self.all(requests, &mut speaking);
        // Where one failed, the others are not said to their ends either.
        for (_, slot) in speaking {
            let left = self.leave(slot);
            if said.is_ok() {
                left?;
            }
        }
        said
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
        let empty = || Spoken { codes: Vec::new(), latents: Vec::new(), ended: Ended::Stop };
        let mut said: Vec<Spoken> = requests.iter().map(|_| empty()).collect();
        let (mut begun, mut waiting) = (0, requests);
        loop {
            let next = waiting.len().min(self.free());
            let slots = self.join_many(&waiting[..next])?;
            speaking.extend(slots.into_iter().enumerate().map(|(i, slot)| (begun + i, slot)));
            (begun, waiting) = (begun + next, &waiting[next..]);
            if speaking.is_empty() {
                return Ok(said);
            }
            self.advance(STEPS)?;
            let mut at = 0;
            while let Some(&(number, slot)) = speaking.get(at) {
                let taken = self.take(slot)?;
                let Spoken { codes, latents, ended } = &mut said[number];
                codes.extend(taken.codes);
                latents.extend(taken.latents);
                let Some(end) = taken.ended else {
                    at += 1;
                    continue;
                };
                *ended = end;
                codes.truncate(taken.total);
                latents.truncate((taken.total + usize::from(end == Ended::Stop)) * width);
                speaking.swap_remove(at);
                self.leave(slot)?;
            }
        }
    }
}

impl Generator {
    /// As [`Generator::decode_in_bf16`], with so many speeches at the same time. Says how many: 1 where the device cannot.
    pub fn decode_together(&mut self, slots: usize) -> Result<usize, Error> {
        let Some(cuda) = self.engine.cuda() else { return Ok(1) };
        let options = SlotOptions { slots: slots.max(1), guided: self.is_guided(), bf16: true };
        if !Slots::can_advance_together(cuda, &self.gpt.sizes, options) {
            return Ok(1);
        }
        self.slots = Some(Box::new(Slots::on_cuda(Arc::clone(cuda), &self.gpt.sizes, options)?));
        Ok(options.slots)
    }

    /// Whether it runs on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.engine.cuda().is_some()
    }

    /// As [`Generator::decode_together`], on every device: where the device cannot, slots advance one after another in f32, with
    /// weights of their own. Says how many there are: no more than whose keys and values have [`CACHE_BYTES`] on a processor.
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

    /// The slots that were asked for by [`Generator::decode_in_slots`] or [`Generator::decode_together`]; none where the device
    /// cannot do the latter. What is said there is guided only where [`Generator::is_guided`] says so.
    pub fn slots(&mut self) -> Option<&mut Slots> {
        self.slots.as_deref_mut()
    }

    /// Speeches that are said at the same time.
    pub fn at_once(&self) -> usize {
        self.slots.as_ref().map_or(1, |slots| slots.len())
    }

    /// Says several texts; each is what [`Generator::speak`] says.
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

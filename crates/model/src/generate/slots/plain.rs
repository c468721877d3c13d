//! Slots that advance one after another on the engine, in f32, on any device.

use super::super::{SequenceState, guide};
use super::{GenerateError, GptSizes, Prompt, SlotOptions, Speech};
use crate::declare::{Declare, Released};
use crate::gpt::{Caches, Gpt};
use crate::sampling::Sampler;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::{Device, Engine, EngineOptions, Error, InitialWeights, Layout, Precision};
use std::sync::Arc;

/// A sequence with its own keys and values.
struct Sequence {
    caches: Caches,
    state: Option<SequenceState>,
    rows: usize,
}

struct Slot {
    spoken: Sequence,
    textless: Option<Sequence>,
    /// Sampler of the current text.
    sampler: Option<Sampler>,
    guided: bool,
    before: i32,
    code_position: usize,
}

pub(super) struct Plain {
    engine: Engine,
    gpt: Gpt,
    released: Vec<Released>,
    slots: Vec<Slot>,
}

struct Declared {
    gpt: Gpt,
    layout: Arc<Layout>,
    released: Vec<Released>,
    slots: Vec<Slot>,
}

impl Declared {
    fn new(sizes: &GptSizes, options: SlotOptions) -> Declared {
        let mut declare = Declare::new(0.0, &|_| false);
        let gpt = Gpt::declare(&mut declare, sizes.clone());
        let mut sequence = |name: &str, i: usize| {
            let caches = gpt.declare_caches(&mut declare, &format!("{name}.{i}"));
            Sequence { caches, state: None, rows: 0 }
        };
        let slots: Vec<Slot> = (0..options.slots)
            .map(|i| Slot {
                spoken: sequence("cache", i),
                textless: options.guided.then(|| sequence("textless_cache", i)),
                sampler: None,
                guided: false,
                before: 0,
                code_position: 0,
            })
            .collect();
        let (layout, mut released) = declare.finish();
        let caches: Vec<&Caches> = slots
            .iter()
            .flat_map(|slot| std::iter::once(&slot.spoken).chain(&slot.textless))
            .map(|sequence| &sequence.caches)
            .collect();
        released.retain(|parameter| !caches.iter().any(|caches| caches.holds(parameter.id)));
        Declared { gpt, layout, released, slots }
    }
}

/// Every weight is written by the loader and the caches start empty, so nothing is initialised randomly.
fn all_loaded() -> EngineOptions {
    EngineOptions { initial: InitialWeights::Zeros, ..EngineOptions::default() }
}

impl Plain {
    pub fn new(device: Device, sizes: &GptSizes, options: SlotOptions) -> Result<Plain, Error> {
        let Declared { gpt, layout, released, slots } = Declared::new(sizes, options);
        let engine = Engine::new(device, layout, Precision::F32, all_loaded())?;
        Ok(Plain { engine, gpt, released, slots })
    }

    pub fn on_cuda(cuda: Arc<Cuda>, sizes: &GptSizes, options: SlotOptions) -> Result<Plain, Error> {
        let Declared { gpt, layout, released, slots } = Declared::new(sizes, options);
        let engine = Engine::on_cuda(cuda, layout, Precision::F32, all_loaded())?;
        Ok(Plain { engine, gpt, released, slots })
    }

    pub fn write(&mut self, parameter: &Released, data: &[f32]) -> Result<(), Error> {
        let found = self.released.iter().find(|own| own.name == parameter.name);
        found.map_or(Ok(()), |own| self.engine.write_parameter(own.id, data))
    }

    pub fn join(&mut self, index: usize, prompt: Prompt<'_>, speech: &Speech) -> Result<(), GenerateError> {
        let (engine, gpt, slot) = (&mut self.engine, &self.gpt, &mut self.slots[index]);
        slot.spoken.begin(engine, gpt, prompt.voice, prompt.text)?;
        slot.guided = false;
        if let (Some(sequence), Some(textless)) = (&mut slot.textless, prompt.textless) {
            sequence.begin(engine, gpt, prompt.voice, textless)?;
            slot.guided = true;
        }
        let sizes = &gpt.sizes;
        slot.sampler = Some(Sampler::new(&speech.options, sizes.audio_vocabulary, sizes.start_audio));
        (slot.before, slot.code_position) = (sizes.start_audio, 0);
        Ok(())
    }

    pub fn advance(
        &mut self,
        speeches: &mut [Option<(u64, Speech)>],
        sizes: &GptSizes,
        steps: usize,
    ) -> Result<(), GenerateError> {
        for (slot, speech) in self.slots.iter_mut().zip(speeches) {
            let Some((_, speech)) = speech else { continue };
            for _ in 0..steps {
                if !speech.is_running() {
                    break;
                }
                let (mut logits, latent) =
                    slot.spoken.step(&mut self.engine, slot.before, slot.code_position)?;
                if let (Some(sequence), true) = (&mut slot.textless, slot.guided) {
                    let (others, _) = sequence.step(&mut self.engine, slot.before, slot.code_position)?;
                    guide(&mut logits, &others, speech.options.guidance, sizes.stop_audio);
                }
                match slot.sampler.as_mut().and_then(|sampler| sampler.next(&logits)) {
                    Some(code) => {
                        speech.push(code, &latent);
                        (slot.before, slot.code_position) = (code, slot.code_position + 1);
                    }
                    None => speech.fail(),
                }
            }
        }
        Ok(())
    }
}

impl Sequence {
    fn begin(
        &mut self,
        engine: &mut Engine,
        gpt: &Gpt,
        voice: &[f32],
        text: &[i32],
    ) -> Result<(), GenerateError> {
        let state = match self.state.take() {
            Some(state) => state,
            None => SequenceState::new(engine, gpt, self.caches.clone())?,
        };
        self.rows = self.state.insert(state).begin(engine, gpt, voice, text)?;
        Ok(())
    }

    /// Computes logits and state over a code.
    fn step(
        &mut self,
        engine: &mut Engine,
        before: i32,
        code_position: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), GenerateError> {
        let Some(state) = &mut self.state else { return Err(GenerateError::ReleasedSlot) };
        let made = state.decode_step.run(engine, before, code_position, self.rows)?;
        self.rows += 1;
        Ok(made)
    }
}

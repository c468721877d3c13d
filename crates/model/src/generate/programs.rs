//! The programs of generation: conditioning, prefill, step.

use super::GenerateError;
use crate::gpt::{Caches, Gpt, StepInputs, StepOutputs};
use myxtts_tensor::{Control, DType, Engine, Error, Layout, Program, Tape, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Texts are padded to a multiple of this many positions, so that few prefill programs are built.
pub(super) const TEXT_PADDING: usize = 32;

/// The conditioning program for one number of mel frames.
pub(super) struct Conditioning {
    pub frames: usize,
    pub program: Program,
    pub mels: Value,
    pub vectors: Value,
}

struct Prefill {
    program: Program,
    voice: Value,
    text: Value,
    position: Value,
}

pub(super) struct DecodeStep {
    program: Program,
    inputs: StepInputs,
    next: StepOutputs,
}

/// Caches and programs of one sequence.
pub(super) struct SequenceState {
    pub caches: Caches,
    prefills: BTreeMap<usize, Prefill>,
    pub decode_step: DecodeStep,
}

impl SequenceState {
    pub fn new(engine: &mut Engine, gpt: &Gpt, caches: Caches) -> Result<SequenceState, Error> {
        let decode_step = DecodeStep::new(engine, gpt, &caches)?;
        Ok(SequenceState { caches, prefills: BTreeMap::new(), decode_step })
    }

    /// Writes voice and text to the caches and returns the number of rows they take.
    pub fn begin(
        &mut self,
        engine: &mut Engine,
        gpt: &Gpt,
        voice: &[f32],
        text: &[i32],
    ) -> Result<usize, GenerateError> {
        let sizes = &gpt.sizes;
        let positions = text.len() + 2;
        let padded = positions.next_multiple_of(TEXT_PADDING).min(sizes.text_positions());
        let mut ids = vec![sizes.stop_text; padded];
        ids[0] = sizes.start_text;
        ids[1..=text.len()].copy_from_slice(text);
        let prefill = match self.prefills.remove(&padded) {
            Some(prefill) => prefill,
            None => Prefill::new(engine, gpt, &self.caches, padded)?,
        };
        let prefill = self.prefills.entry(padded).or_insert(prefill);
        engine.write(&prefill.program, prefill.voice, voice)?;
        engine.write_i32(&prefill.program, prefill.text, &ids)?;
        engine.write_i32(&prefill.program, prefill.position, &[0])?;
        engine.run(&mut prefill.program, &Control::default())?;
        Ok(sizes.perceiver.latents + positions)
    }
}

/// An empty tape for an engine.
pub(super) fn tape(engine: &Engine) -> Tape {
    let layout: Arc<Layout> = Arc::clone(engine.layout());
    Tape::new(layout, engine.precision())
}

impl Conditioning {
    pub fn new(engine: &mut Engine, gpt: &Gpt, frames: usize) -> Result<Conditioning, Error> {
        let mut tape = tape(engine);
        let mels = tape.input([1, frames, gpt.sizes.conditioning.mels], DType::F32);
        let vectors = gpt.condition(&mut tape, mels, None);
        tape.keep(vectors);
        Ok(Conditioning { frames, program: engine.load(tape)?, mels, vectors })
    }
}

impl Prefill {
    fn new(engine: &mut Engine, gpt: &Gpt, caches: &Caches, positions: usize) -> Result<Prefill, Error> {
        let mut tape = tape(engine);
        let dtype = tape.dtype();
        let voice = tape.input([1, gpt.sizes.perceiver.latents, gpt.sizes.width], dtype);
        let text = tape.input([1, positions], DType::I32);
        let position = tape.input([1], DType::I32);
        gpt.begin(&mut tape, caches, voice, text, position);
        Ok(Prefill { program: engine.load(tape)?, voice, text, position })
    }
}

impl DecodeStep {
    fn new(engine: &mut Engine, gpt: &Gpt, caches: &Caches) -> Result<DecodeStep, Error> {
        let mut tape = tape(engine);
        let inputs = StepInputs {
            code: tape.input([1, 1], DType::I32),
            code_position: tape.input([1, 1], DType::I32),
            position: tape.input([1], DType::I32),
        };
        let next = gpt.step(&mut tape, caches, inputs);
        [next.latent, next.logits].into_iter().for_each(|value| tape.keep(value));
        Ok(DecodeStep { program: engine.load(tape)?, inputs, next })
    }

    /// Computes logits and state over the code `before`, at `code_position` among the codes and `row` of the
    /// sequence.
    pub fn run(
        &mut self,
        engine: &mut Engine,
        before: i32,
        code_position: usize,
        row: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        // Both are bounded by table sizes, far below 2^31.
        let told = [(self.inputs.code, before), (self.inputs.code_position, code_position as i32)];
        for (value, number) in told.into_iter().chain([(self.inputs.position, row as i32)]) {
            engine.write_i32(&self.program, value, &[number])?;
        }
        engine.run(&mut self.program, &Control::default())?;
        Ok((engine.read(&self.program, self.next.logits)?, engine.read(&self.program, self.next.latent)?))
    }
}

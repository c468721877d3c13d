//! The GPT one position at a time, with cached keys and values.
//!
//! A sequence is rows 0 to `position` of the caches. A prefix may be padded: rows behind its end are masked for every
//! row before, and overwritten by later rows.

use super::{Gpt, embedded};
use crate::declare::Declare;
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// Keys and values of every block, as state parameters `[1, rows, 2 * width]`.
#[derive(Clone, Debug)]
pub struct Caches {
    blocks: Vec<ParameterId>,
}

/// Inputs of a decoding step.
#[derive(Clone, Copy, Debug)]
pub struct StepInputs {
    /// i32 `[1, 1]`: START or the previous code.
    pub code: Value,
    /// i32 `[1, 1]`: its position among the codes; START is 0.
    pub code_position: Value,
    /// i32 `[1]`: number of rows before it in the caches.
    pub position: Value,
}

/// Outputs of a decoding step.
#[derive(Clone, Copy, Debug)]
pub struct StepOutputs {
    /// State `[1, 1, width]` after both norms.
    pub latent: Value,
    /// `[1, 1, audio_vocabulary]`.
    pub logits: Value,
}

impl Caches {
    /// Returns whether a parameter is a cache, which no file stores.
    pub fn holds(&self, id: ParameterId) -> bool {
        self.blocks.contains(&id)
    }
}

impl Gpt {
    /// Maximum rows of a sequence.
    pub(crate) fn max_rows(&self) -> usize {
        self.sizes.perceiver.latents + self.sizes.text_positions() + self.sizes.audio_positions()
    }

    /// Declares caches for the longest sequence under `name`.
    pub(crate) fn declare_caches(&self, declare: &mut Declare<'_>, name: &str) -> Caches {
        let shape = [1, self.max_rows(), 2 * self.sizes.width];
        let cache = |i: usize| declare.state(&format!("{name}.{i}"), &shape, Init::Zeros);
        Caches { blocks: (0..self.blocks.len()).map(cache).collect() }
    }

    /// Starts a sequence: writes the voice `[1, latents, width]` and START text STOP (i32 `[1, text]`, padding allowed)
    /// to the caches from `position` (i32 `[1]`) on, which must be 0.
    pub fn begin(&self, tape: &mut Tape, caches: &Caches, voice: Value, text: Value, position: Value) {
        let text = embedded(tape, self.text_table, self.text_positions, text);
        let x = tape.concatenate_time(&[voice, text]);
        self.cached(tape, caches, x, position);
    }

    /// Computes the state over one code and the logits of the next.
    pub fn step(&self, tape: &mut Tape, caches: &Caches, inputs: StepInputs) -> StepOutputs {
        let (table, positions) = (tape.parameter(self.audio_table), tape.parameter(self.audio_positions));
        let code = tape.embedding(table, inputs.code);
        let code_position = tape.embedding(positions, inputs.code_position);
        let x = tape.add(code, code_position);
        let x = self.cached(tape, caches, x, inputs.position);
        let x = self.last_norm.layer_norm(tape, x);
        let latent = self.final_norm.layer_norm(tape, x);
        StepOutputs { latent, logits: self.mel_head.linear(tape, latent) }
    }

    fn cached(&self, tape: &mut Tape, caches: &Caches, mut x: Value, position: Value) -> Value {
        for (i, (block, &cache)) in self.blocks.iter().zip(&caches.blocks).enumerate() {
            x = tape.scope(&format!("block.{i}"), |tape| {
                self.block(tape, block, x, 0.0, |tape, qkv| {
                    let cache = tape.master(cache);
                    tape.cached_attention(qkv, cache, position, self.sizes.heads)
                })
            });
        }
        x
    }
}

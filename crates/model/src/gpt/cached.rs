//! The GPT row by row: keys and values of what was said stay where they are, and a step computes one place alone.
//!
//! What has been said is nothing but rows of the caches from 0 up to a position. So a prefix may be padded: what lies
//! behind its end is hidden from every row before it, and written over by the rows that come.

use super::{Gpt, embedded};
use crate::declare::Declare;
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// Keys and values of every block, as state parameters `[1, rows, 2 * width]`.
#[derive(Clone, Debug)]
pub struct Caches {
    blocks: Vec<ParameterId>,
}

/// What one step is told.
#[derive(Clone, Copy, Debug)]
pub struct StepInputs {
    /// i32 `[1, 1]`: START or the code before.
    pub code: Value,
    /// i32 `[1, 1]`: how many codes were before it, START counted.
    pub place: Value,
    /// i32 `[1]`: how many rows were before it.
    pub position: Value,
}

/// What one step makes.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// The state `[1, 1, width]` after both norms.
    pub latent: Value,
    /// `[1, 1, audio_vocabulary]`.
    pub logits: Value,
}

impl Caches {
    /// Whether a parameter is a cache, which no file has.
    pub fn holds(&self, id: ParameterId) -> bool {
        self.blocks.contains(&id)
    }
}

impl Gpt {
    /// The most rows a sequence can have.
    pub fn most_rows(&self) -> usize {
        self.sizes.perceiver.latents + self.sizes.text_positions() + self.sizes.audio_positions()
    }

    /// Declares caches for the longest sequence, under a name of their own.
    pub fn declare_caches(&self, declare: &mut Declare<'_>, name: &str) -> Caches {
        let shape = [1, self.most_rows(), 2 * self.sizes.width];
        let cache = |i: usize| declare.state(&format!("{name}.{i}"), &shape, Init::Zeros);
        Caches { blocks: (0..self.blocks.len()).map(cache).collect() }
    }

    /// Begins a sequence: puts the voice `[1, latents, width]` and START text STOP (i32 `[1, text]`, padded as one likes)
    /// into the caches from `position` (i32 `[1]`) on, which is to be 0.
    pub fn begin(&self, tape: &mut Tape, caches: &Caches, voice: Value, text: Value, position: Value) {
        let text = embedded(tape, self.text_table, self.text_positions, text);
        let x = tape.concatenate_time(&[voice, text]);
        self.cached(tape, caches, x, position);
    }

    /// One step: the state over one code and what it predicts.
    pub fn step(&self, tape: &mut Tape, caches: &Caches, inputs: StepInputs) -> Next {
        let (table, positions) = (tape.parameter(self.audio_table), tape.parameter(self.audio_positions));
        let code = tape.embedding(table, inputs.code);
        let place = tape.embedding(positions, inputs.place);
        let x = tape.add(code, place);
        let x = self.cached(tape, caches, x, inputs.position);
        let x = self.last_norm.layer_norm(tape, x);
        let latent = self.final_norm.layer_norm(tape, x);
        Next { latent, logits: self.mel_head.linear(tape, latent) }
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

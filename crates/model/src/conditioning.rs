//! How a voice sounds, frame by frame: the conditioning encoder. Each block normalises its input, lets every frame see
//! every other, and adds what it saw to the *normalised* input, not to what came in: the original's way, which the
//! released weights have grown around.
//!
//! There is no position in it and no tap wider than a frame, so it is a function of the *set* of frames: every frame
//! becomes the same in a clip and in that clip said twice. `sequence` makes use of that for short clips.

use crate::affine::torch_conv;
use crate::declare::{Affine, Declare};
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::{Init, Tape, Value};
use serde::{Deserialize, Serialize};

/// The encoder's sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditioningSizes {
    /// Channels of a mel frame.
    pub mels: usize,
    /// Channels inside, which are the GPT's.
    pub width: usize,
    /// Blocks.
    pub blocks: usize,
    /// Heads of each.
    pub heads: usize,
    /// Groups of channels that are normalised together.
    pub groups: usize,
}

impl ConditioningSizes {
    /// As the original derives them from the GPT's width and heads.
    pub fn of(width: usize, heads: usize) -> ConditioningSizes {
        let mut groups = match width {
            0..=16 => 8,
            17..=64 => 16,
            _ => 32,
        };
        while !width.is_multiple_of(groups) {
            groups /= 2;
        }
        ConditioningSizes { mels: 80, width, blocks: 6, heads, groups }
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    norm: Affine,
    qkv: Affine,
    out: Affine,
}

/// The encoder's parameters.
#[derive(Clone, Debug)]
pub struct ConditioningEncoder {
    sizes: ConditioningSizes,
    first: Affine,
    blocks: Vec<Block>,
}

impl ConditioningEncoder {
    /// Declares them under `name`.
    pub fn declare(declare: &mut Declare<'_>, name: &str, sizes: ConditioningSizes) -> ConditioningEncoder {
        let width = sizes.width;
        let first = torch_conv(declare, &format!("{name}.init"), width, sizes.mels);
        let blocks = (0..sizes.blocks)
            .map(|i| Block {
                norm: declare.norm(&format!("{name}.attn.{i}.norm"), width),
                qkv: torch_conv(declare, &format!("{name}.attn.{i}.qkv"), 3 * width, width),
                out: declare.linear_of_conv(&format!("{name}.attn.{i}.proj_out"), width, width, Init::Zeros),
            })
            .collect();
        ConditioningEncoder { sizes, first, blocks }
    }

    /// Mel frames `[batch, frames, mels]`, in f32 or the type of activations, as `[batch, frames, width]`. Frames from
    /// `lengths` (i32 `[batch]`) on are not looked at, though the norms' statistics still count them.
    pub fn forward(&self, tape: &mut Tape, mels: Value, lengths: Option<Value>) -> Value {
        let mels = tape.cast(mels, tape.dtype());
        let mut x = self.first.linear(tape, mels);
        for (i, block) in self.blocks.iter().enumerate() {
            x = tape.scope(&format!("conditioning.{i}"), |tape| {
                let x = block.norm.group_norm(tape, x, self.sizes.groups);
                let qkv = block.qkv.linear(tape, x);
                let mask = Mask { lengths, ..Mask::default() };
                let y = tape.self_attention(qkv, self.sizes.heads, Order::Heads, mask);
                block.out.linear_add(tape, y, Some(x))
            });
        }
        x
    }
}

//! The conditioning encoder: how a voice sounds, frame by frame. Each block normalises its input, applies self-attention,
//! and adds the result to the *normalised* input instead of the original one. The original does this, and the released
//! weights depend on it.
//!
//! The encoder has no positions and no convolution wider than a frame, so it is a function of the *set* of frames: a frame
//! gets the same output in a clip and in that clip repeated. `sequence` uses this for short clips.

use crate::affine::torch_conv;
use crate::declare::{Affine, Declare};
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::{Init, Tape, Value};
use serde::{Deserialize, Serialize};

/// Sizes of the conditioning encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditioningSizes {
    /// Channels of a mel frame.
    pub mels: usize,
    /// Hidden channels; equal to the GPT's width.
    pub width: usize,
    /// Number of attention blocks.
    pub blocks: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// Channel groups of the group norms.
    pub groups: usize,
}

impl ConditioningSizes {
    /// Derives the sizes from the GPT's width and heads, as the original does.
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

/// The conditioning encoder's parameters.
#[derive(Clone, Debug)]
pub struct ConditioningEncoder {
    sizes: ConditioningSizes,
    first: Affine,
    blocks: Vec<Block>,
}

impl ConditioningEncoder {
    /// Declares the parameters under `name`.
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

    /// Encodes mel frames `[batch, frames, mels]`, f32 or the activation type, as `[batch, frames, width]`. Frames from
    /// `lengths` (i32 `[batch]`) on are masked in attention, but the norms' statistics still include them.
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

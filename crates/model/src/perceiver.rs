//! The perceiver: maps any number of conditioning frames to a fixed number of latent vectors, which attend to the frames and
//! to each other.

use crate::affine::{torch_linear, torch_matrix};
use crate::declare::{Affine, Declare};
use myxtts_tensor::ops::attention::Mask;
use myxtts_tensor::{DType, Init, ParameterId, Tape, Value};
use serde::{Deserialize, Serialize};

/// Sizes of the perceiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerceiverSizes {
    /// Number of latent vectors.
    pub latents: usize,
    /// Channels of the latents and of the frames.
    pub width: usize,
    /// Number of layers.
    pub depth: usize,
    /// Attention heads per layer.
    pub heads: usize,
    /// Channels per head.
    pub head_size: usize,
    /// Hidden channels of the feed-forward part.
    pub inner: usize,
}

impl PerceiverSizes {
    /// Derives the sizes from the GPT's width, as the original does.
    pub fn of(width: usize) -> PerceiverSizes {
        PerceiverSizes { latents: 32, width, depth: 2, heads: 8, head_size: 64, inner: width * 8 / 3 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    query: ParameterId,
    key_value: ParameterId,
    out: ParameterId,
    up: Affine,
    down: Affine,
}

/// The perceiver's parameters.
#[derive(Clone, Debug)]
pub struct Perceiver {
    sizes: PerceiverSizes,
    latents: ParameterId,
    layers: Vec<Layer>,
    gamma: ParameterId,
}

impl Perceiver {
    /// Declares the parameters under `name`. Latents and the last norm's scale decay, as in the original, which exempts only
    /// modules known as norms and embeddings.
    pub fn declare(declare: &mut Declare<'_>, name: &str, sizes: PerceiverSizes) -> Perceiver {
        let (width, inside) = (sizes.width, sizes.heads * sizes.head_size);
        let latents =
            declare.same(&format!("{name}.latents"), &[sizes.latents, width], Init::Normal(0.02), true);
        let layers = (0..sizes.depth)
            .map(|i| {
                let (attention, forward) = (format!("{name}.layers.{i}.0"), format!("{name}.layers.{i}.1"));
                Layer {
                    query: torch_matrix(declare, &format!("{attention}.to_q"), inside, width),
                    key_value: torch_matrix(declare, &format!("{attention}.to_kv"), 2 * inside, width),
                    out: torch_matrix(declare, &format!("{attention}.to_out"), width, inside),
                    up: torch_linear(declare, &format!("{forward}.0"), 2 * sizes.inner, width),
                    down: torch_linear(declare, &format!("{forward}.2"), width, sizes.inner),
                }
            })
            .collect();
        let gamma = declare.same(&format!("{name}.norm.gamma"), &[width], Init::Constant(1.0), true);
        Perceiver { sizes, latents, layers, gamma }
    }

    /// Maps frames `[batch, frames, width]` to `[batch, latents, width]`. `lengths` (i32 `[batch]`) is the number of latents
    /// plus the number of frames that may be attended to.
    pub fn forward(&self, tape: &mut Tape, frames: Value, lengths: Option<Value>) -> Value {
        let batch = tape.shape(frames).dim(0);
        let (zeros, table) =
            (tape.zeros([batch, self.sizes.latents, self.sizes.width]), tape.parameter(self.latents));
        let mut x = tape.add_positions(zeros, table);
        for (i, layer) in self.layers.iter().enumerate() {
            x = tape.scope(&format!("perceiver.{i}"), |tape| {
                let seen = tape.concatenate_time(&[x, frames]);
                let [query, key_value, out] =
                    [layer.query, layer.key_value, layer.out].map(|w| tape.parameter(w));
                let (q, kv) = (tape.linear(x, query, None), tape.linear(seen, key_value, None));
                let mask = Mask { lengths, ..Mask::default() };
                // There are no norms before the last: latents grow, attention saturates, and bf16 would round gradients that
                // cancel to noise a million times their size. In f32 this attention is still a small part of a step.
                let dtype = tape.dtype();
                let [q, kv] = [q, kv].map(|x| tape.cast(x, DType::F32));
                let y = tape.cross_attention(q, kv, self.sizes.heads, mask);
                let y = tape.cast(y, dtype);
                let x = tape.linear_add(y, out, None, Some(x));
                let y = layer.up.linear(tape, x);
                let y = tape.geglu(y);
                layer.down.linear_add(tape, y, Some(x))
            });
        }
        let gamma = tape.master(self.gamma);
        tape.rms_norm(x, gamma)
    }
}

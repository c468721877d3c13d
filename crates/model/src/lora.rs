//! Low-rank adapters on the GPT's linear layers: `y = x Wᵀ + b + scale · (x Aᵀ) Bᵀ`. W stays frozen; gradients and moments
//! exist for A and B only.
//!
//! A starts uniform and B zero, so the first step computes what the model computed before. After training they are folded
//! into W (`Adapter::merged`), since no release has tensors for them.

use crate::affine::uniform;
use crate::declare::{Affine, Declare};
use myxtts_tensor::{Init, ParameterId, Tape, Value};
use serde::{Deserialize, Serialize};

/// Which adapters exist, and their rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraSizes {
    /// Channels between A and B.
    pub rank: usize,
    /// Scale times rank, so that a larger rank works with the same learning rate.
    pub alpha: f32,
    /// Adapters on both linear layers of each attention.
    pub attention: bool,
    /// Adapters on both linear layers of each feed-forward part, which are then not fused.
    pub feed_forward: bool,
}

impl Default for LoraSizes {
    fn default() -> LoraSizes {
        LoraSizes { rank: 16, alpha: 32.0, attention: true, feed_forward: true }
    }
}

/// The adapter of one linear layer.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// The adapted weight `[out, in]`.
    pub weight: ParameterId,
    /// A `[rank, in]`.
    pub a: ParameterId,
    /// B `[out, rank]`.
    pub b: ParameterId,
    /// `alpha / rank`.
    pub scale: f32,
}

/// Suffixes of adapter names.
const ENDS: [&str; 2] = [".lora_a", ".lora_b"];

/// Returns whether a parameter belongs to an adapter, and so is not part of a release.
pub fn is_adapter(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end))
}

impl Adapter {
    /// Declares the adapter of the linear layer `name`.
    pub fn declare(
        declare: &mut Declare<'_>,
        name: &str,
        weight: ParameterId,
        out: usize,
        from: usize,
        sizes: &LoraSizes,
    ) -> Adapter {
        let [a, b] = ENDS.map(|end| format!("{name}{end}"));
        Adapter {
            weight,
            a: declare.same(&a, &[sizes.rank, from], uniform(from), true),
            b: declare.same(&b, &[out, sizes.rank], Init::Zeros, true),
            scale: sizes.alpha / sizes.rank as f32,
        }
    }

    /// `to + scale · (x Aᵀ) Bᵀ`.
    pub fn add(&self, tape: &mut Tape, x: Value, to: Value) -> Value {
        let (a, b) = (tape.parameter(self.a), tape.parameter(self.b));
        let inside = tape.linear(x, a, None);
        // Scaled here, where the tensor is smallest.
        let inside = tape.scale(inside, self.scale);
        tape.linear_add(inside, b, None, Some(to))
    }

    /// Returns the weight with the adapter folded in.
    pub fn merged(&self, weight: &[f32], a: &[f32], b: &[f32], rank: usize) -> Vec<f32> {
        let from = a.len() / rank;
        assert_eq!(weight.len(), b.len() / rank * from, "an adapter has the sizes of its weight");
        let mut merged = weight.to_vec();
        for (row, b) in merged.chunks_exact_mut(from).zip(b.chunks_exact(rank)) {
            for (&b, a) in b.iter().zip(a.chunks_exact(from)) {
                row.iter_mut().zip(a).for_each(|(w, a)| *w += self.scale * b * a);
            }
        }
        merged
    }
}

/// A linear layer with an optional adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoraLinear {
    pub affine: Affine,
    pub adapter: Option<Adapter>,
}

impl LoraLinear {
    pub fn new(affine: Affine) -> LoraLinear {
        LoraLinear { affine, adapter: None }
    }

    /// Computes `x Wᵀ + b + residual` plus the adapter's contribution.
    pub fn forward(&self, tape: &mut Tape, x: Value, residual: Option<Value>) -> Value {
        let y = self.affine.linear_add(tape, x, residual);
        match &self.adapter {
            Some(adapter) => adapter.add(tape, x, y),
            None => y,
        }
    }
}

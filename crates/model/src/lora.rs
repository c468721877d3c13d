//! Low-rank adapters on the GPT's products: the weight stays as it is, and what is trained is a thin product beside it,
//! `y = x Wᵀ + b + scale · (x Aᵀ) Bᵀ`. Gradients and moments exist for A and B alone.
//!
//! A begins uniform and B zero, so that the first step computes what the model did before. Once trained they are folded
//! into W (`Adapter::merged`); no release has a place for them.

use crate::affine::uniform;
use crate::declare::{Affine, Declare};
use myxtts_tensor::{Init, ParameterId, Tape, Value};
use serde::{Deserialize, Serialize};

/// Which adapters there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraSizes {
    /// Channels between A and B.
    pub rank: usize,
    /// The scale times the rank: a larger rank needs no other learning rate.
    pub alpha: f32,
    /// Beside the two products of each attention.
    pub attention: bool,
    /// Beside the two products of each feed-forward layer, which are then computed one by one.
    pub feed_forward: bool,
}

impl Default for LoraSizes {
    fn default() -> LoraSizes {
        LoraSizes { rank: 16, alpha: 32.0, attention: true, feed_forward: true }
    }
}

/// The adapter of one product.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// The weight it stands beside, `[out, in]`.
    pub weight: ParameterId,
    /// A `[rank, in]`.
    pub a: ParameterId,
    /// B `[out, rank]`.
    pub b: ParameterId,
    /// `alpha / rank`.
    pub scale: f32,
}

/// How the names of adapters end.
const ENDS: [&str; 2] = [".lora_a", ".lora_b"];

/// Whether a parameter of this name belongs to an adapter and so has no place in a release.
pub fn is_adapter(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end))
}

impl Adapter {
    /// Declares the adapter of the product `name`.
    pub fn declare(
        declare: &mut Declare<'_>,
        name: &str,
        weight: ParameterId,
        (out, from): (usize, usize),
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
        // Scaled where it is thinnest.
        let inside = tape.scale(inside, self.scale);
        tape.linear_add(inside, b, None, Some(to))
    }

    /// The weight with the adapter folded in, from the numbers of all three.
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

/// A product that may have an adapter beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub affine: Affine,
    pub adapter: Option<Adapter>,
}

impl Product {
    pub fn new(affine: Affine) -> Product {
        Product { affine, adapter: None }
    }

    /// `x Wᵀ + b + residual`, and the adapter's part.
    pub fn forward(&self, tape: &mut Tape, x: Value, residual: Option<Value>) -> Value {
        let y = self.affine.linear_add(tape, x, residual);
        match &self.adapter {
            Some(adapter) => adapter.add(tape, x, y),
            None => y,
        }
    }
}

//! The GPT of the benchmark's peers: embeddings, pre-norm blocks with GELU, a head with a bias, cross-entropy.

use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::{
    Backward, DType, GroupId, Init, Layout, LayoutBuilder, ParameterId, Precision, Recompute, Role, Tape,
    Value,
};
use std::sync::Arc;

/// Sizes of the network.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub batch: usize,
    pub time: usize,
}

#[derive(Clone, Copy)]
struct Affine {
    weight: ParameterId,
    bias: ParameterId,
}

struct Block {
    norm1: Affine,
    qkv: Affine,
    out: Affine,
    norm2: Affine,
    up: Affine,
    down: Affine,
}

/// Parameters of the network.
pub struct Gpt {
    pub sizes: Sizes,
    pub layout: Arc<Layout>,
    tokens: ParameterId,
    positions: ParameterId,
    blocks: Vec<Block>,
    norm: Affine,
    head: Affine,
}

/// Inputs and outputs of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub ids: Value,
    pub targets: Value,
}

/// Applied to every large value of the network while it is built: the identity, or a fault injected by a test.
pub type ValueHook<'a> = &'a mut dyn FnMut(&mut Tape, Value) -> Value;

/// Options for building a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    pub recompute: Recompute,
    /// Recompute blocks in the backward pass.
    pub checkpoint: bool,
    /// Sum gradients over replicas, in buckets of this many bytes.
    pub reduce: Option<usize>,
    /// Add to the gradients of the previous step.
    pub accumulate: bool,
    /// End without an update.
    pub no_update: bool,
    pub adam: AdamW,
}

impl Gpt {
    pub fn new(sizes: Sizes) -> Gpt {
        let mut builder = LayoutBuilder::new();
        let groups = [builder.group("weights", 0.01, 1.0), builder.group("norms and biases", 0.0, 1.0)];
        let d = sizes.width;
        fn matrix(b: &mut LayoutBuilder, name: &str, shape: [usize; 2], group: GroupId) -> ParameterId {
            b.add(name, shape, Role::Trained(group), Init::Normal(0.02))
        }
        let linear = |b: &mut LayoutBuilder, name: &str, out: usize, from: usize| Affine {
            weight: matrix(b, &format!("{name}.weight"), [out, from], groups[0]),
            bias: b.add(&format!("{name}.bias"), [out], Role::Trained(groups[1]), Init::Zeros),
        };
        let norm = |b: &mut LayoutBuilder, name: &str| Affine {
            weight: b.add(&format!("{name}.weight"), [d], Role::Trained(groups[1]), Init::Constant(1.0)),
            bias: b.add(&format!("{name}.bias"), [d], Role::Trained(groups[1]), Init::Zeros),
        };
        let b = &mut builder;
        let tokens = matrix(b, "tokens", [sizes.vocabulary, d], groups[0]);
        let positions = matrix(b, "positions", [sizes.time, d], groups[0]);
        let blocks = (0..sizes.layers)
            .map(|i| Block {
                norm1: norm(b, &format!("block.{i}.norm1")),
                qkv: linear(b, &format!("block.{i}.qkv"), 3 * d, d),
                out: linear(b, &format!("block.{i}.out"), d, d),
                norm2: norm(b, &format!("block.{i}.norm2")),
                up: linear(b, &format!("block.{i}.up"), 4 * d, d),
                down: linear(b, &format!("block.{i}.down"), d, 4 * d),
            })
            .collect();
        let (norm, head) = (norm(b, "norm"), linear(b, "head", sizes.vocabulary, d));
        Gpt { sizes, layout: Arc::new(builder.finish()), tokens, positions, blocks, norm, head }
    }

    /// A training step on a new tape.
    pub fn step(&self, precision: Precision, build: Build) -> (Tape, Step) {
        self.step_with(precision, build, &mut |_, value| value)
    }

    /// As `step`, with every large value passed through `each`.
    pub fn step_with(&self, precision: Precision, build: Build, each: ValueHook<'_>) -> (Tape, Step) {
        let Sizes { batch, time, .. } = self.sizes;
        let mut tape = Tape::new(Arc::clone(&self.layout), precision);
        let ids = tape.input([batch, time], DType::I32);
        let targets = tape.input([batch, time], DType::I32);
        let loss = self.loss(&mut tape, ids, targets, build.checkpoint, each);
        tape.backward(loss, Backward { recompute: build.recompute, accumulate: build.accumulate });
        if let Some(bytes) = build.reduce {
            tape.reduce_gradients(bytes, false);
        }
        if build.no_update {
            tape.report_loss(loss)
        } else {
            tape.update(loss, build.adam)
        }
        (tape, Step { ids, targets })
    }

    fn loss(
        &self,
        tape: &mut Tape,
        ids: Value,
        targets: Value,
        checkpoint: bool,
        each: ValueHook<'_>,
    ) -> Value {
        let table = tape.parameter(self.tokens);
        let x = tape.embedding(table, ids);
        let positions = tape.parameter(self.positions);
        let x = tape.add_positions(x, positions);
        let mut x = each(tape, x);
        for (i, block) in self.blocks.iter().enumerate() {
            x = tape.scope(&format!("block.{i}"), |tape| match checkpoint {
                true => tape.checkpoint(|tape| self.block(tape, block, x, each)),
                false => self.block(tape, block, x, each),
            });
        }
        let x = norm(tape, self.norm, x);
        let x = each(tape, x);
        let logits = linear(tape, self.head, x);
        let logits = each(tape, logits);
        tape.cross_entropy(logits, targets, 0.0).loss
    }

    fn block(&self, tape: &mut Tape, block: &Block, x: Value, each: ValueHook<'_>) -> Value {
        let y = norm(tape, block.norm1, x);
        let y = each(tape, y);
        let qkv = linear(tape, block.qkv, y);
        let qkv = each(tape, qkv);
        let mask = Mask { causal: true, ..Mask::default() };
        let y = tape.self_attention(qkv, self.sizes.heads, Order::Parts, mask);
        let y = each(tape, y);
        let x = linear_add(tape, block.out, y, x);
        let x = each(tape, x);
        let y = norm(tape, block.norm2, x);
        let y = each(tape, y);
        let layer = |tape: &mut Tape, a: Affine| (tape.parameter(a.weight), tape.parameter(a.bias));
        let (up, down) = (layer(tape, block.up), layer(tape, block.down));
        let x = tape.feed_forward(y, up, down, Some(x));
        each(tape, x)
    }
}

fn norm(tape: &mut Tape, affine: Affine, x: Value) -> Value {
    let (weight, bias) = (tape.master(affine.weight), tape.master(affine.bias));
    tape.layer_norm(x, weight, bias, 1e-5)
}

fn linear(tape: &mut Tape, affine: Affine, x: Value) -> Value {
    let (weight, bias) = (tape.parameter(affine.weight), tape.parameter(affine.bias));
    tape.linear(x, weight, Some(bias))
}

fn linear_add(tape: &mut Tape, affine: Affine, x: Value, residual: Value) -> Value {
    let (weight, bias) = (tape.parameter(affine.weight), tape.parameter(affine.bias));
    tape.linear_add(x, weight, Some(bias), Some(residual))
}

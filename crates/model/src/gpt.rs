//! The GPT of XTTS: conditioning vectors, text and audio codes as one sequence; each position predicts the next.
//!
//! `[conditioning][START t1 … tL STOP][START c1 … cN …]`. Text and codes have separate embedding tables and positions
//! counted from their own start; conditioning has no positions. Attention masks and loss targets are data built by
//! `sequence`, so one network serves all masks.
//!
//! Dropout is applied as in GPT-2 to the embeddings and at the end of both halves of a block. GPT-2's dropout of
//! attention weights is left out: the weights are never materialised here.

mod cached;
mod codebook_start;
mod diagonal;
mod inputs;
mod losses;
mod sizes;

pub use cached::{Caches, StepInputs, StepOutputs};
pub use inputs::{Condition, FrameLengths, GptInputs, GptShape, GptTargets};
pub use losses::{GptLosses, LossWeights};
pub use sizes::GptSizes;

use crate::affine::torch_linear;
use crate::conditioning::ConditioningEncoder;
use crate::declare::{Affine, Declare};
use crate::lora::{Adapter, LoraLinear, LoraSizes};
use crate::perceiver::Perceiver;
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::{Init, ParameterId, Tape, Value};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct Block {
    norm1: Affine,
    qkv: LoraLinear,
    out: LoraLinear,
    norm2: Affine,
    up: LoraLinear,
    down: LoraLinear,
}

/// Name prefixes of the parameters of heads that only training uses.
const ALIGNMENT_HEAD: &str = "training.alignment";
const ACOUSTIC_HEAD: &str = "training.acoustic";

/// See [`Gpt::add_alignment_head`].
#[derive(Clone, Copy, Debug)]
struct AlignmentHead {
    /// Index of the block whose states it reads.
    block: usize,
    norm: Affine,
    head: Affine,
}

/// The GPT's parameters.
#[derive(Clone, Debug)]
pub struct Gpt {
    /// The sizes it was declared with.
    pub sizes: GptSizes,
    conditioning: ConditioningEncoder,
    perceiver: Perceiver,
    text_table: ParameterId,
    audio_table: ParameterId,
    text_positions: ParameterId,
    audio_positions: ParameterId,
    blocks: Vec<Block>,
    last_norm: Affine,
    final_norm: Affine,
    text_head: Affine,
    mel_head: Affine,
    alignment: Option<AlignmentHead>,
    acoustic: Option<Affine>,
}

/// Options of a training pass. The default is evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GptOptions {
    /// Dropout rate of the embeddings and at the end of both halves of every block.
    pub dropout: f32,
    /// Number of leading blocks that are recomputed in the backward pass instead of stored.
    pub recomputed_blocks: usize,
}

/// Outputs of a training pass.
#[derive(Clone, Debug)]
pub struct GptOutputs {
    /// States over the text `[batch, text, width]`, after both norms.
    pub text_states: Value,
    /// States over the codes `[batch, mel, width]`, after both norms: the decoder's input.
    pub latents: Value,
    /// `[batch, text, text_vocabulary]`.
    pub text_logits: Value,
    /// `[batch, mel, audio_vocabulary]`.
    pub mel_logits: Value,
    /// `[batch, mel, text_vocabulary]`, only from [`Gpt::forward_with_heads`] with an alignment head.
    pub alignment_logits: Option<Value>,
    /// `[batch, mel, frames per code * mel bands]`, only from [`Gpt::forward_with_heads`] with an acoustic head.
    pub acoustic: Option<Value>,
    /// Intermediate results.
    pub trace: Trace,
}

/// Intermediate results of the GPT; to read a value, mark it with `Tape::keep`.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Output of the conditioning encoder `[batch, frames, width]`; `None` without frames.
    pub frames: Option<Value>,
    /// The conditioning vectors `[batch, latents, width]`.
    pub condition: Option<Value>,
    /// Input of the first block `[batch, latents + text + mel, width]`.
    pub input: Option<Value>,
    /// Output of each block.
    pub blocks: Vec<Value>,
}

impl Gpt {
    /// Declares the parameters under their released names, in the release's order.
    ///
    /// Initialisation is the original's: GPT-2's linear layers from N(0, 0.02), narrower for those that end a half of a
    /// block so that depth does not widen the residual; embeddings from N(0, 0.02); heads, conditioning and perceiver
    /// with PyTorch's defaults.
    pub fn declare(declare: &mut Declare<'_>, sizes: GptSizes) -> Gpt {
        let width = sizes.width;
        let conditioning =
            ConditioningEncoder::declare(declare, "gpt.conditioning_encoder", sizes.conditioning.clone());
        let normal = Init::Normal(0.02);
        let last = Init::Normal(0.02 / (2.0 * sizes.layers as f32).sqrt());
        let text_table = declare.table("gpt.text_embedding", sizes.text_vocabulary, width, normal);
        let audio_table = declare.table("gpt.mel_embedding", sizes.audio_vocabulary, width, normal);
        let blocks = (0..sizes.layers)
            .map(|i| {
                let name = |part: &str| format!("gpt.gpt.h.{i}.{part}");
                let norm1 = declare.norm(&name("ln_1"), width);
                let qkv = declare.linear_transposed(&name("attn.c_attn"), 3 * width, width, normal);
                let out = declare.linear_transposed(&name("attn.c_proj"), width, width, last);
                let norm2 = declare.norm(&name("ln_2"), width);
                let up = declare.linear_transposed(&name("mlp.c_fc"), 4 * width, width, normal);
                let down = declare.linear_transposed(&name("mlp.c_proj"), width, 4 * width, last);
                let [qkv, out, up, down] = [qkv, out, up, down].map(LoraLinear::new);
                Block { norm1, qkv, out, norm2, up, down }
            })
            .collect();
        let last_norm = declare.norm("gpt.gpt.ln_f", width);
        let audio_positions =
            declare.table("gpt.mel_pos_embedding.emb", sizes.audio_positions(), width, normal);
        let text_positions =
            declare.table("gpt.text_pos_embedding.emb", sizes.text_positions(), width, normal);
        let final_norm = declare.norm("gpt.final_norm", width);
        let text_head = torch_linear(declare, "gpt.text_head", sizes.text_vocabulary, width);
        let mel_head = torch_linear(declare, "gpt.mel_head", sizes.audio_vocabulary, width);
        let perceiver = Perceiver::declare(declare, "gpt.conditioning_perceiver", sizes.perceiver.clone());
        Gpt {
            sizes,
            conditioning,
            perceiver,
            text_table,
            audio_table,
            text_positions,
            audio_positions,
            blocks,
            last_norm,
            final_norm,
            text_head,
            mel_head,
            alignment: None,
            acoustic: None,
        }
    }

    /// Declares a head that is trained with the GPT and left out of models: from the states of a middle block it
    /// predicts which text token is spoken. For this, the blocks below must locate that token in the text.
    pub fn add_alignment_head(&mut self, declare: &mut Declare<'_>) {
        let (width, classes) = (self.sizes.width, self.sizes.text_vocabulary);
        self.alignment = Some(AlignmentHead {
            block: self.sizes.layers / 2,
            norm: declare.norm(&format!("{ALIGNMENT_HEAD}.norm"), width),
            head: torch_linear(declare, &format!("{ALIGNMENT_HEAD}.head"), classes, width),
        });
    }

    /// Declares a head that is trained with the GPT and left out of models: from the last states it predicts the
    /// `channels` mel values of the frames of the code that was just read. Predicting the next code alone lets the
    /// states forget how the last one sounds, which is what the decoder needs.
    pub fn add_acoustic_head(&mut self, declare: &mut Declare<'_>, channels: usize) {
        self.acoustic = Some(torch_linear(declare, ACOUSTIC_HEAD, channels, self.sizes.width));
    }

    /// Declares adapters on the linear layers of every block. Which parameters are trained is decided by the `Declare`:
    /// usually `lora::is_adapter` only.
    pub fn add_lora(&mut self, declare: &mut Declare<'_>, lora: &LoraSizes) {
        let width = self.sizes.width;
        for (i, block) in self.blocks.iter_mut().enumerate() {
            let mut add = |product: &mut LoraLinear, part: &str, out: usize, from: usize| {
                let name = format!("gpt.gpt.h.{i}.{part}");
                product.adapter =
                    Some(Adapter::declare(declare, &name, product.affine.weight, out, from, lora));
            };
            if lora.attention {
                add(&mut block.qkv, "attn.c_attn", 3 * width, width);
                add(&mut block.out, "attn.c_proj", width, width);
            }
            if lora.feed_forward {
                add(&mut block.up, "mlp.c_fc", 4 * width, width);
                add(&mut block.down, "mlp.c_proj", width, 4 * width);
            }
        }
    }

    /// Returns all adapters, to fold them into their weights.
    pub fn adapters(&self) -> impl Iterator<Item = Adapter> {
        self.blocks.iter().flat_map(|b| [b.qkv, b.out, b.up, b.down]).filter_map(|p| p.adapter)
    }

    /// Computes conditioning vectors `[batch, latents, width]` from mel frames `[batch, frames, mels]`.
    pub fn condition(&self, tape: &mut Tape, mels: Value, lengths: Option<FrameLengths>) -> Value {
        self.condition_traced(tape, mels, lengths).1
    }

    /// Training pass: states and logits of both segments.
    pub fn forward(&self, tape: &mut Tape, inputs: &GptInputs, options: &GptOptions) -> GptOutputs {
        let (x, trace) = self.trunk(tape, inputs, options);
        let (text, mel) = self.segments(tape, inputs);
        let (text_states, latents) = (self.finish(tape, x, text), self.finish(tape, x, mel));
        let text_logits = tape.scope("text_head", |tape| self.text_head.linear(tape, text_states));
        let mel_logits = tape.scope("mel_head", |tape| self.mel_head.linear(tape, latents));
        GptOutputs {
            text_states,
            latents,
            text_logits,
            mel_logits,
            alignment_logits: None,
            acoustic: None,
            trace,
        }
    }

    /// Like [`Gpt::forward`], with the results of the alignment head and the acoustic head, where there are such heads.
    pub fn forward_with_heads(
        &self,
        tape: &mut Tape,
        inputs: &GptInputs,
        options: &GptOptions,
    ) -> GptOutputs {
        let mut outputs = self.forward(tape, inputs, options);
        if let Some(head) = self.alignment {
            let (_, mel) = self.segments(tape, inputs);
            let states = outputs.trace.blocks[head.block];
            outputs.alignment_logits = Some(tape.scope("alignment_head", |tape| {
                let x = tape.slice_time(states, mel);
                let x = head.norm.layer_norm(tape, x);
                head.head.linear(tape, x)
            }));
        }
        if let Some(head) = self.acoustic {
            outputs.acoustic = Some(tape.scope("acoustic_head", |tape| head.linear(tape, outputs.latents)));
        }
        outputs
    }

    /// Computes the states over START and the codes `[batch, mel, width]` for the decoder: row i predicts code i, and
    /// the row of the last code predicts STOP. No dropout, no heads.
    pub fn latents(&self, tape: &mut Tape, inputs: &GptInputs) -> Value {
        let (x, _) = self.trunk(tape, inputs, &GptOptions::default());
        let (_, mel) = self.segments(tape, inputs);
        self.finish(tape, x, mel)
    }

    fn condition_traced(
        &self,
        tape: &mut Tape,
        mels: Value,
        lengths: Option<FrameLengths>,
    ) -> (Value, Value) {
        let frames = self.conditioning.forward(tape, mels, lengths.map(|l| l.frames));
        (frames, self.perceiver.forward(tape, frames, lengths.map(|l| l.with_latents)))
    }

    /// Computes everything up to the last block.
    fn trunk(&self, tape: &mut Tape, inputs: &GptInputs, options: &GptOptions) -> (Value, Trace) {
        let mut trace = Trace::default();
        let condition = match inputs.condition {
            Condition::Mels { mels, lengths } => {
                let (frames, condition) = self.condition_traced(tape, mels, lengths);
                trace.frames = Some(frames);
                condition
            }
            Condition::Latents(condition) => condition,
        };
        trace.condition = Some(condition);
        let text = embedded(tape, self.text_table, self.text_positions, inputs.text_in);
        let mel = embedded(tape, self.audio_table, self.audio_positions, inputs.mel_in);
        let x = tape.concatenate_time(&[condition, text, mel]);
        trace.input = Some(x);
        let mut x = tape.dropout(x, options.dropout);
        for (i, block) in self.blocks.iter().enumerate() {
            x = tape.scope(&format!("block.{i}"), |tape| {
                let build = |tape: &mut Tape| {
                    let mask = Mask { causal: true, keys: Some(inputs.key_mask), ..Mask::default() };
                    self.block(tape, block, x, options.dropout, |tape, qkv| {
                        tape.self_attention(qkv, self.sizes.heads, Order::Parts, mask)
                    })
                };
                if i < options.recomputed_blocks { tape.checkpoint(build) } else { build(tape) }
            });
            trace.blocks.push(x);
        }
        (x, trace)
    }

    fn block(
        &self,
        tape: &mut Tape,
        block: &Block,
        x: Value,
        dropout: f32,
        attend: impl FnOnce(&mut Tape, Value) -> Value,
    ) -> Value {
        let y = block.norm1.layer_norm(tape, x);
        let qkv = block.qkv.forward(tape, y, None);
        let y = attend(tape, qkv);
        let x = ended(tape, x, dropout, |tape, x| block.out.forward(tape, y, x));
        let y = block.norm2.layer_norm(tape, x);
        if block.up.adapter.is_none() && block.down.adapter.is_none() {
            let (up, down) = (block.up.affine.layer(tape), block.down.affine.layer(tape));
            return ended(tape, x, dropout, |tape, x| tape.feed_forward(y, up, down, x));
        }
        let y = block.up.forward(tape, y, None);
        let y = tape.activation(y, Function::GeluTanh);
        ended(tape, x, dropout, |tape, x| block.down.forward(tape, y, x))
    }

    /// Returns the position ranges of text and codes.
    fn segments(&self, tape: &Tape, inputs: &GptInputs) -> (Range<usize>, Range<usize>) {
        let start = self.sizes.perceiver.latents;
        let middle = start + tape.shape(inputs.text_in).last();
        (start..middle, middle..middle + tape.shape(inputs.mel_in).last())
    }

    /// Applies GPT-2's last norm and XTTS's own to one segment of the last block's output. Sliced first: the
    /// conditioning needs no norms, and every row is copied once.
    fn finish(&self, tape: &mut Tape, x: Value, segment: Range<usize>) -> Value {
        let x = tape.slice_time(x, segment);
        let x = self.last_norm.layer_norm(tape, x);
        self.final_norm.layer_norm(tape, x)
    }
}

/// Ends a half of a block: projects and adds the residual, fused into the projection without dropout.
fn ended(
    tape: &mut Tape,
    x: Value,
    dropout: f32,
    make: impl FnOnce(&mut Tape, Option<Value>) -> Value,
) -> Value {
    if dropout == 0.0 {
        return make(tape, Some(x));
    }
    let y = make(tape, None);
    tape.dropout_add(y, x, dropout)
}

fn embedded(tape: &mut Tape, table: ParameterId, positions: ParameterId, ids: Value) -> Value {
    let (table, positions) = (tape.parameter(table), tape.parameter(positions));
    let x = tape.embedding(table, ids);
    tape.add_positions(x, positions)
}

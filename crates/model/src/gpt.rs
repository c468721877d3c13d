//! The GPT of XTTS: conditioning vectors, text and audio codes as one sequence, each predicting what comes next.
//!
//! `[conditioning][START t1 … tL STOP][START c1 … cN …]`; text and codes each have a table of their own and positions
//! counted from their own start, the conditioning has none. What may be looked at and what counts for the loss is data
//! that `sequence` makes, so there is one network for all kinds of masks.
//!
//! Dropout is where GPT-2 has it on the embeddings and at the end of each half of a block. GPT-2's dropout of attention
//! weights is left out: they are never in memory here, so there is nothing to drop.

mod cached;
mod codebook_start;
mod diagonal;
mod inputs;

pub use cached::{Caches, Next, StepInputs};
pub use inputs::{Condition, FrameLengths, GptInputs, GptShape, GptTargets};

use crate::affine::torch_linear;
use crate::conditioning::{ConditioningEncoder, ConditioningSizes};
use crate::declare::{Affine, Declare};
use crate::lora::{Adapter, LoraSizes, Product};
use crate::perceiver::{Perceiver, PerceiverSizes};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::{Init, ParameterId, Tape, Value};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The GPT's sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GptSizes {
    /// Blocks.
    pub layers: usize,
    /// Channels.
    pub width: usize,
    /// Heads of each block.
    pub heads: usize,
    /// Rows of the text table.
    pub text_vocabulary: usize,
    /// Rows of the audio table: the codes, START and STOP.
    pub audio_vocabulary: usize,
    /// Text tokens a sequence may have, START and STOP not counted.
    pub max_text: usize,
    /// Codes a sequence may have, START and STOP not counted.
    pub max_audio: usize,
    /// What text begins with.
    pub start_text: i32,
    /// What text ends with and is padded with.
    pub stop_text: i32,
    /// What codes begin with.
    pub start_audio: i32,
    /// What codes end with and are padded with.
    pub stop_audio: i32,
    /// Samples one code stands for.
    pub code_stride: usize,
    /// The conditioning encoder.
    pub conditioning: ConditioningSizes,
    /// The perceiver behind it.
    pub perceiver: PerceiverSizes,
}

impl GptSizes {
    /// A GPT with everything else as the release derives it; `codes` are those of the DVAE.
    pub fn of(layers: usize, width: usize, heads: usize, text_vocabulary: usize, codes: usize) -> GptSizes {
        GptSizes {
            layers,
            width,
            heads,
            text_vocabulary,
            audio_vocabulary: codes + 2,
            max_text: 402,
            max_audio: 605,
            start_text: 261,
            stop_text: 0,
            start_audio: codes as i32,
            stop_audio: codes as i32 + 1,
            code_stride: 1024,
            conditioning: ConditioningSizes::of(width, heads),
            perceiver: PerceiverSizes::of(width),
        }
    }

    /// XTTS-v2 as released since 2.0.3.
    pub fn v2() -> GptSizes {
        GptSizes::of(30, 1024, 16, 6681, 1024)
    }

    /// Rows of the table of text positions: START and STOP have theirs.
    pub fn text_positions(&self) -> usize {
        self.max_text + 2
    }

    /// Rows of the table of audio positions: START, STOP, and one that the original counts for its conditioning.
    pub fn audio_positions(&self) -> usize {
        self.max_audio + 3
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    norm1: Affine,
    qkv: Product,
    out: Product,
    norm2: Affine,
    up: Product,
    down: Product,
}

/// The name that the parameters of the alignment head begin with.
const ALIGNMENT_HEAD: &str = "training.alignment";

/// See [`Gpt::add_alignment_head`].
#[derive(Clone, Copy, Debug)]
struct AlignmentHead {
    /// The block whose states it reads.
    block: usize,
    norm: Affine,
    head: Affine,
}

/// The GPT's parameters.
#[derive(Clone, Debug)]
pub struct Gpt {
    /// Its sizes.
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
}

/// How it is computed. The default is how it is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GptOptions {
    /// The share of elements that are dropped, of the embeddings and at the end of both halves of every block.
    pub dropout: f32,
    /// The first so many blocks are computed again in the backward pass instead of kept.
    pub recomputed_blocks: usize,
}

/// What it makes.
#[derive(Clone, Debug)]
pub struct GptOutputs {
    /// The states over the text `[batch, text, width]`, after both norms.
    pub text_states: Value,
    /// The states over the codes `[batch, mel, width]`, after both norms: what the decoder turns into sound.
    pub latents: Value,
    /// `[batch, text, text_vocabulary]`.
    pub text_logits: Value,
    /// `[batch, mel, audio_vocabulary]`.
    pub mel_logits: Value,
    /// `[batch, mel, text_vocabulary]`, where there is an alignment head and it was asked for.
    pub alignment_logits: Option<Value>,
    /// What came before.
    pub trace: Trace,
}

/// What the GPT computes on its way; to be read, a value must be kept (`Tape::keep`).
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What the conditioning encoder makes of the frames `[batch, frames, width]`, where there are frames.
    pub frames: Option<Value>,
    /// The conditioning vectors `[batch, latents, width]`.
    pub condition: Option<Value>,
    /// What the first block takes `[batch, latents + text + mel, width]`.
    pub input: Option<Value>,
    /// What each block makes.
    pub blocks: Vec<Value>,
}

/// How the two losses are taken together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights {
    /// The text's.
    pub text: f32,
    /// The codes'.
    pub mel: f32,
    /// The alignment head's.
    pub alignment: f32,
    /// The share of each target that is spread over all classes.
    pub smoothing: f32,
}

impl Default for LossWeights {
    fn default() -> LossWeights {
        LossWeights { text: 0.01, mel: 1.0, alignment: 0.0, smoothing: 0.0 }
    }
}

/// The losses of a step, one f32 each.
#[derive(Clone, Copy, Debug)]
pub struct GptLosses {
    /// What is minimised.
    pub total: Value,
    /// The mean over the text targets that count.
    pub text: Value,
    /// The mean over the code targets that count.
    pub mel: Value,
    /// How many of these codes were the most likely one.
    pub mel_correct: Value,
    /// How many codes count.
    pub mel_count: Value,
    /// The alignment head's loss and how many of its answers were right, where it has targets.
    pub alignment: Option<(Value, Value)>,
}

impl GptLosses {
    /// How many notes a report carries of these losses.
    pub const NOTES: usize = 6;

    /// The losses taken together.
    pub fn weighted(&self, tape: &mut Tape, weights: LossWeights) -> Value {
        let mut parts = vec![(self.text, weights.text), (self.mel, weights.mel)];
        parts.extend(self.alignment.map(|(loss, _)| (loss, weights.alignment)));
        tape.weighted_sum(&parts)
    }

    /// Puts the text loss, the code loss, the correct codes and the counted codes into the report's notes from `first`
    /// on, and behind them the alignment head's loss and its correct answers. Accuracy is the third over the fourth:
    /// sums, so that steps and replicas can be added up.
    pub fn note(&self, tape: &mut Tape, first: usize) {
        for (i, value) in [self.text, self.mel, self.mel_correct, self.mel_count].into_iter().enumerate() {
            tape.note(first + i, value);
        }
        if let Some((loss, correct)) = self.alignment {
            tape.note(first + 4, loss);
            tape.note(first + 5, correct);
        }
    }
}

impl Gpt {
    /// Declares its parameters under the names of the release, in the release's order.
    ///
    /// They begin as the original's do: GPT-2's products from N(0, 0.02), those that end a half of a block narrower, so
    /// that depth does not widen the sum; tables from N(0, 0.02); heads, conditioning and perceiver by torch's defaults.
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
                let [qkv, out, up, down] = [qkv, out, up, down].map(Product::new);
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
        }
    }

    /// Declares a head that is trained beside the GPT and left out of every model: it tells from the states of a middle
    /// block which text token is being spoken. To answer, the blocks below it must find that token in the text.
    pub fn add_alignment_head(&mut self, declare: &mut Declare<'_>) {
        let (width, classes) = (self.sizes.width, self.sizes.text_vocabulary);
        self.alignment = Some(AlignmentHead {
            block: self.sizes.layers / 2,
            norm: declare.norm(&format!("{ALIGNMENT_HEAD}.norm"), width),
            head: torch_linear(declare, &format!("{ALIGNMENT_HEAD}.head"), classes, width),
        });
    }

    /// Declares adapters beside the products of every block. Which parameters are trained is still the `Declare`'s
    /// choice: usually `lora::is_adapter` alone.
    pub fn add_lora(&mut self, declare: &mut Declare<'_>, lora: &LoraSizes) {
        let width = self.sizes.width;
        for (i, block) in self.blocks.iter_mut().enumerate() {
            let mut add = |product: &mut Product, part: &str, out: usize, from: usize| {
                let name = format!("gpt.gpt.h.{i}.{part}");
                product.adapter =
                    Some(Adapter::declare(declare, &name, product.affine.weight, (out, from), lora));
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

    /// All adapters, to be folded into their weights.
    pub fn adapters(&self) -> impl Iterator<Item = Adapter> {
        self.blocks.iter().flat_map(|b| [b.qkv, b.out, b.up, b.down]).filter_map(|p| p.adapter)
    }

    /// Conditioning vectors `[batch, latents, width]` of mel frames `[batch, frames, mels]`.
    pub fn condition(&self, tape: &mut Tape, mels: Value, lengths: Option<FrameLengths>) -> Value {
        self.condition_traced(tape, mels, lengths).1
    }

    /// The training pass: states and logits of both segments.
    pub fn forward(&self, tape: &mut Tape, inputs: &GptInputs, options: &GptOptions) -> GptOutputs {
        let (x, trace) = self.trunk(tape, inputs, options);
        let (text, mel) = self.segments(tape, inputs);
        let (text_states, latents) = (self.finish(tape, x, text), self.finish(tape, x, mel));
        let text_logits = tape.scope("text_head", |tape| self.text_head.linear(tape, text_states));
        let mel_logits = tape.scope("mel_head", |tape| self.mel_head.linear(tape, latents));
        GptOutputs { text_states, latents, text_logits, mel_logits, alignment_logits: None, trace }
    }

    /// [`Gpt::forward`] with the answers of the alignment head, where there is one.
    pub fn forward_aligned(&self, tape: &mut Tape, inputs: &GptInputs, options: &GptOptions) -> GptOutputs {
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
        outputs
    }

    /// The states over START and the codes `[batch, mel, width]`, for the decoder: row i is the one that predicts code
    /// i, and the row of the last code the one that predicts STOP. Nothing is dropped and no head is computed.
    pub fn latents(&self, tape: &mut Tape, inputs: &GptInputs) -> Value {
        let (x, _) = self.trunk(tape, inputs, &GptOptions::default());
        let (_, mel) = self.segments(tape, inputs);
        self.finish(tape, x, mel)
    }

    /// The losses of a training pass.
    pub fn losses(
        &self,
        tape: &mut Tape,
        outputs: &GptOutputs,
        targets: &GptTargets,
        weights: LossWeights,
    ) -> GptLosses {
        tape.scope("loss", |tape| {
            let text = tape.cross_entropy(outputs.text_logits, targets.text, weights.smoothing);
            let mel = tape.cross_entropy(outputs.mel_logits, targets.mel, weights.smoothing);
            let alignment = outputs.alignment_logits.zip(targets.spoken).map(|(logits, spoken)| {
                let found = tape.cross_entropy(logits, spoken, 0.0);
                (found.loss, found.correct)
            });
            let (mel_correct, mel_count) = (mel.correct, mel.count);
            let (text, mel) = (text.loss, mel.loss);
            let mut losses = GptLosses { total: mel, text, mel, mel_correct, mel_count, alignment };
            losses.total = losses.weighted(tape, weights);
            losses
        })
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

    /// Everything up to the last block.
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

    /// Where text and codes lie in the sequence.
    fn segments(&self, tape: &Tape, inputs: &GptInputs) -> (Range<usize>, Range<usize>) {
        let start = self.sizes.perceiver.latents;
        let middle = start + tape.shape(inputs.text_in).last();
        (start..middle, middle..middle + tape.shape(inputs.mel_in).last())
    }

    /// One segment of what the last block made, after GPT-2's norm and XTTS's own. Cut first: the conditioning needs
    /// neither, and every row is copied once.
    fn finish(&self, tape: &mut Tape, x: Value, segment: Range<usize>) -> Value {
        let x = tape.slice_time(x, segment);
        let x = self.last_norm.layer_norm(tape, x);
        self.final_norm.layer_norm(tape, x)
    }
}

/// The end of a half of a block: what it makes is added to what it took, by the product itself where nothing is dropped.
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

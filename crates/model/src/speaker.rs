//! The speaker encoder: a residual network over a spectrogram that returns a speaker embedding.
//!
//! | value | shape | unit |
//! |---|---|---|
//! | features | `[batch, time, mels]` | log-mel at 16 kHz, instance-normalised over time |
//! | image | `[batch, time', mels', channels]` | height is time, width is frequency |
//! | embedding | `[batch, result]` | unit length |
//!
//! Inference uses the running statistics of the batch norms; training uses those of the batch.

use crate::declare::{Affine, Declare};
use crate::shapes::{ShapeError, ShapeOf, count, dims, unfit};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// Prefix of its parameters in a release.
pub const PREFIX: &str = "hifigan_decoder.speaker_encoder.";

const EPSILON: f32 = 1e-5;

/// Momentum of the running statistics.
const MOMENTUM: f32 = 0.1;

/// Minimum variance of the pooled statistics.
const MIN_VARIANCE: f32 = 1e-5;

/// A sequence of residual blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeakerLayer {
    /// Number of blocks.
    pub blocks: usize,
    /// Channels of the blocks.
    pub channels: usize,
    /// Stride of the first block, in time and frequency.
    pub stride: usize,
}

/// Sizes of a speaker encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerSizes {
    /// Mel channels of the features.
    pub mels: usize,
    /// The layers in order; the first convolution has as many channels as the first layer.
    pub layers: Vec<SpeakerLayer>,
    /// Channel reduction inside the squeeze-and-excitation gate.
    pub reduction: usize,
    /// Hidden channels of the attention pooling.
    pub attention: usize,
    /// Length of the embedding.
    pub result: usize,
}

impl SpeakerSizes {
    /// Sizes of XTTS-v2.
    pub fn v2() -> SpeakerSizes {
        let layers = [(3, 32, 1), (4, 64, 2), (6, 128, 2), (3, 256, 2)];
        SpeakerSizes {
            mels: 64,
            layers: layers
                .map(|(blocks, channels, stride)| SpeakerLayer { blocks, channels, stride })
                .to_vec(),
            reduction: 8,
            attention: 128,
            result: 512,
        }
    }

    /// Infers the sizes from the tensor shapes of a file. Strides are those of v2: shapes do not reveal them.
    pub fn of_shapes(of: ShapeOf<'_>) -> Result<SpeakerSizes, ShapeError> {
        let mut layers = Vec::new();
        for (i, layer) in SpeakerSizes::v2().layers.iter().enumerate() {
            let name = |block: usize| format!("{PREFIX}layer{}.{block}.conv1.weight", i + 1);
            let [channels, ..] = dims::<4>(of, &name(0))?;
            layers.push(SpeakerLayer { blocks: count(of, name), channels, stride: layer.stride });
        }
        let gate = format!("{PREFIX}layer1.0.se.fc.0.weight");
        let [inside, channels] = dims(of, &gate)?;
        let attend = format!("{PREFIX}attention.0.weight");
        let [attention, pooled, _] = dims::<3>(of, &attend)?;
        let [result, _] = dims::<2>(of, &format!("{PREFIX}fc.weight"))?;
        let last = layers.last().map_or(1, |layer| layer.channels);
        let reduction = channels / inside;
        if reduction == 0 || layers.iter().any(|layer| layer.channels < reduction) {
            return Err(unfit(
                &gate,
                &[inside, channels],
                "the gate must have fewer channels than its input",
            ));
        }
        if pooled % last != 0 {
            let reason = format!("the input must be a multiple of {last} channels");
            return Err(unfit(&attend, &[attention, pooled, 1], reason));
        }
        let mels = pooled / last * layers.iter().map(|layer| layer.stride).product::<usize>();
        Ok(SpeakerSizes { mels, layers, reduction, attention, result })
    }

    /// Frequency bins after the last stride.
    fn last_mels(&self) -> usize {
        self.layers.iter().fold(self.mels, |mels, layer| mels.div_ceil(layer.stride))
    }

    /// Values per time step after the last layer.
    fn pooled(&self) -> usize {
        self.last_mels() * self.layers.last().map_or(0, |layer| layer.channels)
    }
}

/// Source of the batch norms' statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Running statistics: an embedding does not depend on the rest of its batch.
    Running,
    /// Statistics of the batch; the running ones are updated at the end of the step.
    Batch,
}

/// A batch norm's weight, bias and running statistics.
#[derive(Clone, Copy, Debug)]
struct Norm {
    affine: Affine,
    mean: ParameterId,
    variance: ParameterId,
}

struct Block {
    stride: usize,
    convs: [ParameterId; 2],
    norms: [Norm; 2],
    gate: [Affine; 2],
    /// Projection of the input where its size differs from the output's.
    shortcut: Option<(ParameterId, Norm)>,
}

/// The parameters of a speaker encoder.
pub struct SpeakerEncoder {
    sizes: SpeakerSizes,
    first: Affine,
    first_norm: Norm,
    layers: Vec<Vec<Block>>,
    attention: [Affine; 2],
    attention_norm: Norm,
    last: Affine,
}

/// A speaker embedding and intermediate results.
#[derive(Clone, Debug)]
pub struct SpeakerOutput {
    /// After the first convolution, its activation and its norm.
    pub first: Value,
    /// After each layer.
    pub layers: Vec<Value>,
    /// Attention weights over time for each value `[batch, time, channels * mels]`.
    pub attention: Value,
    /// Weighted means, followed by standard deviations.
    pub pooled: Value,
    /// Before normalisation to unit length.
    pub projected: Value,
    /// The embedding.
    pub embedding: Value,
}

impl Norm {
    fn declare(declare: &mut Declare, name: &str, channels: usize) -> Norm {
        Norm {
            affine: declare.norm(name, channels),
            mean: declare.state(&format!("{name}.running_mean"), &[channels], Init::Zeros),
            variance: declare.state(&format!("{name}.running_var"), &[channels], Init::Constant(1.0)),
        }
    }

    fn forward(&self, tape: &mut Tape, x: Value, statistics: Statistics) -> Value {
        let affine = (tape.master(self.affine.weight), tape.master(self.affine.bias));
        match statistics {
            Statistics::Running => {
                let running = (tape.master(self.mean), tape.master(self.variance));
                tape.batch_norm_running(x, affine, running, EPSILON)
            }
            Statistics::Batch => tape.batch_norm(x, affine, (self.mean, self.variance), MOMENTUM, EPSILON),
        }
    }
}

/// `NAME.weight [out, in, frequency taps, time taps]`; the engine's layout is `[out, time taps, frequency taps, in]`.
fn declare_conv(declare: &mut Declare, name: &str, (out, taps, from): (usize, usize, usize)) -> ParameterId {
    let (there, ours) = ([out, from, taps, taps], [out, taps, taps, from]);
    let init = Init::Normal((2.0 / (taps * taps * out) as f32).sqrt());
    declare.weight(&format!("{name}.weight"), &there, &[0, 3, 2, 1], &ours, init)
}

fn uniform(fan: usize) -> Init {
    Init::Uniform(1.0 / (fan as f32).sqrt())
}

impl SpeakerEncoder {
    /// Declares the parameters under their released names. A release also stores the feature extractor (`torch_spec`)
    /// and the batch counts of the norms; neither is needed.
    pub fn declare(declare: &mut Declare, sizes: &SpeakerSizes) -> SpeakerEncoder {
        let named = |name: &str| format!("{PREFIX}{name}");
        let mut from = sizes.layers.first().map_or(0, |layer| layer.channels);
        let first = Affine {
            weight: declare_conv(declare, &named("conv1"), (from, 3, 1)),
            bias: declare.bias(&named("conv1.bias"), from, Init::Zeros),
        };
        let first_norm = Norm::declare(declare, &named("bn1"), from);
        let mut layers = Vec::new();
        for (i, layer) in sizes.layers.iter().enumerate() {
            let mut blocks = Vec::new();
            for j in 0..layer.blocks {
                let stride = if j == 0 { layer.stride } else { 1 };
                let name = named(&format!("layer{}.{j}", i + 1));
                blocks.push(Block::declare(declare, &name, (from, layer.channels), stride, sizes.reduction));
                from = layer.channels;
            }
            layers.push(blocks);
        }
        let (wide, inside) = (sizes.pooled(), sizes.attention);
        let open = declare.linear_of_conv(&named("attention.0"), inside, wide, uniform(wide));
        let attention_norm = Norm::declare(declare, &named("attention.2"), inside);
        let close = declare.linear_of_conv(&named("attention.3"), wide, inside, uniform(inside));
        let last = declare.linear(&named("fc"), sizes.result, 2 * wide, uniform(2 * wide));
        let (sizes, attention) = (sizes.clone(), [open, close]);
        SpeakerEncoder { sizes, first, first_norm, layers, attention, attention_norm, last }
    }

    /// The sizes it was declared with.
    pub fn sizes(&self) -> &SpeakerSizes {
        &self.sizes
    }

    /// Computes embeddings `[batch, result]` of unit length from features `[batch, time, mels]`.
    pub fn embed(&self, tape: &mut Tape, features: Value) -> Value {
        self.forward(tape, features, Statistics::Running).embedding
    }

    /// Like `embed`, with intermediate results and the given statistics.
    pub fn forward(&self, tape: &mut Tape, features: Value, statistics: Statistics) -> SpeakerOutput {
        let shape = tape.shape(features);
        let [batch, time, mels] = [shape.dim(0), shape.dim(1), shape.last()];
        assert_eq!(mels, self.sizes.mels, "features {shape} have the wrong number of mels");
        let x = tape.reshape(features, [batch, time, mels, 1]);
        let (weight, bias) = (tape.parameter(self.first.weight), tape.master(self.first.bias));
        let x = tape.conv2d(x, weight, Some(bias), (1, 1), (1, 1));
        let x = tape.activation(x, Function::Relu);
        let first = self.first_norm.forward(tape, x, statistics);
        let (mut x, mut layers) = (first, Vec::new());
        for (i, blocks) in self.layers.iter().enumerate() {
            tape.scope(&format!("layer.{i}"), |tape| {
                x = blocks.iter().fold(x, |x, block| block.forward(tape, x, statistics));
            });
            layers.push(x);
        }
        let x = self.flatten(tape, x);
        let attention = self.attend(tape, x, statistics);
        let pooled = pool(tape, x, attention);
        let projected = linear(tape, pooled, self.last);
        let embedding = tape.l2_normalize(projected);
        SpeakerOutput { first, layers, attention, pooled, projected, embedding }
    }

    /// Reshapes an image to `[batch, time, channels * mels]`, channel by channel, as the released weights expect.
    fn flatten(&self, tape: &mut Tape, x: Value) -> Value {
        let shape = tape.shape(x);
        let [batch, time, mels, c] = [shape.dim(0), shape.dim(1), shape.dim(2), shape.last()];
        let x = tape.reshape(x, [batch * time, mels, c]);
        let x = tape.transpose(x);
        tape.reshape(x, [batch, time, c * mels])
    }

    fn attend(&self, tape: &mut Tape, x: Value, statistics: Statistics) -> Value {
        let x = linear(tape, x, self.attention[0]);
        let x = tape.activation(x, Function::Relu);
        let x = self.attention_norm.forward(tape, x, statistics);
        let x = linear(tape, x, self.attention[1]);
        tape.softmax_time(x, None)
    }
}

/// Weighted mean over time of `x [batch, time, c]`, followed by the standard deviation: `[batch, 2 c]`.
fn pool(tape: &mut Tape, x: Value, weights: Value) -> Value {
    let time = tape.shape(x).dim(1) as f32;
    // The weights sum to 1 over time, so a sum is `time` times a mean.
    let sum = |tape: &mut Tape, x: Value| {
        let mean = tape.time_mean(x, None);
        tape.scale(mean, time)
    };
    let weighted = tape.multiply(x, weights);
    let mean = sum(tape, weighted);
    let weighted = tape.multiply(x, weighted);
    let square = sum(tape, weighted);
    let mean_square = tape.multiply(mean, mean);
    let variance = tape.subtract(square, mean_square);
    let variance = tape.activation(variance, Function::ClampMin(MIN_VARIANCE));
    let deviation = tape.activation(variance, Function::Sqrt);
    tape.concatenate_channels(&[mean, deviation])
}

impl Block {
    fn declare(
        declare: &mut Declare,
        name: &str,
        (from, to): (usize, usize),
        stride: usize,
        reduction: usize,
    ) -> Block {
        let a = declare_conv(declare, &format!("{name}.conv1"), (to, 3, from));
        let norm_a = Norm::declare(declare, &format!("{name}.bn1"), to);
        let b = declare_conv(declare, &format!("{name}.conv2"), (to, 3, to));
        let norm_b = Norm::declare(declare, &format!("{name}.bn2"), to);
        let inside = to / reduction;
        let gate = [
            declare.linear(&format!("{name}.se.fc.0"), inside, to, uniform(to)),
            declare.linear(&format!("{name}.se.fc.2"), to, inside, uniform(inside)),
        ];
        let shortcut = (stride != 1 || from != to).then(|| {
            let conv = declare_conv(declare, &format!("{name}.downsample.0"), (to, 1, from));
            (conv, Norm::declare(declare, &format!("{name}.downsample.1"), to))
        });
        Block { stride, convs: [a, b], norms: [norm_a, norm_b], gate, shortcut }
    }

    fn forward(&self, tape: &mut Tape, x: Value, statistics: Statistics) -> Value {
        let stride = (self.stride, self.stride);
        let weights = self.convs.map(|conv| tape.parameter(conv));
        let y = tape.conv2d(x, weights[0], None, stride, (1, 1));
        let y = tape.activation(y, Function::Relu);
        let y = self.norms[0].forward(tape, y, statistics);
        let y = tape.conv2d(y, weights[1], None, (1, 1), (1, 1));
        let y = self.norms[1].forward(tape, y, statistics);
        let y = self.gated(tape, y);
        let x = match self.shortcut {
            Some((conv, norm)) => {
                let weight = tape.parameter(conv);
                let x = tape.conv2d(x, weight, None, stride, (0, 0));
                norm.forward(tape, x, statistics)
            }
            None => x,
        };
        let sum = tape.add(y, x);
        tape.activation(sum, Function::Relu)
    }

    /// Squeeze-and-excitation: scales each channel by a gate computed from its mean over the image.
    fn gated(&self, tape: &mut Tape, x: Value) -> Value {
        let shape = tape.shape(x);
        let [batch, c] = [shape.dim(0), shape.last()];
        let positions = tape.reshape(x, [batch, shape.dim(1) * shape.dim(2), c]);
        let mean = tape.time_mean(positions, None);
        let inside = linear(tape, mean, self.gate[0]);
        let inside = tape.activation(inside, Function::Relu);
        let factor = linear(tape, inside, self.gate[1]);
        let factor = tape.activation(factor, Function::Sigmoid);
        let gated = tape.multiply_per_item(positions, factor);
        tape.reshape(gated, shape)
    }
}

fn linear(tape: &mut Tape, x: Value, of: Affine) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.parameter(of.bias));
    tape.linear(x, weight, Some(bias))
}

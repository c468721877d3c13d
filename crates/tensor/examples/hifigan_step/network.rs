//! The HiFi-GAN generator of XTTS, as in the benchmark's peer: latents and a speaker vector in, a waveform out.

use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};
use myxtts_tensor::{
    Backward, GroupId, Init, Layout, LayoutBuilder, ParameterId, Precision, Role, Tape, Value,
};
use std::sync::Arc;

/// Channels of the latents.
const LATENT: usize = 1024;
/// Channels of the speaker vector.
const SPEAKER: usize = 512;
/// Channels of the input convolution and after each upsampling stage.
const CHANNELS: [usize; 5] = [512, 256, 128, 64, 32];
/// Stride and taps of each upsampling stage.
const UPSAMPLING: [(usize, usize); 4] = [(8, 16), (8, 16), (2, 4), (2, 4)];
/// Taps of the residual blocks.
const KERNELS: [usize; 3] = [3, 7, 11];
/// Dilations in each residual block.
const DILATIONS: [usize; 3] = [1, 3, 5];
/// Slope of the leaky ReLUs except the last.
const SLOPE: f32 = 0.1;

/// Slope of the activation before the last convolution.
const LAST_SLOPE: f32 = 0.01;

#[derive(Clone, Copy)]
struct Convolution {
    weight: ParameterId,
    bias: ParameterId,
}

struct Block {
    taps: usize,
    /// A dilated and an undilated convolution, three times.
    pairs: Vec<[Convolution; 2]>,
}

struct Stage {
    stride: usize,
    taps: usize,
    conv: Convolution,
    speaker: Convolution,
    blocks: Vec<Block>,
}

/// Parameters of the network.
pub struct Generator {
    pub layout: Arc<Layout>,
    first: Convolution,
    speaker: Convolution,
    stages: Vec<Stage>,
    last: ParameterId,
}

/// Inputs and output of a program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramIo {
    pub latents: Value,
    pub speaker: Value,
    pub wave: Value,
}

/// Time steps of the generator's input for the given number of latents: four per latent, resampled from 22.05 to
/// 24 kHz.
pub fn input_steps(frames: usize) -> usize {
    frames * 4 * 24_000 / 22_050
}

impl Generator {
    pub fn new() -> Generator {
        let mut builder = LayoutBuilder::new();
        let group = builder.group("weights", 0.0, 1.0);
        // PyTorch's default initialisation: uniform, scaled by the fan-in.
        fn add(
            b: &mut LayoutBuilder,
            name: &str,
            shape: &[usize],
            fan: usize,
            group: GroupId,
        ) -> ParameterId {
            b.add(name, shape, Role::Trained(group), Init::Uniform(1.0 / (fan as f32).sqrt()))
        }
        let conv = |b: &mut LayoutBuilder, name: &str, shape: [usize; 3], out: usize| {
            let fan = shape[1] * shape[2];
            Convolution {
                weight: add(b, &format!("{name}.weight"), &shape, fan, group),
                bias: add(b, &format!("{name}.bias"), &[out], fan, group),
            }
        };
        let linear = |b: &mut LayoutBuilder, name: &str, out: usize| Convolution {
            weight: add(b, &format!("{name}.weight"), &[out, SPEAKER], SPEAKER, group),
            bias: add(b, &format!("{name}.bias"), &[out], SPEAKER, group),
        };
        let b = &mut builder;
        let first = conv(b, "first", [CHANNELS[0], 7, LATENT], CHANNELS[0]);
        let speaker = linear(b, "speaker", CHANNELS[0]);
        let stages = UPSAMPLING.iter().enumerate().map(|(i, &(stride, taps))| {
            let (from, c) = (CHANNELS[i], CHANNELS[i + 1]);
            let upsampling = conv(b, &format!("grow.{i}"), [from, taps, c], c);
            let speaker = linear(b, &format!("grow.{i}.speaker"), c);
            let blocks = KERNELS.iter().map(|&taps| {
                let mut one = |j: usize, which: &str| {
                    conv(b, &format!("block.{i}.{taps}.{j}.{which}"), [c, taps, c], c)
                };
                Block { taps, pairs: (0..DILATIONS.len()).map(|j| [one(j, "a"), one(j, "b")]).collect() }
            });
            let blocks = blocks.collect();
            Stage { stride, taps, conv: upsampling, speaker, blocks }
        });
        let stages = stages.collect();
        let c = CHANNELS[CHANNELS.len() - 1];
        let last = add(b, "last.weight", &[1, 7, c], 7 * c, group);
        Generator { layout: Arc::new(builder.finish()), first, speaker, stages, last }
    }

    /// The generator on a new tape; with gradients of the output's mean square if requested.
    pub fn tape(
        &self,
        precision: Precision,
        batch: usize,
        frames: usize,
        gradients: bool,
    ) -> (Tape, ProgramIo) {
        let mut tape = Tape::new(Arc::clone(&self.layout), precision);
        let dtype = tape.dtype();
        let latents = tape.input([batch, input_steps(frames), LATENT], dtype);
        let speaker = tape.input([batch, SPEAKER], dtype);
        let wave = self.wave(&mut tape, latents, speaker);
        tape.keep(wave);
        if gradients {
            let loss = tape.mse_to_constant(wave, 0.0);
            tape.backward(loss, Backward::default());
            tape.report_loss(loss);
        }
        (tape, ProgramIo { latents, speaker, wave })
    }

    fn wave(&self, tape: &mut Tape, latents: Value, speaker: Value) -> Value {
        let fused = Fused { per_item: Some(linear(tape, speaker, self.speaker)), ..Fused::default() };
        let mut x = conv(tape, latents, self.first, fused, Conv1d::same(7, 1));
        // The mean over blocks is computed as a sum; its factor is applied by the next consumer.
        let mut scale = 1.0;
        for (i, stage) in self.stages.iter().enumerate() {
            x = tape.scope(&format!("stage.{i}"), |tape| stage.upsample(tape, x, speaker, scale));
            scale = 1.0 / KERNELS.len() as f32;
        }
        let weight = tape.parameter(self.last);
        let fused = Fused { input_slope: Some(LAST_SLOPE), input_scale: scale, ..Fused::default() };
        let wave = tape.conv1d_fused(x, weight, fused, Conv1d::same(7, 1));
        tape.activation(wave, Function::Tanh)
    }
}

impl Stage {
    /// Upsamples to a longer signal with fewer channels, and sums the outputs of the residual blocks.
    fn upsample(&self, tape: &mut Tape, x: Value, speaker: Value, scale: f32) -> Value {
        let fused = Fused {
            bias: Some(tape.master(self.conv.bias)),
            per_item: Some(linear(tape, speaker, self.speaker)),
            input_slope: Some(SLOPE),
            input_scale: scale,
            ..Fused::default()
        };
        let weight = tape.parameter(self.conv.weight);
        let padding = (self.taps - self.stride) / 2;
        let x = tape.conv_transpose1d_fused(x, weight, fused, self.stride, padding);
        let mut sum = None;
        for block in &self.blocks {
            sum = Some(block.add(tape, x, sum));
        }
        sum.unwrap_or(x)
    }
}

impl Block {
    /// Adds the block's output for `x` to `sum`.
    fn add(&self, tape: &mut Tape, mut x: Value, sum: Option<Value>) -> Value {
        for (i, (pair, dilation)) in self.pairs.iter().zip(DILATIONS).enumerate() {
            let open = Fused { input_slope: Some(SLOPE), ..Fused::default() };
            let inner = conv(tape, x, pair[0], open, Conv1d::same(self.taps, dilation));
            let plus = sum.filter(|_| i + 1 == self.pairs.len());
            let close = Fused { input_slope: Some(SLOPE), residual: Some(x), plus, ..Fused::default() };
            x = conv(tape, inner, pair[1], close, Conv1d::same(self.taps, 1));
        }
        x
    }
}

fn conv(tape: &mut Tape, x: Value, of: Convolution, fused: Fused, geometry: Conv1d) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.master(of.bias));
    tape.conv1d_fused(x, weight, Fused { bias: Some(bias), ..fused }, geometry)
}

fn linear(tape: &mut Tape, x: Value, of: Convolution) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.parameter(of.bias));
    tape.linear(x, weight, Some(bias))
}

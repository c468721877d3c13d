//! The HiFi-GAN decoder: GPT states and a speaker embedding to a waveform at 24 kHz.
//!
//! | value | shape | unit |
//! |---|---|---|
//! | latents | `[batch, codes, latent]` | one state per 1024 samples at 22.05 kHz |
//! | z | `[batch, frames, latent]` | one per 256 samples at 24 kHz |
//! | speaker | `[batch, speaker]` | |
//! | wave | `[batch, 256 * frames, 1]` | -1 to 1 |

use crate::declare::{Affine, ConvSizes, Declare};
use crate::shapes::{ShapeError, ShapeOf, dims, unfit};
use crate::weight_norm::{WeightNormConv, fold};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};
use myxtts_tensor::{Engine, Error, Init, ParameterId, Tape, Value};

/// Prefix of its parameters in a release.
pub const PREFIX: &str = "hifigan_decoder.waveform_decoder.";

/// Sampling rate of the audio that codes are made from.
pub const CODE_RATE: usize = 22_050;
/// Samples of that audio per code: four mel frames of 256.
pub const CODE_SAMPLES: usize = 1024;
/// Codes per second of speech.
pub const CODES_PER_SECOND: f64 = CODE_RATE as f64 / CODE_SAMPLES as f64;

/// Slope of the leaky ReLUs except the last.
const SLOPE: f32 = 0.1;
/// Slope of the last leaky ReLU: the original gives none there, so PyTorch's default applies.
const LAST_SLOPE: f32 = 0.01;

/// Kernel size of the first and the last convolution.
const TAPS: usize = 7;

/// One upsampling layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upsampling {
    /// Upsampling factor.
    pub rate: usize,
    /// Kernel size of the transposed convolution; exceeds the rate by an even number.
    pub taps: usize,
}

/// One of the residual blocks after every upsampling layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    /// Kernel size of all its convolutions.
    pub taps: usize,
    /// Dilation of the first convolution of each pair.
    pub dilations: Vec<usize>,
}

/// Sizes of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderSizes {
    /// Channels of the GPT's states.
    pub latent: usize,
    /// Channels of the speaker embedding.
    pub speaker: usize,
    /// Channels after the first convolution; each upsampling layer halves them.
    pub channels: usize,
    /// The upsampling layers in order.
    pub upsampling: Vec<Upsampling>,
    /// The residual blocks after each upsampling layer; their outputs are averaged.
    pub residuals: Vec<Residual>,
    /// Sampling rate of the audio that the codes represent.
    pub code_rate: usize,
    /// Sampling rate of the waveform.
    pub wave_rate: usize,
    /// Samples per code, at `code_rate`.
    pub code_samples: usize,
}

impl DecoderSizes {
    /// Sizes of XTTS-v2.
    pub fn v2() -> DecoderSizes {
        DecoderSizes {
            latent: 1024,
            speaker: 512,
            channels: 512,
            upsampling: [(8, 16), (8, 16), (2, 4), (2, 4)]
                .map(|(rate, taps)| Upsampling { rate, taps })
                .to_vec(),
            residuals: [3, 7, 11].map(|taps| Residual { taps, dilations: vec![1, 3, 5] }).to_vec(),
            code_rate: CODE_RATE,
            wave_rate: 24_000,
            code_samples: CODE_SAMPLES,
        }
    }

    /// Infers the sizes from the tensor shapes of a file. Upsampling, residual blocks and rates are those of v2: shapes
    /// do not reveal a dilation, and no release configures them.
    pub fn of_shapes(of: ShapeOf<'_>) -> Result<DecoderSizes, ShapeError> {
        let first = format!("{PREFIX}conv_pre.weight");
        let [channels, latent, taps] = dims(of, &first)?;
        let [_, speaker, _] = dims::<3>(of, &format!("{PREFIX}cond_layer.weight"))?;
        let sizes = DecoderSizes { channels, latent, speaker, ..DecoderSizes::v2() };
        if channels >> sizes.upsampling.len() == 0 {
            return Err(unfit(
                &first,
                &[channels, latent, taps],
                "the channels must survive being halved four times",
            ));
        }
        Ok(sizes)
    }

    /// Samples per frame of `z`.
    pub fn hop(&self) -> usize {
        self.upsampling.iter().map(|layer| layer.rate).product()
    }

    /// Number of frames of `z` for a number of latents.
    pub fn frames_of(&self, latents: usize) -> usize {
        // Rounded down twice, as by the two interpolations.
        let frames = (latents as f64 * self.frames_per_latent()).floor();
        (frames * self.resampling()).floor() as usize
    }

    /// Number of samples for a number of latents.
    pub fn samples_of(&self, latents: usize) -> usize {
        self.frames_of(latents) * self.hop()
    }

    /// Factor of the first interpolation: frames per latent at the rate of the codes.
    pub fn frames_per_latent(&self) -> f64 {
        self.code_samples as f64 / self.hop() as f64
    }

    /// Factor of the second interpolation: from the rate of the codes to that of the waveform. Skipped if it is 1.
    pub fn resampling(&self) -> f64 {
        self.wave_rate as f64 / self.code_rate as f64
    }

    /// Receptive field (before, after): how many frames of `z` before and after a frame affect its samples. A window of
    /// frames has the same samples as the whole signal, except for this many frames at its ends.
    pub fn receptive_field(&self) -> (usize, usize) {
        // The samples of frame 0, traced back to the inputs they depend on.
        let wider = |(first, last): (i64, i64), by: usize| (first - by as i64, last + by as i64);
        let mut reached = wider((0, self.hop() as i64 - 1), TAPS / 2);
        for layer in self.upsampling.iter().rev() {
            let blocks = self.residuals.iter().map(|residual| {
                let half = (residual.taps - 1) / 2;
                residual.dilations.iter().map(|dilation| half * dilation + half).sum::<usize>()
            });
            let (first, last) = wider(reached, blocks.max().unwrap_or(0));
            // Time t contributes to the outputs from rate * t - padding on.
            let (rate, taps) = (layer.rate as i64, layer.taps as i64);
            let padding = (taps - rate) / 2;
            reached = ((first + padding - taps + rate).div_euclid(rate), (last + padding).div_euclid(rate));
        }
        let (first, last) = wider(reached, TAPS / 2);
        (first.unsigned_abs() as usize, last.unsigned_abs() as usize)
    }

    fn channels_after(&self, layers: usize) -> usize {
        self.channels >> layers
    }
}

struct Block {
    taps: usize,
    /// A dilated convolution, an undilated one, and the dilation.
    pairs: Vec<([WeightNormConv; 2], usize)>,
}

struct Stage {
    layer: Upsampling,
    conv: WeightNormConv,
    speaker: Affine,
    blocks: Vec<Block>,
}

/// The parameters of a decoder.
pub struct Decoder {
    sizes: DecoderSizes,
    first: Affine,
    speaker: Affine,
    stages: Vec<Stage>,
    last: ParameterId,
}

/// A waveform and intermediate results.
#[derive(Clone, Debug)]
pub struct DecoderOutput {
    /// After the first convolution, with the speaker added.
    pub first: Value,
    /// After each upsampling layer, with the speaker added.
    pub layers: Vec<Value>,
    /// The waveform.
    pub wave: Value,
}

/// PyTorch's initialisation of a convolution.
fn uniform(fan: usize) -> Init {
    Init::Uniform(1.0 / (fan as f32).sqrt())
}

impl Decoder {
    /// Declares the parameters under their released names.
    pub fn declare(declare: &mut Declare, sizes: &DecoderSizes) -> Decoder {
        let (latent, speaker, c) = (sizes.latent, sizes.speaker, sizes.channels);
        let first_sizes = ConvSizes { out: c, taps: TAPS, from: latent };
        let first = declare.conv1d(&format!("{PREFIX}conv_pre"), first_sizes, uniform(TAPS * latent));
        let mut stages = Vec::new();
        for (i, &layer) in sizes.upsampling.iter().enumerate() {
            let Upsampling { rate, taps } = layer;
            assert!(taps >= rate && (taps - rate) % 2 == 0, "{taps} taps cannot upsample by exactly {rate}");
            let (from, c) = (sizes.channels_after(i), sizes.channels_after(i + 1));
            let conv_sizes = ConvSizes { out: c, taps, from };
            let conv = WeightNormConv::conv_transpose1d(declare, &format!("{PREFIX}ups.{i}"), conv_sizes);
            let speaker = declare.linear_of_conv(&format!("{PREFIX}conds.{i}"), c, speaker, uniform(speaker));
            let mut blocks = Vec::new();
            for (j, residual) in sizes.residuals.iter().enumerate() {
                let name = format!("{PREFIX}resblocks.{}", i * sizes.residuals.len() + j);
                blocks.push(Block::declare(declare, &name, c, residual));
            }
            stages.push(Stage { layer, conv, speaker, blocks });
        }
        let c = sizes.channels_after(sizes.upsampling.len());
        let name = format!("{PREFIX}conv_post.weight");
        let last = declare.weight(&name, &[1, c, TAPS], &[0, 2, 1], &[1, TAPS, c], uniform(TAPS * c));
        let speaker =
            declare.linear_of_conv(&format!("{PREFIX}cond_layer"), sizes.channels, speaker, uniform(speaker));
        Decoder { sizes: sizes.clone(), first, speaker, stages, last }
    }

    /// Computes the plain weights once from the engine's parameters, for a decoder that is no longer trained.
    /// Afterwards the engine's weights cannot be exported.
    pub fn fold(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let all = self.stages.iter_mut().flat_map(|stage| {
            let pairs = stage.blocks.iter_mut().flat_map(|block| &mut block.pairs);
            std::iter::once(&mut stage.conv).chain(pairs.flat_map(|(pair, _)| pair))
        });
        fold(engine, all)
    }

    /// The sizes it was declared with.
    pub fn sizes(&self) -> &DecoderSizes {
        &self.sizes
    }

    /// Interpolates latents `[batch, codes, latent]` to one per frame of the waveform: first to the hops in a code,
    /// then from the rate of the codes to that of the waveform.
    pub fn upsample_latents(&self, tape: &mut Tape, latents: Value) -> Value {
        let frames = tape.interpolate_linear(latents, self.sizes.frames_per_latent());
        if self.sizes.wave_rate == self.sizes.code_rate {
            return frames;
        }
        tape.interpolate_linear(frames, self.sizes.resampling())
    }

    /// Computes the waveform `[batch, samples, 1]` from z `[batch, frames, latent]` and speakers `[batch, speaker]`.
    pub fn wave(&self, tape: &mut Tape, z: Value, speaker: Value) -> Value {
        self.forward(tape, z, speaker).wave
    }

    /// Like `wave`, with intermediate results.
    pub fn forward(&self, tape: &mut Tape, z: Value, speaker: Value) -> DecoderOutput {
        let per_item = Some(linear(tape, speaker, self.speaker));
        let weight = tape.parameter(self.first.weight);
        let fused = Fused { bias: Some(tape.master(self.first.bias)), per_item, ..Fused::default() };
        let first = tape.conv1d_fused(z, weight, fused, Conv1d::same(TAPS, 1));
        let (mut x, mut layers) = (first, Vec::new());
        // The mean over blocks is computed as their sum; the factor is applied by the next consumer.
        let mut scale = 1.0;
        for (i, stage) in self.stages.iter().enumerate() {
            tape.scope(&format!("stage.{i}"), |tape| {
                let longer = stage.upsample(tape, x, speaker, scale);
                layers.push(longer);
                x = stage.blocks.iter().fold(None, |sum, b| Some(b.add(tape, longer, sum))).unwrap_or(longer);
            });
            scale = 1.0 / stage.blocks.len().max(1) as f32;
        }
        let weight = tape.parameter(self.last);
        let fused = Fused { input_slope: Some(LAST_SLOPE), input_scale: scale, ..Fused::default() };
        let wave = tape.conv1d_fused(x, weight, fused, Conv1d::same(TAPS, 1));
        DecoderOutput { first, layers, wave: tape.activation(wave, Function::Tanh) }
    }
}

impl Stage {
    /// Upsamples the signal and halves the channels.
    fn upsample(&self, tape: &mut Tape, x: Value, speaker: Value, scale: f32) -> Value {
        let weights = self.conv.weights(tape);
        let fused = Fused {
            bias: Some(weights.bias),
            per_item: Some(linear(tape, speaker, self.speaker)),
            input_slope: Some(SLOPE),
            input_scale: scale,
            ..Fused::default()
        };
        let Upsampling { rate, taps } = self.layer;
        tape.conv_transpose1d_fused(x, weights.weight, fused, rate, (taps - rate) / 2)
    }
}

impl Block {
    fn declare(declare: &mut Declare, name: &str, c: usize, residual: &Residual) -> Block {
        assert!(!residual.dilations.is_empty(), "a residual block has at least one pair of convolutions");
        let taps = residual.taps;
        let mut list = |list: &str| -> Vec<WeightNormConv> {
            let all = 0..residual.dilations.len();
            let sizes = ConvSizes { out: c, taps, from: c };
            all.map(|i| WeightNormConv::conv1d(declare, &format!("{name}.{list}.{i}"), sizes)).collect()
        };
        let (dilated, plain) = (list("convs1"), list("convs2"));
        let pairs = dilated.into_iter().zip(plain).map(|(a, b)| [a, b]);
        Block { taps, pairs: pairs.zip(residual.dilations.iter().copied()).collect() }
    }

    /// Adds the block's output for `x` to `sum`.
    fn add(&self, tape: &mut Tape, mut x: Value, sum: Option<Value>) -> Value {
        for (i, (pair, dilation)) in self.pairs.iter().enumerate() {
            let [a, b] = pair.map(|conv| conv.weights(tape));
            let open = Fused { bias: Some(a.bias), input_slope: Some(SLOPE), ..Fused::default() };
            let inner = tape.conv1d_fused(x, a.weight, open, Conv1d::same(self.taps, *dilation));
            let plus = sum.filter(|_| i + 1 == self.pairs.len());
            let close = Fused {
                bias: Some(b.bias),
                input_slope: Some(SLOPE),
                residual: Some(x),
                plus,
                ..Fused::default()
            };
            x = tape.conv1d_fused(inner, b.weight, close, Conv1d::same(self.taps, 1));
        }
        x
    }
}

fn linear(tape: &mut Tape, x: Value, of: Affine) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.parameter(of.bias));
    tape.linear(x, weight, Some(bias))
}

//! The HiFi-GAN decoder: GPT states and a speaker's vector in, a waveform at 24 kHz out.
//!
//! | value | shape | unit |
//! |---|---|---|
//! | latents | `[batch, codes, latent]` | one state for 1024 samples at 22.05 kHz |
//! | z | `[batch, frames, latent]` | one for 256 samples at 24 kHz |
//! | speaker | `[batch, speaker]` | |
//! | wave | `[batch, 256 * frames, 1]` | between -1 and 1 |

use crate::declare::{Affine, Declare};
use crate::normed::{Normed, fold};
use crate::shapes::{ShapeError, ShapeOf, dims, unfit};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};
use myxtts_tensor::{Engine, Error, Init, ParameterId, Tape, Value};

/// Where a release has it.
pub const PREFIX: &str = "hifigan_decoder.waveform_decoder.";

/// Slope of the activations, and of the one before the last convolution, where the original forgot to give it.
const SLOPE: f32 = 0.1;
const LAST_SLOPE: f32 = 0.01;

/// Taps of the first and the last convolution.
const TAPS: usize = 7;

/// One growth of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// How many times longer the signal becomes.
    pub rate: usize,
    /// Taps of the transposed convolution; they exceed the rate by an even number.
    pub taps: usize,
}

/// One of the residual blocks that follow every growth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    /// Taps of all its convolutions.
    pub taps: usize,
    /// Of the first convolution of each pair.
    pub dilations: Vec<usize>,
}

/// How large a decoder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderSizes {
    /// Channels of the GPT's states.
    pub latent: usize,
    /// Channels of the speaker's vector.
    pub speaker: usize,
    /// Channels after the first convolution; each growth halves them.
    pub channels: usize,
    /// The growths in order.
    pub growths: Vec<Growth>,
    /// The blocks after each growth; their mean is taken.
    pub residuals: Vec<Residual>,
    /// Samples per second of the sound the codes are of.
    pub code_rate: usize,
    /// Samples per second of the waveform.
    pub wave_rate: usize,
    /// Samples one code stands for, at `code_rate`.
    pub code_samples: usize,
}

impl DecoderSizes {
    /// XTTS v2.
    pub fn v2() -> DecoderSizes {
        DecoderSizes {
            latent: 1024,
            speaker: 512,
            channels: 512,
            growths: [(8, 16), (8, 16), (2, 4), (2, 4)].map(|(rate, taps)| Growth { rate, taps }).to_vec(),
            residuals: [3, 7, 11].map(|taps| Residual { taps, dilations: vec![1, 3, 5] }).to_vec(),
            code_rate: 22_050,
            wave_rate: 24_000,
            code_samples: 1024,
        }
    }

    /// What the shapes of a file say. Growths, residual blocks and rates are v2's: no shape tells a dilation, and no
    /// configuration of a release changes them.
    pub fn of_shapes(of: ShapeOf<'_>) -> Result<DecoderSizes, ShapeError> {
        let first = format!("{PREFIX}conv_pre.weight");
        let [channels, latent, taps] = dims(of, &first)?;
        let [_, speaker, _] = dims::<3>(of, &format!("{PREFIX}cond_layer.weight"))?;
        let sizes = DecoderSizes { channels, latent, speaker, ..DecoderSizes::v2() };
        if channels >> sizes.growths.len() == 0 {
            return Err(unfit(&first, &[channels, latent, taps], "its channels are halved four times"));
        }
        Ok(sizes)
    }

    /// Samples one frame of `z` becomes.
    pub fn hop(&self) -> usize {
        self.growths.iter().map(|g| g.rate).product()
    }

    /// Frames of `z` so many latents are stretched to.
    pub fn frames_of(&self, latents: usize) -> usize {
        // Two roundings down, as the two interpolations have them.
        let finer = (latents as f64 * self.finer()).floor();
        (finer * self.resampling()).floor() as usize
    }

    /// Samples so many latents become.
    pub fn samples_of(&self, latents: usize) -> usize {
        self.frames_of(latents) * self.hop()
    }

    /// Frames for each latent at the rate of the codes: the factor of the first interpolation.
    pub fn finer(&self) -> f64 {
        self.code_samples as f64 / self.hop() as f64
    }

    /// From the rate of the codes to that of the waveform: the factor of the second interpolation, which is left out where it
    /// is 1.
    pub fn resampling(&self) -> f64 {
        self.wave_rate as f64 / self.code_rate as f64
    }

    /// The receptive field: how many frames of `z` before a frame and after it reach the samples of that frame. Between the
    /// ends of a signal a window of frames gives the same samples as the whole, but for so many frames at its own ends.
    pub fn reach(&self) -> (usize, usize) {
        // The samples of frame 0, followed back to what they are computed of.
        let wider = |(first, last): (i64, i64), by: usize| (first - by as i64, last + by as i64);
        let mut reached = wider((0, self.hop() as i64 - 1), TAPS / 2);
        for growth in self.growths.iter().rev() {
            let blocks = self.residuals.iter().map(|residual| {
                let half = (residual.taps - 1) / 2;
                residual.dilations.iter().map(|dilation| half * dilation + half).sum::<usize>()
            });
            let (first, last) = wider(reached, blocks.max().unwrap_or(0));
            // Time t goes to the taps from rate * t - padding on.
            let (rate, taps) = (growth.rate as i64, growth.taps as i64);
            let padding = (taps - rate) / 2;
            reached = ((first + padding - taps + rate).div_euclid(rate), (last + padding).div_euclid(rate));
        }
        let (first, last) = wider(reached, TAPS / 2);
        (first.unsigned_abs() as usize, last.unsigned_abs() as usize)
    }

    fn channels_after(&self, growths: usize) -> usize {
        self.channels >> growths
    }
}

struct Block {
    taps: usize,
    /// A dilated convolution and one that is not, and the dilation.
    pairs: Vec<([Normed; 2], usize)>,
}

struct Stage {
    growth: Growth,
    grow: Normed,
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

/// A waveform and what was on the way to it.
#[derive(Clone, Debug)]
pub struct Made {
    /// After the first convolution and the speaker.
    pub first: Value,
    /// After each growth and the speaker.
    pub grown: Vec<Value>,
    /// The waveform.
    pub wave: Value,
}

/// PyTorch's start of a convolution.
fn uniform(fan: usize) -> Init {
    Init::Uniform(1.0 / (fan as f32).sqrt())
}

impl Decoder {
    /// Declares it under the names of a release.
    pub fn declare(declare: &mut Declare, sizes: &DecoderSizes) -> Decoder {
        let (latent, speaker, c) = (sizes.latent, sizes.speaker, sizes.channels);
        let first = declare.conv1d(&format!("{PREFIX}conv_pre"), (c, TAPS, latent), uniform(TAPS * latent));
        let mut stages = Vec::new();
        for (i, &growth) in sizes.growths.iter().enumerate() {
            let Growth { rate, taps } = growth;
            assert!(
                taps >= rate && (taps - rate) % 2 == 0,
                "{taps} taps do not grow a signal evenly by {rate}"
            );
            let (from, c) = (sizes.channels_after(i), sizes.channels_after(i + 1));
            let grow = Normed::conv_transpose1d(declare, &format!("{PREFIX}ups.{i}"), (from, taps, c));
            let speaker = declare.linear_of_conv(&format!("{PREFIX}conds.{i}"), c, speaker, uniform(speaker));
            let mut blocks = Vec::new();
            for (j, residual) in sizes.residuals.iter().enumerate() {
                let name = format!("{PREFIX}resblocks.{}", i * sizes.residuals.len() + j);
                blocks.push(Block::declare(declare, &name, c, residual));
            }
            stages.push(Stage { growth, grow, speaker, blocks });
        }
        let c = sizes.channels_after(sizes.growths.len());
        let name = format!("{PREFIX}conv_post.weight");
        let last = declare.weight(&name, &[1, c, TAPS], &[0, 2, 1], &[1, TAPS, c], uniform(TAPS * c));
        let speaker =
            declare.linear_of_conv(&format!("{PREFIX}cond_layer"), sizes.channels, speaker, uniform(speaker));
        Decoder { sizes: sizes.clone(), first, speaker, stages, last }
    }

    /// Computes its plain weights once, of what the engine holds, for a decoder that learns nothing any more. From then on the
    /// engine's weights are its own and no release's.
    pub fn fold(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let all = self.stages.iter_mut().flat_map(|stage| {
            let pairs = stage.blocks.iter_mut().flat_map(|block| &mut block.pairs);
            std::iter::once(&mut stage.grow).chain(pairs.flat_map(|(pair, _)| pair))
        });
        fold(engine, all)
    }

    /// How large it is.
    pub fn sizes(&self) -> &DecoderSizes {
        &self.sizes
    }

    /// Latents `[batch, codes, latent]` at one for each frame of the waveform: first as many as there are hops in a
    /// code, then from the rate of the codes to that of the waveform.
    pub fn stretch(&self, tape: &mut Tape, latents: Value) -> Value {
        let finer = tape.interpolate_linear(latents, self.sizes.finer());
        if self.sizes.wave_rate == self.sizes.code_rate {
            return finer;
        }
        tape.interpolate_linear(finer, self.sizes.resampling())
    }

    /// The waveform `[batch, samples, 1]` of z `[batch, frames, latent]` and speakers `[batch, speaker]`.
    pub fn wave(&self, tape: &mut Tape, z: Value, speaker: Value) -> Value {
        self.make(tape, z, speaker).wave
    }

    /// As `wave`, with what is on the way.
    pub fn make(&self, tape: &mut Tape, z: Value, speaker: Value) -> Made {
        let per_item = Some(linear(tape, speaker, self.speaker));
        let weight = tape.parameter(self.first.weight);
        let fused = Fused { bias: Some(tape.master(self.first.bias)), per_item, ..Fused::default() };
        let first = tape.conv1d_fused(z, weight, fused, Conv1d::same(TAPS, 1));
        let (mut x, mut grown) = (first, Vec::new());
        // The mean over blocks is their sum, and its factor is left to whoever reads it.
        let mut share = 1.0;
        for (i, stage) in self.stages.iter().enumerate() {
            tape.scope(&format!("stage.{i}"), |tape| {
                let longer = stage.grow(tape, x, speaker, share);
                grown.push(longer);
                x = stage.blocks.iter().fold(None, |sum, b| Some(b.add(tape, longer, sum))).unwrap_or(longer);
            });
            share = 1.0 / stage.blocks.len().max(1) as f32;
        }
        let weight = tape.parameter(self.last);
        let fused = Fused { input_slope: Some(LAST_SLOPE), input_scale: share, ..Fused::default() };
        let wave = tape.conv1d_fused(x, weight, fused, Conv1d::same(TAPS, 1));
        Made { first, grown, wave: tape.activation(wave, Function::Tanh) }
    }
}

impl Stage {
    /// A longer signal of fewer channels.
    fn grow(&self, tape: &mut Tape, x: Value, speaker: Value, share: f32) -> Value {
        let weights = self.grow.weights(tape);
        let fused = Fused {
            bias: Some(weights.bias),
            per_item: Some(linear(tape, speaker, self.speaker)),
            input_slope: Some(SLOPE),
            input_scale: share,
            ..Fused::default()
        };
        let Growth { rate, taps } = self.growth;
        tape.conv_transpose1d_fused(x, weights.weight, fused, rate, (taps - rate) / 2)
    }
}

impl Block {
    fn declare(declare: &mut Declare, name: &str, c: usize, residual: &Residual) -> Block {
        assert!(!residual.dilations.is_empty(), "a residual block has at least one pair of convolutions");
        let taps = residual.taps;
        let mut list = |list: &str| -> Vec<Normed> {
            let all = 0..residual.dilations.len();
            all.map(|i| Normed::conv1d(declare, &format!("{name}.{list}.{i}"), (c, taps, c))).collect()
        };
        let (dilated, plain) = (list("convs1"), list("convs2"));
        let pairs = dilated.into_iter().zip(plain).map(|(a, b)| [a, b]);
        Block { taps, pairs: pairs.zip(residual.dilations.iter().copied()).collect() }
    }

    /// `sum` and what the block makes of `x`.
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

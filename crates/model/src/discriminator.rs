//! HiFi-GAN's multi-period and multi-scale discriminators and their losses.
//!
//! One tape holds both sides. The discriminators are trained on real waveforms and on detached generated ones. The
//! decoder is trained through fixed weights (`DiscriminatorWeights::fixed`), so gradients reach the waveform but not
//! the discriminators. One backward pass over the sum of the losses gives each side its own gradient.

use crate::declare::{ConvSizes, Declare};
use crate::weight_norm::{WeightNormConv, Weights};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::Conv1d;
use myxtts_tensor::ops::pad::Padding;
use myxtts_tensor::{Tape, Value};

const SLOPE: f32 = 0.1;

/// One convolution of a discriminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Output channels.
    pub channels: usize,
    /// Kernel size; odd.
    pub taps: usize,
    /// Stride.
    pub stride: usize,
    /// Channel groups.
    pub groups: usize,
}

/// Sizes of the discriminators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscriminatorSizes {
    /// Periods of the multi-period discriminators.
    pub periods: Vec<usize>,
    /// Layers of a period discriminator before its output layer.
    pub period_layers: Vec<Layer>,
    /// Number of scale discriminators, each at half the rate of the previous one.
    pub scales: usize,
    /// Layers of a scale discriminator before its output layer.
    pub scale_layers: Vec<Layer>,
}

/// Kernel size of the output layer.
const LAST_TAPS: usize = 3;

impl DiscriminatorSizes {
    /// HiFi-GAN's sizes: 70.7 million parameters.
    pub fn hifigan() -> DiscriminatorSizes {
        DiscriminatorSizes::scaled(1.0)
    }

    /// HiFi-GAN's sizes with the channels scaled by `width`, 0 to 1, rounded to multiples of 16 and at least 16.
    pub fn scaled(width: f32) -> DiscriminatorSizes {
        let channels = |of: usize| (((of as f32 * width) as usize) / 16 * 16).max(16);
        let period = [(32, 3), (128, 3), (512, 3), (1024, 3), (1024, 1)];
        let scale = [
            (128, 15, 1, 1),
            (128, 41, 2, 4),
            (256, 41, 2, 16),
            (512, 41, 4, 16),
            (1024, 41, 4, 16),
            (1024, 41, 1, 16),
            (1024, 5, 1, 1),
        ];
        let period = period.map(|(c, stride)| Layer { channels: channels(c), taps: 5, stride, groups: 1 });
        // Groups with fewer channels than a tensor-core tile take many times longer, so they are not used.
        let grouped = |channels: usize, groups: usize| if channels < 16 * groups { 1 } else { groups };
        let scale = scale.map(|(c, taps, stride, groups)| {
            let channels = channels(c);
            Layer { channels, taps, stride, groups: grouped(channels, groups) }
        });
        DiscriminatorSizes {
            periods: vec![2, 3, 5, 7, 11],
            period_layers: period.to_vec(),
            scales: 3,
            scale_layers: scale.to_vec(),
        }
    }
}

/// How a discriminator views a waveform.
#[derive(Clone, Copy, Debug)]
enum View {
    Period(usize),
    /// Number of times the rate is halved.
    Scale(usize),
}

struct Discriminator {
    view: View,
    layers: Vec<(Layer, WeightNormConv)>,
}

/// The parameters of all discriminators.
pub struct Discriminators {
    discriminators: Vec<Discriminator>,
}

/// The output of one discriminator: `[batch * period, positions, channels]` for a period, `[batch, positions,
/// channels]` for a scale.
#[derive(Clone, Debug)]
pub struct DiscriminatorOutput {
    /// Outputs of all layers, including the last.
    pub features: Vec<Value>,
    /// Score at each position: 1 is real, 0 is generated.
    pub score: Value,
}

/// Weights of all discriminators, computed once per tape for any number of waveforms.
pub struct DiscriminatorWeights(Vec<Vec<Weights>>);

impl DiscriminatorWeights {
    /// Detaches the weights: gradients do not reach them.
    pub fn fixed(&self, tape: &mut Tape) -> DiscriminatorWeights {
        DiscriminatorWeights(self.0.iter().map(|all| all.iter().map(|w| w.fixed(tape)).collect()).collect())
    }
}

impl Discriminators {
    /// Declares all discriminators under names with this prefix.
    pub fn declare(declare: &mut Declare, sizes: &DiscriminatorSizes, prefix: &str) -> Discriminators {
        let mut discriminators = Vec::new();
        for (i, &period) in sizes.periods.iter().enumerate() {
            let name = format!("{prefix}mpd.discriminators.{i}");
            discriminators.push(Discriminator::declare(
                declare,
                &name,
                View::Period(period),
                &sizes.period_layers,
            ));
        }
        for i in 0..sizes.scales {
            let name = format!("{prefix}msd.discriminators.{i}");
            discriminators.push(Discriminator::declare(declare, &name, View::Scale(i), &sizes.scale_layers));
        }
        Discriminators { discriminators }
    }

    /// Computes their weights on a tape.
    pub fn weights(&self, tape: &mut Tape) -> DiscriminatorWeights {
        let of = |discriminator: &Discriminator, tape: &mut Tape| {
            discriminator.layers.iter().map(|(_, w)| w.weights(tape)).collect()
        };
        DiscriminatorWeights(
            self.discriminators.iter().map(|discriminator| of(discriminator, tape)).collect(),
        )
    }

    /// Applies every discriminator to waveforms `[batch, samples, 1]`.
    pub fn apply(
        &self,
        tape: &mut Tape,
        weights: &DiscriminatorWeights,
        wave: Value,
    ) -> Vec<DiscriminatorOutput> {
        let scales = self
            .discriminators
            .iter()
            .filter(|discriminator| matches!(discriminator.view, View::Scale(_)))
            .count();
        let mut halved = vec![wave];
        for _ in 1..scales {
            let next = half_rate(tape, halved[halved.len() - 1]);
            halved.push(next);
        }
        let mut all = Vec::new();
        for (i, (discriminator, weights)) in self.discriminators.iter().zip(&weights.0).enumerate() {
            let output = tape.scope(&format!("discriminator.{i}"), |tape| {
                let x = match discriminator.view {
                    View::Period(period) => fold(tape, wave, period),
                    View::Scale(scale) => halved[scale],
                };
                discriminator.of(tape, weights, x)
            });
            all.push(output);
        }
        all
    }
}

impl Discriminator {
    fn declare(declare: &mut Declare, name: &str, view: View, layers: &[Layer]) -> Discriminator {
        // HiFi-GAN stores a period discriminator as a 2-D convolution with a kernel one wide.
        let conv = match view {
            View::Period(_) => WeightNormConv::conv2d_tall,
            View::Scale(_) => WeightNormConv::conv1d,
        };
        let (mut from, mut all) = (1, Vec::new());
        for (i, &layer) in layers.iter().enumerate() {
            let Layer { channels, taps, groups, .. } = layer;
            let sizes = ConvSizes { out: channels, taps, from: from / groups };
            let weights = conv(declare, &format!("{name}.convs.{i}"), sizes);
            all.push((layer, weights));
            from = channels;
        }
        let last = Layer { channels: 1, taps: LAST_TAPS, stride: 1, groups: 1 };
        let sizes = ConvSizes { out: 1, taps: LAST_TAPS, from };
        all.push((last, conv(declare, &format!("{name}.conv_post"), sizes)));
        Discriminator { view, layers: all }
    }

    fn of(&self, tape: &mut Tape, weights: &[Weights], mut x: Value) -> DiscriminatorOutput {
        let mut features = Vec::new();
        for (i, ((layer, _), weights)) in self.layers.iter().zip(weights).enumerate() {
            let Layer { taps, stride, groups, .. } = *layer;
            let conv = Conv1d { stride, padding: (taps - 1) / 2, dilation: 1, groups };
            x = tape.conv1d(x, weights.weight, Some(weights.bias), conv);
            // Not fused into the next layer: features are compared after this activation, which scales negative values
            // by 0.1.
            if i + 1 < self.layers.len() {
                x = tape.activation(x, Function::LeakyRelu(SLOPE));
            }
            features.push(x);
        }
        DiscriminatorOutput { features, score: x }
    }
}

/// Reshapes a waveform `[batch, samples, 1]` to `[batch * period, samples / period, 1]`: the samples of each phase form
/// a sequence. Missing samples at the end are reflected.
fn fold(tape: &mut Tape, wave: Value, period: usize) -> Value {
    let [batch, samples] = [tape.shape(wave).dim(0), tape.shape(wave).dim(1)];
    let missing = samples.next_multiple_of(period) - samples;
    let wave = tape.pad_time(wave, 0, missing, Padding::Reflection);
    let rows = (samples + missing) / period;
    let picture = tape.reshape(wave, [batch, rows, period]);
    let phases = tape.transpose(picture);
    tape.reshape(phases, [batch * period, rows, 1])
}

/// Averages four samples with stride two, zero-padded: `[batch, samples, 1]` to `[batch, samples / 2 + 1, 1]`.
fn half_rate(tape: &mut Tape, wave: Value) -> Value {
    let [batch, samples] = [tape.shape(wave).dim(0), tape.shape(wave).dim(1)];
    let right = 2 - samples % 2;
    let wave = tape.pad_time(wave, 2, right, Padding::Zeros);
    let pairs = (samples + 2 + right) / 2;
    let wave = tape.reshape(wave, [batch, pairs, 2]);
    let (even, odd) = (tape.slice_channels(wave, 0..1), tape.slice_channels(wave, 1..2));
    let sums = tape.add(even, odd);
    let (before, after) = (tape.slice_time(sums, 0..pairs - 1), tape.slice_time(sums, 1..pairs));
    let four = tape.add(before, after);
    tape.scale(four, 0.25)
}

/// The loss of the discriminators: real waveforms should score 1, generated (detached) ones 0.
pub fn discriminator_loss(
    tape: &mut Tape,
    real: &[DiscriminatorOutput],
    generated: &[DiscriminatorOutput],
) -> Value {
    let mut parts = Vec::new();
    for (real, generated) in real.iter().zip(generated) {
        parts.push((tape.mse_to_constant(real.score, 1.0), 1.0));
        parts.push((tape.mse_to_constant(generated.score, 0.0), 1.0));
    }
    tape.weighted_sum(&parts)
}

/// The adversarial loss of the decoder: its waveforms should score 1.
pub fn generator_loss(tape: &mut Tape, generated: &[DiscriminatorOutput]) -> Value {
    let mut parts = Vec::new();
    for generated in generated {
        parts.push((tape.mse_to_constant(generated.score, 1.0), 1.0));
    }
    tape.weighted_sum(&parts)
}

/// Feature-matching loss: the mean distance between the features of real and generated waveforms, summed over all
/// layers and doubled, as in HiFi-GAN. No gradient flows to the real side.
pub fn feature_matching_loss(
    tape: &mut Tape,
    real: &[DiscriminatorOutput],
    generated: &[DiscriminatorOutput],
) -> Value {
    let mut parts = Vec::new();
    for (real, generated) in real.iter().zip(generated) {
        for (&real, &generated) in real.features.iter().zip(&generated.features) {
            let target = tape.detach(real);
            parts.push((tape.l1_loss(generated, target), 2.0));
        }
    }
    tape.weighted_sum(&parts)
}

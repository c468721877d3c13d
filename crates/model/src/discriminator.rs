//! The judges a decoder learns from: HiFi-GAN's discriminators by period and by scale, and the losses between them.
//!
//! They exist in training only and no release has them, so their names are HiFi-GAN's own (`mpd.`, `msd.`). All have
//! weight norm; the original gives one of the scales spectral norm instead, which needs an iteration kept between steps.
//!
//! One tape can hold both sides of the game. The judges learn from `judge(weights, real)` and `judge(weights, detached
//! fake)`; the decoder learns from `judge(weights.fixed(), fake)`, through which gradients reach the waveform and not the
//! judges. One backward pass of the sum of the two losses then gives each side its own gradient.

use crate::declare::Declare;
use crate::normed::{Normed, Weights};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::Conv1d;
use myxtts_tensor::ops::pad::Padding;
use myxtts_tensor::{Tape, Value};

const SLOPE: f32 = 0.1;

/// One convolution of a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Channels of the result.
    pub channels: usize,
    /// Taps, an odd number.
    pub taps: usize,
    /// Times from one result to the next.
    pub stride: usize,
    /// Parts the channels are cut into.
    pub groups: usize,
}

/// How large the judges are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscriminatorSizes {
    /// One judge for each: it hears every so-many-th sample together.
    pub periods: Vec<usize>,
    /// The layers of a judge by period, before the one that decides.
    pub period_layers: Vec<Layer>,
    /// Judges by scale; each hears half the rate of the one before.
    pub scales: usize,
    /// The layers of a judge by scale, before the one that decides.
    pub scale_layers: Vec<Layer>,
}

/// Taps of the layer that decides.
const LAST_TAPS: usize = 3;

impl DiscriminatorSizes {
    /// HiFi-GAN's, 70.7 million numbers.
    pub fn hifigan() -> DiscriminatorSizes {
        DiscriminatorSizes::scaled(1.0)
    }

    /// HiFi-GAN's with `width` times the channels (whole sixteens, and one sixteen at least), between 0 and 1.
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
        // A group of fewer channels than a tile of a tensor core has takes as long as many times as many; there is none.
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

/// What a judge listens to.
#[derive(Clone, Copy, Debug)]
enum Hearing {
    Period(usize),
    /// Halved so many times.
    Scale(usize),
}

struct Judge {
    hearing: Hearing,
    layers: Vec<(Layer, Normed)>,
}

/// The parameters of all judges.
pub struct Discriminators {
    judges: Vec<Judge>,
}

/// What one judge makes of a waveform: `[batch * period, places, channels]` by period, `[batch, places, channels]` by
/// scale.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// What each layer makes of it, the deciding one included.
    pub features: Vec<Value>,
    /// How real it is, place by place: 1 is real, 0 is made.
    pub score: Value,
}

/// The weights of all judges, computed once for a tape however many waveforms are judged on it.
pub struct JudgeWeights(Vec<Vec<Weights>>);

impl JudgeWeights {
    /// The same, not to be learned.
    pub fn fixed(&self, tape: &mut Tape) -> JudgeWeights {
        JudgeWeights(self.0.iter().map(|all| all.iter().map(|w| w.fixed(tape)).collect()).collect())
    }
}

impl Discriminators {
    /// Declares all judges under names that begin with `prefix`.
    pub fn declare(declare: &mut Declare, sizes: &DiscriminatorSizes, prefix: &str) -> Discriminators {
        let mut judges = Vec::new();
        for (i, &period) in sizes.periods.iter().enumerate() {
            let name = format!("{prefix}mpd.discriminators.{i}");
            judges.push(Judge::declare(declare, &name, Hearing::Period(period), &sizes.period_layers));
        }
        for i in 0..sizes.scales {
            let name = format!("{prefix}msd.discriminators.{i}");
            judges.push(Judge::declare(declare, &name, Hearing::Scale(i), &sizes.scale_layers));
        }
        Discriminators { judges }
    }

    /// What the judges judge with.
    pub fn weights(&self, tape: &mut Tape) -> JudgeWeights {
        let of = |judge: &Judge, tape: &mut Tape| judge.layers.iter().map(|(_, w)| w.weights(tape)).collect();
        JudgeWeights(self.judges.iter().map(|judge| of(judge, tape)).collect())
    }

    /// What each judge makes of waveforms `[batch, samples, 1]`.
    pub fn judge(&self, tape: &mut Tape, weights: &JudgeWeights, wave: Value) -> Vec<Judgement> {
        let scales = self.judges.iter().filter(|judge| matches!(judge.hearing, Hearing::Scale(_))).count();
        let mut halved = vec![wave];
        for _ in 1..scales {
            let next = half_rate(tape, halved[halved.len() - 1]);
            halved.push(next);
        }
        let mut all = Vec::new();
        for (i, (judge, weights)) in self.judges.iter().zip(&weights.0).enumerate() {
            let judgement = tape.scope(&format!("judge.{i}"), |tape| {
                let x = match judge.hearing {
                    Hearing::Period(period) => fold(tape, wave, period),
                    Hearing::Scale(scale) => halved[scale],
                };
                judge.of(tape, weights, x)
            });
            all.push(judgement);
        }
        all
    }
}

impl Judge {
    fn declare(declare: &mut Declare, name: &str, hearing: Hearing, layers: &[Layer]) -> Judge {
        // HiFi-GAN has a period as the width of a picture one tap wide.
        let conv = match hearing {
            Hearing::Period(_) => Normed::conv2d_tall,
            Hearing::Scale(_) => Normed::conv1d,
        };
        let (mut from, mut all) = (1, Vec::new());
        for (i, &layer) in layers.iter().enumerate() {
            let Layer { channels, taps, groups, .. } = layer;
            let weights = conv(declare, &format!("{name}.convs.{i}"), (channels, taps, from / groups));
            all.push((layer, weights));
            from = channels;
        }
        let last = Layer { channels: 1, taps: LAST_TAPS, stride: 1, groups: 1 };
        all.push((last, conv(declare, &format!("{name}.conv_post"), (1, LAST_TAPS, from))));
        Judge { hearing, layers: all }
    }

    fn of(&self, tape: &mut Tape, weights: &[Weights], mut x: Value) -> Judgement {
        let mut features = Vec::new();
        for (i, ((layer, _), weights)) in self.layers.iter().zip(weights).enumerate() {
            let Layer { taps, stride, groups, .. } = *layer;
            let conv = Conv1d { stride, padding: (taps - 1) / 2, dilation: 1, groups };
            x = tape.conv1d(x, weights.weight, Some(weights.bias), conv);
            // Not fused into the next layer: features are compared as they are after it, where what is below zero
            // counts for a tenth.
            if i + 1 < self.layers.len() {
                x = tape.activation(x, Function::LeakyRelu(SLOPE));
            }
            features.push(x);
        }
        Judgement { features, score: x }
    }
}

/// A waveform `[batch, samples, 1]` as `[batch * period, samples / period, 1]`: the samples of one phase are a sequence
/// of their own. Missing samples at the end are mirrored.
fn fold(tape: &mut Tape, wave: Value, period: usize) -> Value {
    let [batch, samples] = [tape.shape(wave).dim(0), tape.shape(wave).dim(1)];
    let missing = samples.next_multiple_of(period) - samples;
    let wave = tape.pad_time(wave, 0, missing, Padding::Reflection);
    let rows = (samples + missing) / period;
    let picture = tape.reshape(wave, [batch, rows, period]);
    let phases = tape.transpose(picture);
    tape.reshape(phases, [batch * period, rows, 1])
}

/// The mean of every four samples, two apart, with zeros beyond the ends: `[batch, samples, 1]` to
/// `[batch, samples / 2 + 1, 1]`.
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

/// What the judges have lost: real waveforms should score 1 and made ones 0. The made ones come from a detached waveform.
pub fn judges_loss(tape: &mut Tape, real: &[Judgement], made: &[Judgement]) -> Value {
    let mut parts = Vec::new();
    for (real, made) in real.iter().zip(made) {
        parts.push((tape.mse_to_constant(real.score, 1.0), 1.0));
        parts.push((tape.mse_to_constant(made.score, 0.0), 1.0));
    }
    tape.weighted_sum(&parts)
}

/// What the decoder has lost: its waveforms should score 1.
pub fn deception_loss(tape: &mut Tape, made: &[Judgement]) -> Value {
    let mut parts = Vec::new();
    for made in made {
        parts.push((tape.mse_to_constant(made.score, 1.0), 1.0));
    }
    tape.weighted_sum(&parts)
}

/// How far apart the features of real and made waveforms are: the sum over all layers of the mean distance, twice, as
/// HiFi-GAN counts it. The real ones are what is to be reached and take no gradient.
pub fn feature_loss(tape: &mut Tape, real: &[Judgement], made: &[Judgement]) -> Value {
    let mut parts = Vec::new();
    for (real, made) in real.iter().zip(made) {
        for (&real, &made) in real.features.iter().zip(&made.features) {
            let target = tape.detach(real);
            parts.push((tape.l1_loss(made, target), 2.0));
        }
    }
    tape.weighted_sum(&parts)
}

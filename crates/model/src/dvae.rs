//! The discrete variational autoencoder: mels to codes, and codes to mels.
//!
//! | value | shape | unit |
//! |---|---|---|
//! | mel | `[batch, frames, channels]` | log-mel divided by `mel_stats` |
//! | encoded | `[batch, codes, code_width]` | one row per 4 frames; the last may cover fewer |
//! | ids | `[batch, codes]` i32 | |
//!
//! The codebook is trained as a moving average, without gradients. A new codebook is all zeros and must be initialised
//! from the encoder's rows of the first batches ([`crate::codebook`]) before the first step.

use crate::affine::torch_linear;
use crate::declare::{Affine, ConvSizes, Declare, TRAINING_ONLY};
use crate::shapes::{ShapeError, ShapeOf, count, dims, unfit};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};
use myxtts_tensor::ops::cross_entropy::CrossEntropyResult;
use myxtts_tensor::ops::quantize::Codebook;
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// Decay of the codebook's moving averages, and the smoothing of cluster sizes.
const DECAY: f32 = 0.99;
const EPSILON: f32 = 1e-5;

/// Sizes of a DVAE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DvaeSizes {
    /// Mel channels.
    pub channels: usize,
    /// Channels after the first layer; each further layer doubles them.
    pub hidden: usize,
    /// Downsampling layers; there are as many upsampling layers.
    pub layers: usize,
    /// Downsampling factor of each layer.
    pub stride: usize,
    /// Kernel size of the layers; odd.
    pub taps: usize,
    /// Residual blocks in the encoder and in the decoder, each.
    pub blocks: usize,
    /// Number of codes.
    pub codes: usize,
    /// Channels of a code vector.
    pub code_width: usize,
}

impl DvaeSizes {
    /// Sizes of XTTS-v2.
    pub fn v2() -> DvaeSizes {
        DvaeSizes {
            channels: 80,
            hidden: 512,
            layers: 2,
            stride: 2,
            taps: 3,
            blocks: 3,
            codes: 1024,
            code_width: 512,
        }
    }

    /// Infers the sizes from the tensor shapes of a file, under `prefix`. Every layer halves the time, as in all
    /// releases.
    pub fn of_shapes(of: ShapeOf<'_>, prefix: &str) -> Result<DvaeSizes, ShapeError> {
        let first = format!("{prefix}encoder.0.0.weight");
        let [hidden, channels, taps] = dims(of, &first)?;
        if taps % 2 == 0 {
            return Err(unfit(&first, &[hidden, channels, taps], "the number of taps must be odd"));
        }
        let layers = count(of, |i| format!("{prefix}encoder.{i}.0.weight"));
        let blocks = count(of, |i| format!("{prefix}encoder.{}.net.0.weight", layers + i));
        let [code_width, codes] = dims(of, &format!("{prefix}codebook.embed"))?;
        Ok(DvaeSizes { channels, hidden, layers, taps, blocks, codes, code_width, ..DvaeSizes::v2() })
    }

    /// Mel frames per code.
    pub fn frames_per_code(&self) -> usize {
        self.stride.pow(self.layers as u32)
    }

    /// Number of codes for a number of frames.
    pub fn codes_of(&self, frames: usize) -> usize {
        (0..self.layers).fold(frames, |frames, _| frames.div_ceil(self.stride))
    }

    fn downsampling(&self) -> Conv1d {
        Conv1d { stride: self.stride, padding: (self.taps - 1) / 2, ..Conv1d::default() }
    }

    fn innermost(&self) -> usize {
        self.hidden << (self.layers - 1)
    }
}

/// Weights of the reconstruction losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DvaeLoss {
    /// Weight of the mean squared error.
    pub squared: f32,
    /// Weight of the mean absolute error, which the original does not use.
    pub absolute: f32,
    /// Weight of the commitment loss: the distance between encoder rows and their codes.
    pub commitment: f32,
}

impl Default for DvaeLoss {
    fn default() -> DvaeLoss {
        DvaeLoss { squared: 1.0, absolute: 0.0, commitment: 1.0 }
    }
}

/// Results of encoding and decoding a mel.
#[derive(Clone, Copy, Debug)]
pub struct Reconstructed {
    /// Encoder rows.
    pub encoded: Value,
    /// Code ids.
    pub ids: Value,
    /// Code vectors of these ids.
    pub rows: Value,
    /// Mel decoded from the codes.
    pub mel: Value,
    /// `[1]`: mean squared error.
    pub squared: Value,
    /// `[1]`: mean absolute error; `None` if its weight is 0.
    pub absolute: Option<Value>,
    /// `[1]`: mean squared distance between rows and their codes.
    pub commitment: Value,
    /// `[1]`: weighted sum of the losses.
    pub loss: Value,
}

struct Block {
    taps: usize,
    convs: [Affine; 3],
}

/// The parameters of a DVAE.
pub struct Dvae {
    sizes: DvaeSizes,
    down: Vec<Affine>,
    down_blocks: Vec<Block>,
    encoded: Affine,
    codebook: Codebook<ParameterId>,
    decoded: Affine,
    up_blocks: Vec<Block>,
    up: Vec<Affine>,
    last: Affine,
    token_head: Option<Affine>,
}

impl Dvae {
    /// Declares the parameters under their released names. A released file has no prefix; a trainer's checkpoint has
    /// `dvae.`.
    pub fn declare(declare: &mut Declare, sizes: &DvaeSizes, prefix: &str) -> Dvae {
        assert!(
            sizes.layers > 0 && sizes.taps % 2 == 1,
            "{sizes:?} must have layers and an odd number of taps"
        );
        let named = |name: &str| format!("{prefix}{name}");
        let (inner, taps) = (sizes.innermost(), sizes.taps);
        let mut from = sizes.channels;
        let mut down = Vec::new();
        for i in 0..sizes.layers {
            let out = sizes.hidden << i;
            down.push(declare_conv(
                declare,
                &named(&format!("encoder.{i}.0")),
                ConvSizes { out, taps, from },
            ));
            from = out;
        }
        let block = |declare: &mut Declare, side: &str, at: usize| {
            Block::declare(declare, &named(&format!("{side}.{at}.net")), inner, taps)
        };
        let down_blocks = (0..sizes.blocks).map(|i| block(declare, "encoder", sizes.layers + i)).collect();
        let name = named(&format!("encoder.{}", sizes.layers + sizes.blocks));
        let encoded = declare_conv(declare, &name, ConvSizes { out: sizes.code_width, taps: 1, from: inner });
        let from_code = ConvSizes { out: inner, taps: 1, from: sizes.code_width };
        let decoded = declare_conv(declare, &named("decoder.0"), from_code);
        let up_blocks = (0..sizes.blocks).map(|i| block(declare, "decoder", 1 + i)).collect();
        let mut at = 1 + sizes.blocks;
        let mut up = Vec::new();
        for i in 0..sizes.layers {
            let out = inner >> i;
            up.push(declare_conv(
                declare,
                &named(&format!("decoder.{at}.0.conv")),
                ConvSizes { out, taps, from },
            ));
            (from, at) = (out, at + 1);
        }
        let to_mel = ConvSizes { out: sizes.channels, taps: 1, from };
        let last = declare_conv(declare, &named(&format!("decoder.{at}")), to_mel);
        let (d, n) = (sizes.code_width, sizes.codes);
        let codebook = Codebook {
            embed: declare.state(&format!("{prefix}codebook.embed"), &[d, n], Init::Zeros),
            cluster_size: declare.state(&format!("{prefix}codebook.cluster_size"), &[n], Init::Constant(1.0)),
            embed_avg: declare.state(&format!("{prefix}codebook.embed_avg"), &[d, n], Init::Zeros),
        };
        let sizes = sizes.clone();
        Dvae { sizes, down, down_blocks, encoded, codebook, decoded, up_blocks, up, last, token_head: None }
    }

    /// Declares a classifier that is trained with the DVAE and left out of models: from a code's vector it predicts
    /// which of `vocabulary` text tokens is spoken.
    pub fn add_token_head(&mut self, declare: &mut Declare<'_>, vocabulary: usize) {
        let name = format!("{TRAINING_ONLY}token_head");
        self.token_head = Some(torch_linear(declare, &name, vocabulary, self.sizes.code_width));
    }

    /// Loss and accuracy of the token classifier for the targets `[batch * codes]` (negative: ignored); `None` if no
    /// classifier was declared.
    pub fn classify_tokens(
        &self,
        tape: &mut Tape,
        made: &Reconstructed,
        tokens: Value,
    ) -> Option<CrossEntropyResult> {
        let head = self.token_head?;
        Some(tape.scope("token_head", |tape| {
            let logits = head.linear(tape, made.rows);
            tape.cross_entropy(logits, tokens, 0.0)
        }))
    }

    /// The sizes it was declared with.
    pub fn sizes(&self) -> &DvaeSizes {
        &self.sizes
    }

    /// The three state parameters of the codebook.
    pub fn codebook(&self) -> Codebook<ParameterId> {
        self.codebook
    }

    /// Encodes a mel `[batch, frames, channels]` as rows `[batch, codes, code_width]`.
    pub fn encode(&self, tape: &mut Tape, mel: Value) -> Value {
        let mut x = mel;
        for (i, &layer) in self.down.iter().enumerate() {
            let fused = if i > 0 { relu() } else { Fused::default() };
            x = conv(tape, x, layer, fused, self.sizes.downsampling());
        }
        x = tape.activation(x, Function::Relu);
        for block in &self.down_blocks {
            x = block.add(tape, x);
        }
        conv(tape, x, self.encoded, Fused::default(), Conv1d::default())
    }

    /// Returns the id of the nearest code for each row.
    pub fn codes(&self, tape: &mut Tape, encoded: Value) -> Value {
        let codebook = tape.master(self.codebook.embed);
        tape.nearest_code(encoded, codebook)
    }

    /// Decodes code ids `[batch, codes]` to a mel `[batch, frames, channels]`.
    pub fn decode(&self, tape: &mut Tape, ids: Value) -> Value {
        let codebook = tape.master(self.codebook.embed);
        let rows = tape.code_rows(ids, codebook);
        self.decode_rows(tape, rows)
    }

    /// Decodes rows `[batch, codes, code_width]` to a mel.
    pub(crate) fn decode_rows(&self, tape: &mut Tape, rows: Value) -> Value {
        let mut x = conv(tape, rows, self.decoded, Fused::default(), Conv1d::default());
        for block in &self.up_blocks {
            x = block.add(tape, x);
        }
        for (i, &layer) in self.up.iter().enumerate() {
            x = tape.interpolate_nearest(x, self.sizes.stride);
            // The activation of the previous layer: it commutes with repeating values.
            let fused = if i > 0 { relu() } else { Fused::default() };
            x = conv(tape, x, layer, fused, Conv1d::same(self.sizes.taps, 1));
        }
        conv(tape, x, self.last, relu(), Conv1d::default())
    }

    /// Encodes and decodes a mel whose length is a multiple of a code's frames, and computes the losses.
    pub fn reconstruct(&self, tape: &mut Tape, mel: Value, weights: DvaeLoss) -> Reconstructed {
        let (frames, per) = (tape.shape(mel).dim(1), self.sizes.frames_per_code());
        assert!(frames.is_multiple_of(per), "{frames} frames are not whole codes of {per}");
        let encoded = tape.scope("encoder", |tape| self.encode(tape, mel));
        let codebook = tape.master(self.codebook.embed);
        let quantized = tape.quantize(encoded, codebook);
        let decoded = tape.scope("decoder", |tape| self.decode_rows(tape, quantized.rows));
        let squared = tape.mse_loss(decoded, mel);
        let absolute = (weights.absolute != 0.0).then(|| tape.l1_loss(decoded, mel));
        // Gradients do not reach the codes: they are updated as averages.
        let target = tape.detach(quantized.rows);
        let commitment = tape.mse_loss(encoded, target);
        let mut parts = vec![(squared, weights.squared), (commitment, weights.commitment)];
        parts.extend(absolute.map(|value| (value, weights.absolute)));
        let loss = tape.weighted_sum(&parts);
        let (ids, rows) = (quantized.ids, quantized.rows);
        Reconstructed { encoded, ids, rows, mel: decoded, squared, absolute, commitment, loss }
    }

    /// Moves the codebook towards the rows that chose its codes, at the end of a step that is not skipped. The step
    /// itself uses the old codebook.
    pub fn update_codebook(&self, tape: &mut Tape, made: &Reconstructed) {
        tape.update_codebook(made.encoded, made.ids, self.codebook, DECAY, EPSILON);
    }
}

impl Block {
    fn declare(declare: &mut Declare, name: &str, c: usize, taps: usize) -> Block {
        let convs = [(0, taps), (2, taps), (4, 1)].map(|(i, taps)| {
            declare_conv(declare, &format!("{name}.{i}"), ConvSizes { out: c, taps, from: c })
        });
        Block { taps, convs }
    }

    /// Residual block: `x` plus two convolutions and a linear layer.
    fn add(&self, tape: &mut Tape, x: Value) -> Value {
        let same = Conv1d::same(self.taps, 1);
        let a = conv(tape, x, self.convs[0], Fused::default(), same);
        let b = conv(tape, a, self.convs[1], relu(), same);
        conv(tape, b, self.convs[2], Fused { residual: Some(x), ..relu() }, Conv1d::default())
    }
}

/// Declares a convolution with PyTorch's initialisation.
fn declare_conv(declare: &mut Declare, name: &str, sizes: ConvSizes) -> Affine {
    let bound = 1.0 / ((sizes.taps * sizes.from) as f32).sqrt();
    declare.conv1d(name, sizes, Init::Uniform(bound))
}

/// Applies ReLU to the input.
fn relu() -> Fused {
    Fused { input_slope: Some(0.0), ..Fused::default() }
}

fn conv(tape: &mut Tape, x: Value, of: Affine, fused: Fused, geometry: Conv1d) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.master(of.bias));
    tape.conv1d_fused(x, weight, Fused { bias: Some(bias), ..fused }, geometry)
}

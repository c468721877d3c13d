//! The discrete variational autoencoder that turns mels into codes, and codes into mels.
//!
//! | value | shape | unit |
//! |---|---|---|
//! | mel | `[batch, frames, channels]` | log-mel over `mel_stats` |
//! | encoded | `[batch, codes, code_width]` | one row for 4 frames, the last for what is left |
//! | ids | `[batch, codes]` i32 | |
//!
//! The codebook learns as a moving average, without gradients. A fresh one is all zeros and is to be filled from what
//! the encoder makes of the first batches ([`crate::codebook`]) before the first step.

use crate::affine::torch_linear;
use crate::declare::{Affine, Declare, TRAINING_ONLY};
use crate::shapes::{ShapeError, ShapeOf, count, dims, unfit};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};
use myxtts_tensor::ops::cross_entropy::CrossEntropyResult;
use myxtts_tensor::ops::quantize::Codebook;
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// How much of the codebook's averages is kept each step, and the rows lent to each code.
const DECAY: f32 = 0.99;
const EPSILON: f32 = 1e-5;

/// How large a DVAE is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DvaeSizes {
    /// Channels of a mel.
    pub channels: usize,
    /// Channels after the first layer; each further layer doubles them.
    pub hidden: usize,
    /// Layers that shorten, and as many that lengthen.
    pub layers: usize,
    /// How many times shorter each layer makes it.
    pub stride: usize,
    /// Taps of the layers.
    pub taps: usize,
    /// Residual blocks on either side.
    pub blocks: usize,
    /// How many codes there are.
    pub codes: usize,
    /// Numbers in a code.
    pub code_width: usize,
}

impl DvaeSizes {
    /// XTTS v2.
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

    /// What the shapes of a file say under `prefix`; each layer halves the time, as in every release.
    pub fn of_shapes(of: ShapeOf<'_>, prefix: &str) -> Result<DvaeSizes, ShapeError> {
        let first = format!("{prefix}encoder.0.0.weight");
        let [hidden, channels, taps] = dims(of, &first)?;
        if taps % 2 == 0 {
            return Err(unfit(&first, &[hidden, channels, taps], "an even number of taps has no middle"));
        }
        let layers = count(of, |i| format!("{prefix}encoder.{i}.0.weight"));
        let blocks = count(of, |i| format!("{prefix}encoder.{}.net.0.weight", layers + i));
        let [code_width, codes] = dims(of, &format!("{prefix}codebook.embed"))?;
        Ok(DvaeSizes { channels, hidden, layers, taps, blocks, codes, code_width, ..DvaeSizes::v2() })
    }

    /// Frames a code stands for.
    pub fn frames_per_code(&self) -> usize {
        self.stride.pow(self.layers as u32)
    }

    /// Codes of so many frames.
    pub fn codes_of(&self, frames: usize) -> usize {
        (0..self.layers).fold(frames, |frames, _| frames.div_ceil(self.stride))
    }

    fn shorten(&self) -> Conv1d {
        Conv1d { stride: self.stride, padding: (self.taps - 1) / 2, ..Conv1d::default() }
    }

    fn innermost(&self) -> usize {
        self.hidden << (self.layers - 1)
    }
}

/// What is asked of a reconstruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DvaeLoss {
    /// Weight of the mean squared error.
    pub squared: f32,
    /// Weight of the mean absolute error, which a release's training does not have.
    pub absolute: f32,
    /// Weight of the commitment: how far rows are from their codes.
    pub commitment: f32,
}

impl Default for DvaeLoss {
    fn default() -> DvaeLoss {
        DvaeLoss { squared: 1.0, absolute: 0.0, commitment: 1.0 }
    }
}

/// What comes of a mel that is encoded and decoded.
#[derive(Clone, Copy, Debug)]
pub struct Reconstructed {
    /// The encoder's rows.
    pub encoded: Value,
    /// Their codes.
    pub ids: Value,
    /// The vectors of these codes.
    pub rows: Value,
    /// The mel that was made of the codes.
    pub mel: Value,
    /// `[1]`: mean squared error.
    pub squared: Value,
    /// `[1]`: mean absolute error, where it has a weight.
    pub absolute: Option<Value>,
    /// `[1]`: mean squared distance of rows to their codes.
    pub commitment: Value,
    /// `[1]`: their weighted sum.
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
    /// Declares it under the names of a release; there the file has no prefix, and a trainer's checkpoint `dvae.`.
    pub fn declare(declare: &mut Declare, sizes: &DvaeSizes, prefix: &str) -> Dvae {
        assert!(sizes.layers > 0 && sizes.taps % 2 == 1, "{sizes:?} has no layers, or taps without a middle");
        let named = |name: &str| format!("{prefix}{name}");
        let (inner, taps) = (sizes.innermost(), sizes.taps);
        let mut from = sizes.channels;
        let mut down = Vec::new();
        for i in 0..sizes.layers {
            let out = sizes.hidden << i;
            down.push(declare_conv(declare, &named(&format!("encoder.{i}.0")), (out, taps, from)));
            from = out;
        }
        let block = |declare: &mut Declare, side: &str, at: usize| {
            Block::declare(declare, &named(&format!("{side}.{at}.net")), inner, taps)
        };
        let down_blocks = (0..sizes.blocks).map(|i| block(declare, "encoder", sizes.layers + i)).collect();
        let name = named(&format!("encoder.{}", sizes.layers + sizes.blocks));
        let encoded = declare_conv(declare, &name, (sizes.code_width, 1, inner));
        let decoded = declare_conv(declare, &named("decoder.0"), (inner, 1, sizes.code_width));
        let up_blocks = (0..sizes.blocks).map(|i| block(declare, "decoder", 1 + i)).collect();
        let mut at = 1 + sizes.blocks;
        let mut up = Vec::new();
        for i in 0..sizes.layers {
            let out = inner >> i;
            up.push(declare_conv(declare, &named(&format!("decoder.{at}.0.conv")), (out, taps, from)));
            (from, at) = (out, at + 1);
        }
        let last = declare_conv(declare, &named(&format!("decoder.{at}")), (sizes.channels, 1, from));
        let (d, n) = (sizes.code_width, sizes.codes);
        let codebook = Codebook {
            embed: declare.state(&format!("{prefix}codebook.embed"), &[d, n], Init::Zeros),
            cluster_size: declare.state(&format!("{prefix}codebook.cluster_size"), &[n], Init::Constant(1.0)),
            embed_avg: declare.state(&format!("{prefix}codebook.embed_avg"), &[d, n], Init::Zeros),
        };
        let sizes = sizes.clone();
        Dvae { sizes, down, down_blocks, encoded, codebook, decoded, up_blocks, up, last, token_head: None }
    }

    /// Declares a classifier that is trained beside the DVAE and left out of every model: it tells from a code's vector
    /// which of so many text tokens is being spoken.
    pub fn add_token_head(&mut self, declare: &mut Declare<'_>, vocabulary: usize) {
        let name = format!("{TRAINING_ONLY}token_head");
        self.token_head = Some(torch_linear(declare, &name, vocabulary, self.sizes.code_width));
    }

    /// How well the classifier names these tokens `[batch * codes]` (negative: not asked); none where no
    /// classifier was declared.
    pub fn name_tokens(
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

    /// How large it is.
    pub fn sizes(&self) -> &DvaeSizes {
        &self.sizes
    }

    /// The three state parameters of the codebook.
    pub fn codebook(&self) -> Codebook<ParameterId> {
        self.codebook
    }

    /// Rows `[batch, codes, code_width]` of a mel `[batch, frames, channels]`.
    pub fn encode(&self, tape: &mut Tape, mel: Value) -> Value {
        let mut x = mel;
        for (i, &layer) in self.down.iter().enumerate() {
            let fused = if i > 0 { relu() } else { Fused::default() };
            x = conv(tape, x, layer, fused, self.sizes.shorten());
        }
        x = tape.activation(x, Function::Relu);
        for block in &self.down_blocks {
            x = block.add(tape, x);
        }
        conv(tape, x, self.encoded, Fused::default(), Conv1d::default())
    }

    /// The nearest code of each row.
    pub fn codes(&self, tape: &mut Tape, encoded: Value) -> Value {
        let codebook = tape.master(self.codebook.embed);
        tape.nearest_code(encoded, codebook)
    }

    /// The mel `[batch, frames, channels]` of codes `[batch, codes]`.
    pub fn decode(&self, tape: &mut Tape, ids: Value) -> Value {
        let codebook = tape.master(self.codebook.embed);
        let rows = tape.code_rows(ids, codebook);
        self.decode_rows(tape, rows)
    }

    /// The mel of rows `[batch, codes, code_width]`.
    pub fn decode_rows(&self, tape: &mut Tape, rows: Value) -> Value {
        let mut x = conv(tape, rows, self.decoded, Fused::default(), Conv1d::default());
        for block in &self.up_blocks {
            x = block.add(tape, x);
        }
        for (i, &layer) in self.up.iter().enumerate() {
            x = tape.interpolate_nearest(x, self.sizes.stride);
            // The activation of the layer before: repeated numbers have repeated activations.
            let fused = if i > 0 { relu() } else { Fused::default() };
            x = conv(tape, x, layer, fused, Conv1d::same(self.sizes.taps, 1));
        }
        conv(tape, x, self.last, relu(), Conv1d::default())
    }

    /// Encodes and decodes a mel whose frames are whole codes, and says how well; for a step or for validation.
    pub fn reconstruct(&self, tape: &mut Tape, mel: Value, asked: DvaeLoss) -> Reconstructed {
        let (frames, per) = (tape.shape(mel).dim(1), self.sizes.frames_per_code());
        assert!(frames.is_multiple_of(per), "{frames} frames are not whole codes of {per}");
        let encoded = tape.scope("encoder", |tape| self.encode(tape, mel));
        let codebook = tape.master(self.codebook.embed);
        let quantized = tape.quantize(encoded, codebook);
        let made = tape.scope("decoder", |tape| self.decode_rows(tape, quantized.rows));
        let squared = tape.mse_loss(made, mel);
        let absolute = (asked.absolute != 0.0).then(|| tape.l1_loss(made, mel));
        // The codes do not come to the rows; they follow as averages.
        let target = tape.detach(quantized.rows);
        let commitment = tape.mse_loss(encoded, target);
        let mut parts = vec![(squared, asked.squared), (commitment, asked.commitment)];
        parts.extend(absolute.map(|value| (value, asked.absolute)));
        let loss = tape.weighted_sum(&parts);
        let (ids, rows) = (quantized.ids, quantized.rows);
        Reconstructed { encoded, ids, rows, mel: made, squared, absolute, commitment, loss }
    }

    /// Moves the codebook towards the rows that chose its codes, at the end of a good step. The step itself uses the
    /// codebook from before.
    pub fn follow(&self, tape: &mut Tape, made: &Reconstructed) {
        tape.update_codebook(made.encoded, made.ids, self.codebook, DECAY, EPSILON);
    }
}

impl Block {
    fn declare(declare: &mut Declare, name: &str, c: usize, taps: usize) -> Block {
        let convs = [(0, taps), (2, taps), (4, 1)]
            .map(|(i, taps)| declare_conv(declare, &format!("{name}.{i}"), (c, taps, c)));
        Block { taps, convs }
    }

    /// `x` and what two convolutions and a product make of it.
    fn add(&self, tape: &mut Tape, x: Value) -> Value {
        let same = Conv1d::same(self.taps, 1);
        let a = conv(tape, x, self.convs[0], Fused::default(), same);
        let b = conv(tape, a, self.convs[1], relu(), same);
        conv(tape, b, self.convs[2], Fused { residual: Some(x), ..relu() }, Conv1d::default())
    }
}

/// A convolution that begins as PyTorch's do.
fn declare_conv(declare: &mut Declare, name: &str, (out, taps, from): (usize, usize, usize)) -> Affine {
    let bound = 1.0 / ((taps * from) as f32).sqrt();
    declare.conv1d(name, (out, taps, from), Init::Uniform(bound))
}

/// ReLU on the input.
fn relu() -> Fused {
    Fused { input_slope: Some(0.0), ..Fused::default() }
}

fn conv(tape: &mut Tape, x: Value, of: Affine, fused: Fused, geometry: Conv1d) -> Value {
    let (weight, bias) = (tape.parameter(of.weight), tape.master(of.bias));
    tape.conv1d_fused(x, weight, Fused { bias: Some(bias), ..fused }, geometry)
}

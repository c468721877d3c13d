//! Sizes of a model, from which the names and shapes of all its tensors follow.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Names and shapes of a file's tensors.
pub type Shapes = BTreeMap<String, Vec<usize>>;

/// Sizes of all parts of a model, as inferred from a file or expected of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The language model with its conditioning.
    pub gpt: InferredGpt,
    /// The waveform decoder.
    pub decoder: InferredDecoder,
    /// The speaker encoder.
    pub speaker: InferredSpeaker,
    /// The audio tokeniser; `None` if absent. A release has it in a separate file, and synthesis does not need it.
    pub dvae: Option<InferredDvae>,
}

/// Sizes of the language model as inferred from shapes; they determine the shape of each of its tensors. Building a
/// network needs more than shapes reveal: see [`GptSizes`](crate::GptSizes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferredGpt {
    /// Number of blocks.
    pub layers: usize,
    /// Hidden channels.
    pub dim: usize,
    /// Attention heads; cannot be inferred from shapes.
    pub heads: usize,
    /// Channels inside the feed-forward half of a block.
    pub inner: usize,
    /// Rows of the text embedding.
    pub text_tokens: usize,
    /// Rows of the audio code embedding, including START and STOP.
    pub audio_tokens: usize,
    /// Rows of the text position table.
    pub text_positions: usize,
    /// Rows of the audio position table.
    pub audio_positions: usize,
    /// Mel bands of the conditioning input.
    pub mels: usize,
    /// Attention blocks of the conditioning encoder.
    pub conditioning_layers: usize,
    /// Number of output vectors of the resampler.
    pub latents: usize,
    /// Blocks of the resampler.
    pub resampler_layers: usize,
    /// Channels of all resampler heads together.
    pub resampler_inner: usize,
    /// Channels between the resampler's two feed-forward layers.
    pub resampler_hidden: usize,
}

/// Sizes of the waveform decoder as inferred from shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferredDecoder {
    /// Input channels.
    pub input: usize,
    /// Channels before the first upsampling; each upsampling halves them.
    pub channels: usize,
    /// Length of a speaker vector.
    pub speaker: usize,
    /// Kernel size of each upsampling; the upsampling factor is half of it.
    pub upsample_kernels: Vec<usize>,
    /// Kernel sizes of the residual blocks after each upsampling.
    pub block_kernels: Vec<usize>,
    /// Pairs of convolutions in a residual block; their dilations are 1, 3, 5, ...
    pub dilations: usize,
}

/// Sizes of the speaker encoder as inferred from shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferredSpeaker {
    /// Channels of each layer.
    pub filters: Vec<usize>,
    /// Blocks of each layer.
    pub blocks: Vec<usize>,
    /// Factor by which squeeze-and-excitation reduces the channels.
    pub reduction: usize,
    /// Channels of the pooling's attention.
    pub attention: usize,
    /// Input channels of the pooling: those of the last layer times the remaining mel bands.
    pub pooled: usize,
    /// Length of a speaker vector.
    pub projection: usize,
    /// Mel bands.
    pub mels: usize,
    /// Frequency bins of the spectrum.
    pub bins: usize,
    /// Window length in samples.
    pub window: usize,
}

/// Sizes of the audio tokeniser as inferred from shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferredDvae {
    /// Mel bands.
    pub mels: usize,
    /// Channels after the first layer; each further layer doubles them.
    pub hidden: usize,
    /// Layers that halve the length.
    pub layers: usize,
    /// Kernel size.
    pub kernel: usize,
    /// Residual blocks.
    pub blocks: usize,
    /// Channels of a code vector.
    pub codebook: usize,
    /// Number of codes.
    pub tokens: usize,
}

impl Sizes {
    /// Sizes of the released XTTS-v2 (2.0.3).
    pub fn v2() -> Sizes {
        Sizes {
            gpt: InferredGpt {
                layers: 30,
                dim: 1024,
                heads: 16,
                inner: 4096,
                text_tokens: 6681,
                audio_tokens: 1026,
                text_positions: 404,
                audio_positions: 608,
                mels: 80,
                conditioning_layers: 6,
                latents: 32,
                resampler_layers: 2,
                resampler_inner: 512,
                resampler_hidden: 2730,
            },
            decoder: InferredDecoder {
                input: 1024,
                channels: 512,
                speaker: 512,
                upsample_kernels: vec![16, 16, 4, 4],
                block_kernels: vec![3, 7, 11],
                dilations: 3,
            },
            speaker: InferredSpeaker {
                filters: vec![32, 64, 128, 256],
                blocks: vec![3, 4, 6, 3],
                reduction: 8,
                attention: 128,
                pooled: 2048,
                projection: 512,
                mels: 64,
                bins: 257,
                window: 400,
            },
            dvae: Some(InferredDvae {
                mels: 80,
                hidden: 512,
                layers: 2,
                kernel: 3,
                blocks: 3,
                codebook: 512,
                tokens: 1024,
            }),
        }
    }

    /// Infers sizes from a file's shapes. If a tensor is missing, its size is taken from another tensor that has the
    /// same dimension, or from the release, so that [`expected`](super::expected) can report all differences and not
    /// only the first. `heads` comes from a configuration; without one, heads are 64 channels wide, as in all releases.
    pub fn from_shapes(shapes: &Shapes, heads: Option<usize>) -> Sizes {
        let v2 = Sizes::v2();
        let look = ShapeLookup { shapes };
        let dim = look.size(&[("gpt.text_embedding.weight", 1), ("gpt.mel_embedding.weight", 1)], v2.gpt.dim);
        let gpt = InferredGpt {
            layers: look.count("gpt.gpt.h.", ".ln_1.weight").unwrap_or(v2.gpt.layers),
            dim,
            heads: heads.unwrap_or((dim / 64).max(1)),
            inner: look
                .size(&[("gpt.gpt.h.0.mlp.c_fc.weight", 1), ("gpt.gpt.h.0.mlp.c_proj.weight", 0)], 4 * dim),
            text_tokens: look
                .size(&[("gpt.text_embedding.weight", 0), ("gpt.text_head.weight", 0)], v2.gpt.text_tokens),
            audio_tokens: look
                .size(&[("gpt.mel_embedding.weight", 0), ("gpt.mel_head.weight", 0)], v2.gpt.audio_tokens),
            text_positions: look.size(&[("gpt.text_pos_embedding.emb.weight", 0)], v2.gpt.text_positions),
            audio_positions: look.size(&[("gpt.mel_pos_embedding.emb.weight", 0)], v2.gpt.audio_positions),
            mels: look.size(&[("gpt.conditioning_encoder.init.weight", 1), ("mel_stats", 0)], v2.gpt.mels),
            conditioning_layers: look
                .count("gpt.conditioning_encoder.attn.", ".qkv.weight")
                .unwrap_or(v2.gpt.conditioning_layers),
            latents: look.size(&[("gpt.conditioning_perceiver.latents", 0)], v2.gpt.latents),
            resampler_layers: look
                .count("gpt.conditioning_perceiver.layers.", ".0.to_q.weight")
                .unwrap_or(v2.gpt.resampler_layers),
            resampler_inner: look.size(
                &[
                    ("gpt.conditioning_perceiver.layers.0.0.to_q.weight", 0),
                    ("gpt.conditioning_perceiver.layers.0.0.to_out.weight", 1),
                ],
                v2.gpt.resampler_inner,
            ),
            resampler_hidden: look
                .size(&[("gpt.conditioning_perceiver.layers.0.1.2.weight", 1)], dim.saturating_mul(8) / 3),
        };
        let has_dvae = shapes.keys().any(|name| name.starts_with("dvae."));
        Sizes {
            decoder: decoder(&look, &v2.decoder, dim),
            speaker: speaker(&look, &v2.speaker),
            dvae: v2.dvae.filter(|_| has_dvae).map(|v2| dvae(&look, &v2)),
            gpt,
        }
    }
}

fn decoder(look: &ShapeLookup, v2: &InferredDecoder, dim: usize) -> InferredDecoder {
    let at = |name: &str| format!("hifigan_decoder.waveform_decoder.{name}");
    let weight = |name: String| format!("{name}.parametrizations.weight.original1");
    let ups = look.count(&at("ups."), ".parametrizations.weight.original1");
    let ups = ups.unwrap_or(v2.upsample_kernels.len());
    let blocks = look.count(&at("resblocks."), ".convs1.0.parametrizations.weight.original1");
    let each = blocks.map_or(v2.block_kernels.len(), |blocks| blocks.div_ceil(ups.max(1)));
    let or = |list: &[usize], i: usize| list.get(i).or(list.last()).copied().unwrap_or(1);
    InferredDecoder {
        input: look.size(&[(&at("conv_pre.weight"), 1)], dim),
        channels: look.size(&[(&at("conv_pre.weight"), 0), (&at("cond_layer.weight"), 0)], v2.channels),
        speaker: look.size(
            &[(&at("cond_layer.weight"), 1), ("hifigan_decoder.speaker_encoder.fc.weight", 0)],
            v2.speaker,
        ),
        upsample_kernels: (0..ups)
            .map(|i| look.size(&[(&weight(at(&format!("ups.{i}"))), 2)], or(&v2.upsample_kernels, i)))
            .collect(),
        block_kernels: (0..each)
            .map(|i| {
                look.size(&[(&weight(at(&format!("resblocks.{i}.convs1.0"))), 2)], or(&v2.block_kernels, i))
            })
            .collect(),
        dilations: look
            .count(&at("resblocks.0.convs1."), ".parametrizations.weight.original1")
            .unwrap_or(v2.dilations),
    }
}

fn speaker(look: &ShapeLookup, v2: &InferredSpeaker) -> InferredSpeaker {
    let at = |name: &str| format!("hifigan_decoder.speaker_encoder.{name}");
    let mut filters = Vec::new();
    let mut blocks = Vec::new();
    for (i, (&channels, &count)) in v2.filters.iter().zip(&v2.blocks).enumerate() {
        let layer = format!("layer{}.", i + 1);
        filters.push(look.size(&[(&at(&format!("{layer}0.conv1.weight")), 0)], channels));
        blocks.push(look.count(&at(&layer), ".conv1.weight").unwrap_or(count));
    }
    let squeezed = look.size(&[(&at("layer1.0.se.fc.0.weight"), 0)], filters[0] / v2.reduction);
    InferredSpeaker {
        reduction: filters[0].checked_div(squeezed).unwrap_or(1).max(1),
        attention: look.size(&[(&at("attention.0.weight"), 0)], v2.attention),
        pooled: look.size(&[(&at("attention.0.weight"), 1), (&at("attention.3.weight"), 0)], v2.pooled),
        projection: look.size(&[(&at("fc.weight"), 0), (&at("fc.bias"), 0)], v2.projection),
        mels: look.size(&[(&at("torch_spec.1.mel_scale.fb"), 1)], v2.mels),
        bins: look.size(&[(&at("torch_spec.1.mel_scale.fb"), 0)], v2.bins),
        window: look.size(&[(&at("torch_spec.1.spectrogram.window"), 0)], v2.window),
        filters,
        blocks,
    }
}

fn dvae(look: &ShapeLookup, v2: &InferredDvae) -> InferredDvae {
    InferredDvae {
        mels: look.size(&[("dvae.encoder.0.0.weight", 1), ("dvae.decoder.6.weight", 0)], v2.mels),
        hidden: look.size(&[("dvae.encoder.0.0.weight", 0), ("dvae.encoder.0.0.bias", 0)], v2.hidden),
        layers: look.count("dvae.encoder.", ".0.weight").unwrap_or(v2.layers),
        kernel: look.size(&[("dvae.encoder.0.0.weight", 2)], v2.kernel),
        blocks: look.count("dvae.encoder.", ".net.0.weight").unwrap_or(v2.blocks),
        codebook: look.size(&[("dvae.codebook.embed", 0), ("dvae.decoder.0.weight", 1)], v2.codebook),
        tokens: look.size(&[("dvae.codebook.embed", 1), ("dvae.codebook.cluster_size", 0)], v2.tokens),
    }
}

/// Maximum number of blocks of a kind; no part has more.
const MAX_BLOCKS: usize = 64;

/// Maximum accepted length of a dimension: sums of a few of them cannot overflow.
const MAX_DIMENSION: usize = 1 << 31;

struct ShapeLookup<'s> {
    shapes: &'s Shapes,
}

impl ShapeLookup<'_> {
    /// Returns a dimension of the first of these tensors that is present.
    fn size(&self, places: &[(&str, usize)], otherwise: usize) -> usize {
        let found = places.iter().find_map(|&(name, d)| self.shapes.get(name)?.get(d));
        found.map_or(otherwise, |&size| size.min(MAX_DIMENSION))
    }

    /// Number of distinct indices between `before` and `after`, at most [`MAX_BLOCKS`]. Not the largest index: neither
    /// a name with a huge index nor a file of a million names may become a huge list.
    fn count(&self, before: &str, after: &str) -> Option<usize> {
        let from = self.shapes.range(before.to_owned()..).map(|(name, _)| name);
        let numbers: BTreeSet<&str> = from
            .take_while(|name| name.starts_with(before))
            .filter_map(|name| name[before.len()..].strip_suffix(after))
            .filter(|number| number.parse::<u32>().is_ok())
            .collect();
        Some(numbers.len().min(MAX_BLOCKS)).filter(|&count| count > 0)
    }
}

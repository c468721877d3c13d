//! How large a model is: everything that the names and shapes of its tensors follow from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Names and shapes, as a file has them.
pub type Shapes = BTreeMap<String, Vec<usize>>;

/// All parts of a model, as found in a file or expected of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The language model with its conditioning.
    pub gpt: FoundGpt,
    /// The waveform decoder.
    pub decoder: FoundDecoder,
    /// The speaker encoder.
    pub speaker: FoundSpeaker,
    /// The audio tokeniser, where there is one: a release has it in a file of its own, and speaking does not need it.
    pub dvae: Option<FoundDvae>,
}

/// The language model as the shapes in a file tell it: what every tensor of it should be. They do not tell all that
/// [`GptSizes`](crate::GptSizes), by which one is made, has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundGpt {
    /// Blocks.
    pub layers: usize,
    /// Channels.
    pub dim: usize,
    /// Heads; no shape tells them.
    pub heads: usize,
    /// Channels within a block's second half.
    pub inner: usize,
    /// Rows of the text table.
    pub text_tokens: usize,
    /// Rows of the table of audio codes, its start and stop included.
    pub audio_tokens: usize,
    /// Rows of the table of text positions.
    pub text_positions: usize,
    /// Rows of the table of audio positions.
    pub audio_positions: usize,
    /// Bands of the mels that condition it.
    pub mels: usize,
    /// Attention blocks of the conditioning encoder.
    pub conditioning_layers: usize,
    /// Vectors the resampler gives.
    pub latents: usize,
    /// Blocks of the resampler.
    pub resampler_layers: usize,
    /// Channels of its heads together.
    pub resampler_inner: usize,
    /// Channels between its two feed-forward layers.
    pub resampler_hidden: usize,
}

/// The waveform decoder, as shapes tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDecoder {
    /// Channels it is given.
    pub input: usize,
    /// Channels before the first upsampling; halved by each.
    pub channels: usize,
    /// Length of a speaker's vector.
    pub speaker: usize,
    /// Taps of each upsampling. Each goes up by half its taps.
    pub upsample_kernels: Vec<usize>,
    /// Taps of the residual blocks after each upsampling.
    pub block_kernels: Vec<usize>,
    /// Pairs of convolutions in a residual block; their dilations are 1, 3, 5, ...
    pub dilations: usize,
}

/// The speaker encoder, as shapes tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSpeaker {
    /// Channels of each layer.
    pub filters: Vec<usize>,
    /// Blocks of each layer.
    pub blocks: Vec<usize>,
    /// Channels that a squeeze leaves: one in so many.
    pub reduction: usize,
    /// Channels of the pooling's attention.
    pub attention: usize,
    /// Channels that the pooling gets: those of the last layer for each band that is left.
    pub pooled: usize,
    /// Length of a speaker's vector.
    pub projection: usize,
    /// Bands of its mels.
    pub mels: usize,
    /// Bins of its spectra.
    pub bins: usize,
    /// Samples of its window.
    pub window: usize,
}

/// The audio tokeniser, as shapes tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDvae {
    /// Bands of its mels.
    pub mels: usize,
    /// Channels after its first layer; each further one doubles them.
    pub hidden: usize,
    /// Layers that halve the length.
    pub layers: usize,
    /// Taps.
    pub kernel: usize,
    /// Residual blocks.
    pub blocks: usize,
    /// Channels of a code's vector.
    pub codebook: usize,
    /// Codes.
    pub tokens: usize,
}

impl Sizes {
    /// The released XTTS-v2 (2.0.3).
    pub fn v2() -> Sizes {
        Sizes {
            gpt: FoundGpt {
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
            decoder: FoundDecoder {
                input: 1024,
                channels: 512,
                speaker: 512,
                upsample_kernels: vec![16, 16, 4, 4],
                block_kernels: vec![3, 7, 11],
                dilations: 3,
            },
            speaker: FoundSpeaker {
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
            dvae: Some(FoundDvae {
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

    /// The sizes that a file's shapes speak of. What a missing tensor would have told is taken from another that tells it
    /// too, or from the release: so that [`expected`](super::expected) can name everything that is wrong and not only the
    /// first thing. `heads` comes from a configuration; without one they are 64 channels wide, as all released ones.
    pub fn of(shapes: &Shapes, heads: Option<usize>) -> Sizes {
        let v2 = Sizes::v2();
        let look = Look { shapes };
        let dim = look.size(&[("gpt.text_embedding.weight", 1), ("gpt.mel_embedding.weight", 1)], v2.gpt.dim);
        let gpt = FoundGpt {
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

fn decoder(look: &Look, v2: &FoundDecoder, dim: usize) -> FoundDecoder {
    let at = |name: &str| format!("hifigan_decoder.waveform_decoder.{name}");
    let weight = |name: String| format!("{name}.parametrizations.weight.original1");
    let ups = look.count(&at("ups."), ".parametrizations.weight.original1");
    let ups = ups.unwrap_or(v2.upsample_kernels.len());
    let blocks = look.count(&at("resblocks."), ".convs1.0.parametrizations.weight.original1");
    let each = blocks.map_or(v2.block_kernels.len(), |blocks| blocks.div_ceil(ups.max(1)));
    let or = |list: &[usize], i: usize| list.get(i).or(list.last()).copied().unwrap_or(1);
    FoundDecoder {
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

fn speaker(look: &Look, v2: &FoundSpeaker) -> FoundSpeaker {
    let at = |name: &str| format!("hifigan_decoder.speaker_encoder.{name}");
    let mut filters = Vec::new();
    let mut blocks = Vec::new();
    for (i, (&channels, &count)) in v2.filters.iter().zip(&v2.blocks).enumerate() {
        let layer = format!("layer{}.", i + 1);
        filters.push(look.size(&[(&at(&format!("{layer}0.conv1.weight")), 0)], channels));
        blocks.push(look.count(&at(&layer), ".conv1.weight").unwrap_or(count));
    }
    let squeezed = look.size(&[(&at("layer1.0.se.fc.0.weight"), 0)], filters[0] / v2.reduction);
    FoundSpeaker {
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

fn dvae(look: &Look, v2: &FoundDvae) -> FoundDvae {
    FoundDvae {
        mels: look.size(&[("dvae.encoder.0.0.weight", 1), ("dvae.decoder.6.weight", 0)], v2.mels),
        hidden: look.size(&[("dvae.encoder.0.0.weight", 0), ("dvae.encoder.0.0.bias", 0)], v2.hidden),
        layers: look.count("dvae.encoder.", ".0.weight").unwrap_or(v2.layers),
        kernel: look.size(&[("dvae.encoder.0.0.weight", 2)], v2.kernel),
        blocks: look.count("dvae.encoder.", ".net.0.weight").unwrap_or(v2.blocks),
        codebook: look.size(&[("dvae.codebook.embed", 0), ("dvae.decoder.0.weight", 1)], v2.codebook),
        tokens: look.size(&[("dvae.codebook.embed", 1), ("dvae.codebook.cluster_size", 0)], v2.tokens),
    }
}

/// Blocks of a kind that are believed; no part has more.
const MOST: usize = 64;

/// Length of a dimension that is believed: sums of a few of them cannot overflow.
const LARGEST: usize = 1 << 31;

struct Look<'s> {
    shapes: &'s Shapes,
}

impl Look<'_> {
    /// A dimension of the first of some tensors that is there.
    fn size(&self, places: &[(&str, usize)], otherwise: usize) -> usize {
        let found = places.iter().find_map(|&(name, d)| self.shapes.get(name)?.get(d));
        found.map_or(otherwise, |&size| size.min(LARGEST))
    }

    /// How many numbers there are between `before` and `after`, [`MOST`] at most. Not the largest: neither a name with a
    /// huge number nor a file of a million names must become a huge list.
    fn count(&self, before: &str, after: &str) -> Option<usize> {
        let from = self.shapes.range(before.to_owned()..).map(|(name, _)| name);
        let numbers: BTreeSet<&str> = from
            .take_while(|name| name.starts_with(before))
            .filter_map(|name| name[before.len()..].strip_suffix(after))
            .filter(|number| number.parse::<u32>().is_ok())
            .collect();
        Some(numbers.len().min(MOST)).filter(|&count| count > 0)
    }
}

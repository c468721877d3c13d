//! The tensors that a model of given sizes has, with their release names and shapes, and the differences to a file.

use std::collections::BTreeMap;

use super::sizes::{InferredDecoder, InferredDvae, InferredGpt, InferredSpeaker, Shapes, Sizes};

/// Name and shape of a required tensor.
pub type Expected = (String, Vec<usize>);

/// Differences between a file's tensors and the expected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Expected tensors that the file does not have.
    pub missing: Vec<Expected>,
    /// Tensors that belong to no part of the model.
    pub left_over: Vec<String>,
    /// Tensors of another shape: name, expected, found.
    pub wrong_shape: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl Mismatch {
    /// Compares the tensors of a file with the expected ones. Names that start with one of `optional` may be present or not.
    pub fn between(found: &Shapes, expected: &[Expected], optional: &[&str]) -> Mismatch {
        let wanted: BTreeMap<&str, &[usize]> =
            expected.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
        let mut mismatch = Mismatch::default();
        for (name, shape) in expected {
            match found.get(name) {
                None => mismatch.missing.push((name.clone(), shape.clone())),
                Some(other) if other != shape => {
                    mismatch.wrong_shape.push((name.clone(), shape.clone(), other.clone()));
                }
                Some(_) => {}
            }
        }
        for name in found.keys() {
            if !wanted.contains_key(name.as_str()) && !optional.iter().any(|prefix| name.starts_with(prefix))
            {
                mismatch.left_over.push(name.clone());
            }
        }
        mismatch
    }

    /// Returns whether there are no differences.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.left_over.is_empty() && self.wrong_shape.is_empty()
    }
}

/// Maximum number of names printed per category; the rest is counted.
const MAX_PRINTED: usize = 12;

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let missing: Vec<String> =
            self.missing.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        let wrong: Vec<String> = self
            .wrong_shape
            .iter()
            .map(|(name, expected, found)| format!("{name} is {found:?}, not {expected:?}"))
            .collect();
        // Names come from the file: control characters must not reach a terminal.
        let left_over: Vec<String> =
            self.left_over.iter().map(|name| name.escape_debug().to_string()).collect();
        write!(f, "these tensors are not an XTTS model")?;
        for (what, names) in
            [("missing", &missing), ("of the wrong shape", &wrong), ("left over", &left_over)]
        {
            if names.is_empty() {
                continue;
            }
            write!(f, "\n  {} {what}:", names.len())?;
            for name in names.iter().take(MAX_PRINTED) {
                write!(f, "\n    {name}")?;
            }
            if names.len() > MAX_PRINTED {
                write!(f, "\n    ... and {} more", names.len() - MAX_PRINTED)?;
            }
        }
        Ok(())
    }
}

/// Prefixes of names that a file may or may not have: statistics of an old DVAE loss.
pub const OPTIONAL: [&str; 1] = ["dvae.discrete_loss."];

impl Sizes {
    /// All tensors of a model; those of the DVAE have the prefix `dvae.`.
    pub fn expected(&self) -> Vec<Expected> {
        let mut list = List(Vec::new());
        list.add("mel_stats", &[self.gpt.mels]);
        gpt(&mut list, &self.gpt);
        decoder(&mut list, &self.decoder);
        speaker(&mut list, &self.speaker);
        if let Some(sizes) = &self.dvae {
            dvae(&mut list, sizes);
        }
        list.0
    }
}

struct List(Vec<Expected>);

impl List {
    fn add(&mut self, name: &str, shape: &[usize]) {
        self.0.push((name.to_owned(), shape.to_vec()));
    }

    /// `NAME.weight` of any shape and `NAME.bias` with `bias` elements.
    fn affine(&mut self, name: &str, weight: &[usize], bias: usize) {
        self.add(&format!("{name}.weight"), weight);
        self.add(&format!("{name}.bias"), &[bias]);
    }

    fn norm(&mut self, name: &str, channels: usize) {
        self.affine(name, &[channels], channels);
    }

    fn batch_norm(&mut self, name: &str, channels: usize) {
        self.norm(name, channels);
        self.add(&format!("{name}.running_mean"), &[channels]);
        self.add(&format!("{name}.running_var"), &[channels]);
        self.add(&format!("{name}.num_batches_tracked"), &[]);
    }

    /// A weight-normalised convolution: magnitude and direction, with one magnitude per index of the first dimension.
    fn weight_normed(&mut self, name: &str, weight: [usize; 3], bias: usize) {
        self.add(&format!("{name}.parametrizations.weight.original0"), &[weight[0], 1, 1]);
        self.add(&format!("{name}.parametrizations.weight.original1"), &weight);
        self.add(&format!("{name}.bias"), &[bias]);
    }
}

fn gpt(list: &mut List, s: &InferredGpt) {
    let dim = s.dim;
    list.affine("gpt.conditioning_encoder.init", &[dim, s.mels, 1], dim);
    for i in 0..s.conditioning_layers {
        let block = format!("gpt.conditioning_encoder.attn.{i}");
        list.norm(&format!("{block}.norm"), dim);
        list.affine(&format!("{block}.qkv"), &[3 * dim, dim, 1], 3 * dim);
        list.affine(&format!("{block}.proj_out"), &[dim, dim, 1], dim);
    }
    list.add("gpt.text_embedding.weight", &[s.text_tokens, dim]);
    list.add("gpt.mel_embedding.weight", &[s.audio_tokens, dim]);
    for i in 0..s.layers {
        let block = format!("gpt.gpt.h.{i}");
        list.norm(&format!("{block}.ln_1"), dim);
        list.affine(&format!("{block}.attn.c_attn"), &[dim, 3 * dim], 3 * dim);
        list.affine(&format!("{block}.attn.c_proj"), &[dim, dim], dim);
        list.norm(&format!("{block}.ln_2"), dim);
        list.affine(&format!("{block}.mlp.c_fc"), &[dim, s.inner], s.inner);
        list.affine(&format!("{block}.mlp.c_proj"), &[s.inner, dim], dim);
    }
    list.norm("gpt.gpt.ln_f", dim);
    list.add("gpt.mel_pos_embedding.emb.weight", &[s.audio_positions, dim]);
    list.add("gpt.text_pos_embedding.emb.weight", &[s.text_positions, dim]);
    list.norm("gpt.final_norm", dim);
    list.affine("gpt.text_head", &[s.text_tokens, dim], s.text_tokens);
    list.affine("gpt.mel_head", &[s.audio_tokens, dim], s.audio_tokens);
    list.add("gpt.conditioning_perceiver.latents", &[s.latents, dim]);
    for i in 0..s.resampler_layers {
        let block = format!("gpt.conditioning_perceiver.layers.{i}");
        list.add(&format!("{block}.0.to_q.weight"), &[s.resampler_inner, dim]);
        list.add(&format!("{block}.0.to_kv.weight"), &[2 * s.resampler_inner, dim]);
        list.add(&format!("{block}.0.to_out.weight"), &[dim, s.resampler_inner]);
        list.affine(&format!("{block}.1.0"), &[2 * s.resampler_hidden, dim], 2 * s.resampler_hidden);
        list.affine(&format!("{block}.1.2"), &[dim, s.resampler_hidden], dim);
    }
    list.add("gpt.conditioning_perceiver.norm.gamma", &[dim]);
}

fn decoder(list: &mut List, s: &InferredDecoder) {
    let at = |name: &str| format!("hifigan_decoder.waveform_decoder.{name}");
    list.affine(&at("conv_pre"), &[s.channels, s.input, 7], s.channels);
    let after = |stage: usize| s.channels.checked_shr(stage as u32 + 1).unwrap_or(0);
    for (i, &kernel) in s.upsample_kernels.iter().enumerate() {
        let before = s.channels.checked_shr(i as u32).unwrap_or(0);
        list.weight_normed(&at(&format!("ups.{i}")), [before, after(i), kernel], after(i));
    }
    for i in 0..s.upsample_kernels.len() {
        for (j, &kernel) in s.block_kernels.iter().enumerate() {
            let block = at(&format!("resblocks.{}", i * s.block_kernels.len() + j));
            for convs in ["convs1", "convs2"] {
                for k in 0..s.dilations {
                    let channels = after(i);
                    list.weight_normed(
                        &format!("{block}.{convs}.{k}"),
                        [channels, channels, kernel],
                        channels,
                    );
                }
            }
        }
    }
    let last = s.upsample_kernels.len().checked_sub(1).map_or(s.channels, after);
    list.add(&at("conv_post.weight"), &[1, last, 7]);
    list.affine(&at("cond_layer"), &[s.channels, s.speaker, 1], s.channels);
    for i in 0..s.upsample_kernels.len() {
        list.affine(&at(&format!("conds.{i}")), &[after(i), s.speaker, 1], after(i));
    }
}

fn speaker(list: &mut List, s: &InferredSpeaker) {
    let at = |name: &str| format!("hifigan_decoder.speaker_encoder.{name}");
    let first = s.filters.first().copied().unwrap_or(0);
    list.affine(&at("conv1"), &[first, 1, 3, 3], first);
    list.batch_norm(&at("bn1"), first);
    let mut before = first;
    for (i, (&channels, &blocks)) in s.filters.iter().zip(&s.blocks).enumerate() {
        for j in 0..blocks {
            let block = at(&format!("layer{}.{j}", i + 1));
            list.add(&format!("{block}.conv1.weight"), &[channels, before, 3, 3]);
            list.batch_norm(&format!("{block}.bn1"), channels);
            list.add(&format!("{block}.conv2.weight"), &[channels, channels, 3, 3]);
            list.batch_norm(&format!("{block}.bn2"), channels);
            let squeezed = channels / s.reduction.max(1);
            list.affine(&format!("{block}.se.fc.0"), &[squeezed, channels], squeezed);
            list.affine(&format!("{block}.se.fc.2"), &[channels, squeezed], channels);
            // The first block of every layer but the first halves the length, and so does its shortcut.
            if j == 0 && i > 0 {
                list.add(&format!("{block}.downsample.0.weight"), &[channels, before, 1, 1]);
                list.batch_norm(&format!("{block}.downsample.1"), channels);
            }
            before = channels;
        }
    }
    list.affine(&at("attention.0"), &[s.attention, s.pooled, 1], s.attention);
    list.batch_norm(&at("attention.2"), s.attention);
    list.affine(&at("attention.3"), &[s.pooled, s.attention, 1], s.pooled);
    list.affine(&at("fc"), &[s.projection, s.pooled.saturating_mul(2)], s.projection);
    list.add(&at("torch_spec.0.filter"), &[1, 1, 2]);
    list.add(&at("torch_spec.1.spectrogram.window"), &[s.window]);
    list.add(&at("torch_spec.1.mel_scale.fb"), &[s.bins, s.mels]);
}

fn dvae(list: &mut List, s: &InferredDvae) {
    let channels =
        |layer: usize| s.hidden.saturating_mul(1usize.checked_shl(layer as u32).unwrap_or(usize::MAX));
    let inner = channels(s.layers.saturating_sub(1));
    let block = |list: &mut List, name: String| {
        for (i, kernel) in [(0, s.kernel), (2, s.kernel), (4, 1)] {
            list.affine(&format!("{name}.net.{i}"), &[inner, inner, kernel], inner);
        }
    };
    let mut before = s.mels;
    for i in 0..s.layers {
        list.affine(&format!("dvae.encoder.{i}.0"), &[channels(i), before, s.kernel], channels(i));
        before = channels(i);
    }
    (0..s.blocks).for_each(|i| block(list, format!("dvae.encoder.{}", s.layers + i)));
    list.affine(&format!("dvae.encoder.{}", s.layers + s.blocks), &[s.codebook, inner, 1], s.codebook);
    list.affine("dvae.decoder.0", &[inner, s.codebook, 1], inner);
    (0..s.blocks).for_each(|i| block(list, format!("dvae.decoder.{}", 1 + i)));
    let mut before = inner;
    for i in 0..s.layers {
        let out = channels(s.layers - 1 - i);
        list.affine(&format!("dvae.decoder.{}.0.conv", 1 + s.blocks + i), &[out, before, s.kernel], out);
        before = out;
    }
    list.affine(&format!("dvae.decoder.{}", 1 + s.blocks + s.layers), &[s.mels, before, 1], s.mels);
    list.add("dvae.codebook.embed", &[s.codebook, s.tokens]);
    list.add("dvae.codebook.cluster_size", &[s.tokens]);
    list.add("dvae.codebook.embed_avg", &[s.codebook, s.tokens]);
}

//! Where the weights of a synthesizer come from, and the sizes of its networks, which are derived from tensor shapes.

use crate::error::SpeakError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::claims::check_gpt;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::sizes::{InferredGpt, Shapes, Sizes};
use myxtts_model::weights::tensors::View;
use myxtts_model::weights::{ModelFolder, Part, Reading, WeightsError};
use myxtts_model::{GptSizes, Released};
use serde_json::Value as Json;
use std::path::Path;

/// Key in the GPT's entry of a manifest: the fraction of training rows without text.
pub const TEXT_DROPOUT: &str = "text_dropout";

/// Channels per perceiver head, the same in every release.
const PERCEIVER_HEAD: usize = 64;

/// Weights of a model: a folder, or a model that is being trained.
pub trait WeightSource: Sync {
    /// Path that error messages name.
    fn path(&self) -> &Path;

    /// Whether the model has a part.
    fn has_part(&self, part: Part) -> bool;

    /// A tensor, in the release's memory layout.
    fn tensor(&self, name: &str) -> Option<View<'_>>;

    /// The shape of a tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensor(name).map(|view| view.shape.to_vec())
    }

    /// The values of a required tensor, in the release's memory layout.
    fn tensor_f32(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let what = || format!("it has no floating-point tensor {name}");
        let values = self.tensor(name).and_then(|view| view.to_f32());
        values.ok_or_else(|| WeightsError::Content { path: self.path().to_owned(), what: what() })
    }

    /// The shapes of the GPT's tensors.
    fn gpt_shapes(&self) -> Shapes;

    /// The GPT's entry in the manifest: its sizes, or only its heads for imported models.
    fn gpt_config(&self) -> Option<&Json>;

    /// The tokenizer's `vocab.json`; `None` if the model has none.
    fn vocabulary(&self) -> Result<Option<Vec<u8>>, WeightsError>;

    /// Preprocessing of text and recordings in training; `None` for imported models.
    fn reading(&self) -> Option<&Reading>;
}

impl WeightSource for ModelFolder {
    fn path(&self) -> &Path {
        ModelFolder::path(self)
    }

    fn has_part(&self, part: Part) -> bool {
        self.part(part).is_some()
    }

    fn tensor(&self, name: &str) -> Option<View<'_>> {
        ModelFolder::tensor(self, name)
    }

    fn gpt_shapes(&self) -> Shapes {
        let file = self.part(Part::Gpt);
        file.iter()
            .flat_map(|file| {
                file.names().filter_map(|name| Some((name.to_owned(), file.get(name)?.shape.to_vec())))
            })
            .collect()
    }

    fn gpt_config(&self) -> Option<&Json> {
        self.manifest().parts.get("gpt")
    }

    fn vocabulary(&self) -> Result<Option<Vec<u8>>, WeightsError> {
        self.text(VOCABULARY)
    }

    fn reading(&self) -> Option<&Reading> {
        self.manifest().reading.as_ref()
    }
}

/// Returns the GPT's sizes. Tensor shapes give all of them except the number of heads, which is in the manifest, and the ids
/// of the text's start and end tokens, which are in the vocabulary.
pub(crate) fn gpt_sizes(source: &dyn WeightSource, tokenizer: &Tokenizer) -> Result<GptSizes, SpeakError> {
    let config = source.gpt_config();
    let shapes = source.gpt_shapes();
    if config.is_none() || !shapes.contains_key("gpt.text_embedding.weight") {
        let what = "it has no GPT: if a run stopped before the end of that stage, resume it with `myxtts train --resume NAME`";
        return Err(SpeakError::unfit(source, what));
    }
    // Models trained by myxtts store all sizes.
    if let Some(Ok(sizes)) = config.map(|config| serde_json::from_value(config.clone())) {
        return checked(source, tokenizer, &shapes, sizes);
    }
    let heads = config.and_then(|gpt| gpt.get("heads")).and_then(Json::as_u64);
    let found = Sizes::from_shapes(&shapes, heads.and_then(|heads| usize::try_from(heads).ok())).gpt;
    if found.dim == 0 || found.heads == 0 || !found.dim.is_multiple_of(found.heads) {
        let what = format!("{} channels cannot be divided into {} heads", found.dim, found.heads);
        return Err(SpeakError::unfit(source, &what));
    }
    if found.audio_tokens < 3 || found.text_positions < 3 || found.audio_positions < 4 {
        return Err(SpeakError::unfit(source, "its table of codes or positions has too few rows"));
    }
    checked(source, tokenizer, &shapes, gpt_sizes_from_shapes(&found, tokenizer))
}

/// Checks sizes against the vocabulary and every tensor, before anything is allocated by them.
fn checked(
    source: &dyn WeightSource,
    tokenizer: &Tokenizer,
    shapes: &Shapes,
    sizes: GptSizes,
) -> Result<GptSizes, SpeakError> {
    if tokenizer.vocabulary_size() > sizes.text_vocabulary {
        let what = format!(
            "vocab.json has {} tokens but the GPT's table has {} rows: they belong to different models",
            tokenizer.vocabulary_size(),
            sizes.text_vocabulary
        );
        return Err(SpeakError::unfit(source, &what));
    }
    check_gpt(&sizes, shapes).map_err(|what| SpeakError::unfit(source, &what))?;
    Ok(sizes)
}

/// Sizes of a GPT by the shapes of its tensors; perceiver heads have the release's size.
pub fn gpt_sizes_from_shapes(found: &InferredGpt, tokenizer: &Tokenizer) -> GptSizes {
    let mut sizes =
        GptSizes::of(found.layers, found.dim, found.heads, found.text_tokens, found.audio_tokens - 2);
    sizes.max_text = found.text_positions - 2;
    sizes.max_audio = found.audio_positions - 3;
    (sizes.start_text, sizes.stop_text) = (tokenizer.start_id(), tokenizer.stop_id());
    sizes.conditioning.mels = found.mels;
    sizes.conditioning.blocks = found.conditioning_layers;
    sizes.perceiver.latents = found.latents;
    sizes.perceiver.depth = found.resampler_layers;
    sizes.perceiver.head_size = PERCEIVER_HEAD;
    sizes.perceiver.heads = (found.resampler_inner / PERCEIVER_HEAD).max(1);
    sizes.perceiver.inner = found.resampler_hidden;
    sizes
}

/// Writes the values of a parameter in the engine's memory layout.
pub(crate) fn fill(source: &dyn WeightSource, one: &Released, out: &mut [f32]) -> Result<(), SpeakError> {
    let wrong = |what| SpeakError::Weights(WeightsError::Content { path: source.path().to_owned(), what });
    let found = source.tensor(&one.name);
    let shape = found.map(|view| view.shape).unwrap_or_default();
    if shape != one.shape {
        return Err(wrong(format!("{} is {shape:?} where {:?} was expected", one.name, one.shape)));
    }
    let real = || wrong(format!("it has no floating-point tensor {}", one.name));
    let view = found.ok_or_else(real)?;
    match view.as_f32() {
        Some(values) => one.to_ours_into(values, out),
        None => one.to_ours_into(&view.to_f32().ok_or_else(real)?, out),
    }
    Ok(())
}

//! What a model folder says of its networks: sizes by the shapes of their tensors, weights in the engine's order.

use super::VoiceError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::sizes::{GptSizes as FoundSizes, Shapes, Sizes};
use myxtts_model::weights::{ModelFolder, Part, WeightsError};
use myxtts_model::{GptSizes, Released};
use serde_json::Value as Json;

/// Channels of a perceiver's head in every release.
const PERCEIVER_HEAD: usize = 64;

/// The shape of a tensor.
pub(super) fn shape_of(folder: &ModelFolder, name: &str) -> Option<Vec<usize>> {
    folder.tensor(name).map(|view| view.shape.to_vec())
}

/// The GPT's sizes: the shapes tell all but its heads, which the manifest knows, and the ids that text begins and ends
/// with, which are the vocabulary's.
pub(super) fn gpt_sizes(folder: &ModelFolder, tokenizer: &Tokenizer) -> Result<GptSizes, VoiceError> {
    // What was trained here says everything itself.
    if let Ok(sizes) = folder.sizes::<GptSizes>("gpt") {
        return Ok(sizes);
    }
    let file = folder.part(Part::Gpt);
    let shapes: Shapes = file
        .iter()
        .flat_map(|file| {
            file.names().filter_map(|name| Some((name.to_owned(), file.get(name)?.shape.to_vec())))
        })
        .collect();
    let heads = folder.manifest().parts.get("gpt").and_then(|gpt| gpt.get("heads")).and_then(Json::as_u64);
    let found = Sizes::of(&shapes, heads.and_then(|heads| usize::try_from(heads).ok())).gpt;
    if found.dim == 0 || found.heads == 0 || !found.dim.is_multiple_of(found.heads) {
        let what = format!("{} channels are not those of {} heads", found.dim, found.heads);
        return Err(VoiceError::unfit(folder, &what));
    }
    if found.audio_tokens < 3 || found.text_positions < 3 || found.audio_positions < 4 {
        return Err(VoiceError::unfit(folder, "a table of codes or positions has hardly any rows"));
    }
    if tokenizer.vocabulary_size() > found.text_tokens {
        let what = format!(
            "vocab.json has {} tokens and the GPT's table {} rows: they are of different models",
            tokenizer.vocabulary_size(),
            found.text_tokens
        );
        return Err(VoiceError::unfit(folder, &what));
    }
    Ok(sizes_of(&found, tokenizer))
}

/// A GPT as the shapes of its tensors tell it; heads of the perceiver are the release's.
pub(crate) fn sizes_of(found: &FoundSizes, tokenizer: &Tokenizer) -> GptSizes {
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

/// The numbers of a parameter in the engine's order.
pub(super) fn weights(folder: &ModelFolder, one: &Released) -> Result<Vec<f32>, VoiceError> {
    let found = shape_of(folder, &one.name).unwrap_or_default();
    if found != one.shape {
        let what = format!("{} is {found:?} where {:?} was expected", one.name, one.shape);
        return Err(WeightsError::Content { path: folder.path().to_owned(), what }.into());
    }
    Ok(one.to_ours(&folder.numbers(&one.name)?))
}

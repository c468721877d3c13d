//! Where networks that speak are taken from, and what that says of them: sizes by the shapes of their tensors, weights in the
//! engine's order.

use crate::error::SpeakError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::claims::check_gpt;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::sizes::{FoundGpt, Shapes, Sizes};
use myxtts_model::weights::tensors::View;
use myxtts_model::weights::{ModelFolder, Part, Reading, WeightsError};
use myxtts_model::{GptSizes, Released};
use serde_json::Value as Json;
use std::path::Path;

/// In a manifest, beside the sizes of a GPT: the share of its rows that had no text in training.
pub const TEXT_DROPOUT: &str = "text_dropout";

/// Channels of a perceiver's head in every release.
const PERCEIVER_HEAD: usize = 64;

/// What can speak: a folder, or a model that is still being trained.
pub trait Source: Sync {
    /// How errors name it.
    fn place(&self) -> &Path;

    /// Whether a part is there.
    fn holds(&self, part: Part) -> bool;

    /// A tensor, in its release order.
    fn tensor(&self, name: &str) -> Option<View<'_>>;

    /// The shape of a tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensor(name).map(|view| view.shape.to_vec())
    }

    /// A tensor that must be there, in its release order.
    fn numbers(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let what = || format!("it has no tensor {name} of real numbers");
        let numbers = self.tensor(name).and_then(|view| view.to_f32());
        numbers.ok_or_else(|| WeightsError::Content { path: self.place().to_owned(), what: what() })
    }

    /// The shapes of the GPT's tensors.
    fn gpt_shapes(&self) -> Shapes;

    /// What is said of the GPT's sizes beside them.
    fn gpt_said(&self) -> Option<&Json>;

    /// The vocabulary text is cut into.
    fn vocabulary(&self) -> Result<Option<Vec<u8>>, WeightsError>;

    /// How text and recordings were read in training, where that is known.
    fn reading(&self) -> Option<&Reading>;
}

impl Source for ModelFolder {
    fn place(&self) -> &Path {
        self.path()
    }

    fn holds(&self, part: Part) -> bool {
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

    fn gpt_said(&self) -> Option<&Json> {
        self.manifest().parts.get("gpt")
    }

    fn vocabulary(&self) -> Result<Option<Vec<u8>>, WeightsError> {
        self.text(VOCABULARY)
    }

    fn reading(&self) -> Option<&Reading> {
        self.manifest().reading.as_ref()
    }
}

/// The GPT's sizes: the shapes tell all but its heads, which the manifest knows, and the ids that text begins and ends
/// with, which are the vocabulary's.
pub(crate) fn gpt_sizes(source: &dyn Source, tokenizer: &Tokenizer) -> Result<GptSizes, SpeakError> {
    let said = source.gpt_said();
    let shapes = source.gpt_shapes();
    if said.is_none() || !shapes.contains_key("gpt.text_embedding.weight") {
        let what = "it has no GPT: a run that was stopped before the end of that stage goes on with `myxtts train --resume`";
        return Err(SpeakError::unfit(source, what));
    }
    // What was trained here says everything itself.
    if let Some(Ok(sizes)) = said.map(|said| serde_json::from_value(said.clone())) {
        return checked(source, tokenizer, &shapes, sizes);
    }
    let heads = said.and_then(|gpt| gpt.get("heads")).and_then(Json::as_u64);
    let found = Sizes::of(&shapes, heads.and_then(|heads| usize::try_from(heads).ok())).gpt;
    if found.dim == 0 || found.heads == 0 || !found.dim.is_multiple_of(found.heads) {
        let what = format!("{} channels are not those of {} heads", found.dim, found.heads);
        return Err(SpeakError::unfit(source, &what));
    }
    if found.audio_tokens < 3 || found.text_positions < 3 || found.audio_positions < 4 {
        return Err(SpeakError::unfit(source, "a table of codes or positions has hardly any rows"));
    }
    checked(source, tokenizer, &shapes, sizes_of(&found, tokenizer))
}

/// Sizes that the vocabulary and every tensor agree with: before anything is allocated by them.
fn checked(
    source: &dyn Source,
    tokenizer: &Tokenizer,
    shapes: &Shapes,
    sizes: GptSizes,
) -> Result<GptSizes, SpeakError> {
    if tokenizer.vocabulary_size() > sizes.text_vocabulary {
        let what = format!(
            "vocab.json has {} tokens and the GPT's table {} rows: they are of different models",
            tokenizer.vocabulary_size(),
            sizes.text_vocabulary
        );
        return Err(SpeakError::unfit(source, &what));
    }
    check_gpt(&sizes, shapes).map_err(|what| SpeakError::unfit(source, &what))?;
    Ok(sizes)
}

/// A GPT as the shapes of its tensors tell it; heads of the perceiver are the release's.
pub fn sizes_of(found: &FoundGpt, tokenizer: &Tokenizer) -> GptSizes {
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

/// Writes the numbers of a parameter in the engine's order.
pub(crate) fn fill(source: &dyn Source, one: &Released, out: &mut [f32]) -> Result<(), SpeakError> {
    let wrong = |what| SpeakError::Weights(WeightsError::Content { path: source.place().to_owned(), what });
    let found = source.tensor(&one.name);
    let shape = found.map(|view| view.shape).unwrap_or_default();
    if shape != one.shape {
        return Err(wrong(format!("{} is {shape:?} where {:?} was expected", one.name, one.shape)));
    }
    let real = || wrong(format!("it has no tensor {} of real numbers", one.name));
    let view = found.ok_or_else(real)?;
    match view.as_f32() {
        Some(numbers) => one.to_ours_into(numbers, out),
        None => one.to_ours_into(&view.to_f32().ok_or_else(real)?, out),
    }
    Ok(())
}

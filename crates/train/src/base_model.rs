//! The base model (`--from`): its parts, and how it reads text: its vocabulary, its cleaner, and the preset of its size.

use crate::model::{GPT, check_base};
use crate::preferences::is_set_by_user;
use crate::run_error::RunError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::presets::{Networks, TextIds};
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::{MANIFEST, VOCABULARY};
use myxtts_run::folder::BASE_VOCABULARY_FILE;
use myxtts_run::plan::{Plan, Preset, StageKind};
use myxtts_run::progress::Progress;
use myxtts_text::Cleaner;
use std::path::Path;

/// The preset whose GPT has the layers and the width in a manifest.
fn preset_of(gpt: &serde_json::Value) -> Option<Preset> {
    let size = |key: &str| gpt.get(key)?.as_u64();
    let (layers, width) = (size("layers")?, size("width")?);
    Preset::ALL.into_iter().find(|preset| {
        let sizes = Networks::of(*preset, TextIds::v2()).gpt;
        (sizes.layers as u64, sizes.width as u64) == (layers, width)
    })
}

/// The parts of the base model.
#[derive(Clone, Debug)]
pub struct BaseParts(Vec<String>);

impl BaseParts {
    /// Reads their names from a model folder; `None` if the folder has no model.
    pub fn open(from: &Path) -> Result<Option<BaseParts>, RunError> {
        if !from.join(MANIFEST).is_file() {
            return Ok(None);
        }
        Ok(Some(ModelFolder::read_manifest(from)?.parts.into_keys().collect()))
    }

    /// Whether the model has a part, by its name in the manifest.
    pub fn has(&self, part: &str) -> bool {
        self.0.iter().any(|own| own == part)
    }
}

impl FromIterator<String> for BaseParts {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> BaseParts {
        BaseParts(names.into_iter().collect())
    }
}

/// How the base model reads text.
pub struct BaseText {
    /// Vocabulary of the model's text tokens.
    pub vocabulary: Tokenizer,
    /// The cleaner that the vocabulary was trained with.
    cleaner: Cleaner,
    /// The preset whose GPT has the size of the model's; `None` if there is none.
    preset: Option<Preset>,
}

impl BaseText {
    /// Reads the folder of the base model. `stage` is the only stage to train; `None` trains all. Returns `None` if the model
    /// has no GPT, the only part that reads text tokens.
    pub fn load(from: &Path, stage: Option<StageKind>) -> Result<Option<BaseText>, RunError> {
        let owned = || from.to_owned();
        check_base(from, stage)?;
        let folder = ModelFolder::open(from)?;
        if !folder.manifest().parts.contains_key(GPT) {
            return Ok(None);
        }
        let Some(bytes) = folder.text(VOCABULARY)? else {
            return Err(RunError::NoVocabulary { from: owned() });
        };
        let cleaner = match &folder.manifest().reading {
            Some(reading) => {
                let unknown =
                    |_| RunError::UnknownCleaner { from: owned(), cleaner: reading.cleaner.clone() };
                reading.cleaner.parse().map_err(unknown)?
            }
            None => Cleaner::Default,
        };
        let vocabulary = Tokenizer::from_bytes(&bytes, &from.join(VOCABULARY))?;
        let preset = folder.manifest().parts.get(GPT).and_then(preset_of);
        Ok(Some(BaseText { vocabulary, cleaner, preset }))
    }

    /// Sets the preset of the model's size in a plan, unless the user names one: learning rates and steps depend on it.
    pub(crate) fn apply_preset(&self, plan: &mut Plan, progress: &dyn Progress) {
        let Some(preset) = self.preset.filter(|preset| *preset != plan.model.preset) else { return };
        if !is_set_by_user(plan, "model.preset") {
            progress.say(&format!("model.preset = {}: the size of the model", preset.name()));
            plan.model.preset = preset;
        }
    }

    /// Sets the cleaner of the model in a plan, unless the user names one.
    pub fn apply_cleaner(&self, plan: &mut Plan, progress: &dyn Progress) {
        if plan.data.cleaner.is_some() && is_set_by_user(plan, "data.cleaner") {
            return;
        }
        if self.cleaner != Cleaner::Default {
            progress.say(&format!("data.cleaner = {}: the model was trained with it", self.cleaner));
        }
        plan.data.cleaner = Some(self.cleaner.to_string());
    }
}

/// The vocabulary that the base model of a run had when the run began; `None` if it began from scratch.
pub fn base_vocabulary(run: &Path) -> Result<Option<Tokenizer>, RunError> {
    let path = run.join(BASE_VOCABULARY_FILE);
    Ok(if path.is_file() { Some(Tokenizer::load(&path)?) } else { None })
}

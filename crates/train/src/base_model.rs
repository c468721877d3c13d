//! The model that training begins from (`--from`): how it reads text.

use crate::preferences::is_set_by_user;
use crate::run_error::RunError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::folder::{MANIFEST, VOCABULARY};
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::folder::BASE_VOCABULARY_FILE;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::Progress;
use myxtts_text::Cleaner;
use std::path::Path;

/// How the model that training begins from reads text.
pub struct BaseText {
    /// Its vocabulary.
    pub vocabulary: Tokenizer,
    /// The cleaner that the vocabulary was trained with.
    cleaner: Cleaner,
}

impl BaseText {
    /// Reads it from a model folder that `stage`, or every stage, begins from; `None` where the model has no GPT, the only part
    /// that reads text tokens.
    pub fn load(from: &Path, stage: Option<StageKind>) -> Result<Option<BaseText>, RunError> {
        let owned = || from.to_owned();
        if !from.join(MANIFEST).is_file() {
            return Err(RunError::NotAModel { from: owned() });
        }
        let folder = ModelFolder::open(from)?;
        if !folder.manifest().parts.contains_key("gpt") {
            return Ok(None);
        }
        if folder.part(Part::Dvae).is_none() && stage != Some(StageKind::Dvae) {
            return Err(RunError::NoDvae { from: owned() });
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
        Ok(Some(BaseText { vocabulary: Tokenizer::from_bytes(&bytes, &from.join(VOCABULARY))?, cleaner }))
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

/// The vocabulary that the base model of a run had when the run began; `None` where it began from scratch.
pub fn base_vocabulary(run: &Path) -> Result<Option<Tokenizer>, RunError> {
    let path = run.join(BASE_VOCABULARY_FILE);
    Ok(if path.is_file() { Some(Tokenizer::load(&path)?) } else { None })
}

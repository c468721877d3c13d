//! The target of `evaluate` and `resynthesize`: a model folder, or a run that has one.

use std::path::{Path, PathBuf};

use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::MANIFEST;
use myxtts_run::folder::RunFolder;
use myxtts_speak::reference::Concern;
use myxtts_speak::voices::{ResolvedVoice, resolve_voice};
use myxtts_speak::{Synthesizer, Voice};
use myxtts_train::pipeline::MODEL_FOLDER;

use crate::failure::UsageError;
use crate::models_folder;
use crate::output::errln;

/// A model, and the run it belongs to.
pub struct Target {
    /// The model folder; that of a run may not exist yet.
    pub model: PathBuf,
    /// The run; `None` if a model folder was named.
    pub run: Option<RunFolder>,
}

impl Target {
    /// Finds a model folder, a run folder, a run by its name in `runs`, or a model that came with the program, in this order.
    pub fn find(named: &Path, runs: &Path) -> anyhow::Result<Target> {
        if named.join(MANIFEST).is_file() {
            return Ok(Target { model: named.to_owned(), run: None });
        }
        let of_run = |run: RunFolder| Target { model: run.path().join(MODEL_FOLDER), run: Some(run) };
        let as_path = match (named.parent(), named.file_name().and_then(|name| name.to_str())) {
            (Some(parent), Some(name)) if named.is_dir() => RunFolder::view(parent, name).ok(),
            _ => None,
        };
        if let Some(run) = as_path {
            return Ok(of_run(run));
        }
        if named.is_dir() {
            return Err(UsageError(format!(
                "{} is neither a model folder (no {MANIFEST}) nor a run folder (no plan)",
                named.display()
            ))
            .into());
        }
        if named.components().count() > 1 {
            return Err(UsageError(format!("there is no run or model folder {}", named.display())).into());
        }
        let name = named.to_str().ok_or_else(|| UsageError(format!("{} does not exist", named.display())))?;
        if !RunFolder::is_run(&runs.join(name))
            && let Some(model) = models_folder::find_noted(named)
        {
            return Ok(Target { model, run: None });
        }
        Ok(of_run(RunFolder::view(runs, name)?))
    }
}

/// Finds or encodes a voice: a saved one, one of the model, a mix, or recordings that form one voice. Reports how recordings were
/// adapted.
pub fn find_voice(
    synthesizer: &mut Synthesizer,
    folder: &ModelFolder,
    named: &[PathBuf],
) -> anyhow::Result<Voice> {
    let ResolvedVoice { voice, reports } = resolve_voice(synthesizer, folder, named)?;
    for advice in reports.iter().flat_map(|report| &report.advice) {
        if advice.concern == Concern::Adapted {
            errln!("note: {}", advice.text);
        }
    }
    Ok(voice)
}

/// The language of texts that name none: the user's choice, else the only one of the model, else English.
pub fn language(synthesizer: &Synthesizer, named: Option<&str>) -> String {
    match (named, &synthesizer.languages()[..]) {
        (Some(named), _) => named.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => "en".to_owned(),
    }
}

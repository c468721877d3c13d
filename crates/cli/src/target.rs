//! What `evaluate` and `resynthesize` are pointed at: a model folder, or a run that has one.

use std::path::{Path, PathBuf};

use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::MANIFEST;
use myxtts_run::folder::RunFolder;
use myxtts_speak::reference::Concern;
use myxtts_speak::voices::{Chosen, choose};
use myxtts_speak::{Synthesizer, Voice};
use myxtts_train::pipeline::MODEL_FOLDER;

use crate::failure::UsageError;
use crate::output::errln;

/// A model, and the run it is of, where it is a run's.
pub struct Target {
    /// The folder of the model; it need not hold one yet where a run is named.
    pub model: PathBuf,
    /// The run.
    pub run: Option<RunFolder>,
}

impl Target {
    /// Finds a model folder, a run's folder, or a run by its name in `runs`, in this order.
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
                "{} is neither a model folder nor a run: it has no {MANIFEST} and no plan",
                named.display()
            ))
            .into());
        }
        let name = named.to_str().ok_or_else(|| UsageError(format!("there is no {}", named.display())))?;
        Ok(of_run(RunFolder::view(runs, name)?))
    }
}

/// Finds or hears a voice: one that is kept or that the model came with, a mix, or recordings that are heard as one. What was
/// adapted to hear them is said.
pub fn hear(synthesizer: &mut Synthesizer, folder: &ModelFolder, named: &[PathBuf]) -> anyhow::Result<Voice> {
    let Chosen { voice, reports } = choose(synthesizer, folder, named)?;
    for advice in reports.iter().flat_map(|report| &report.advice) {
        if advice.concern == Concern::Adapted {
            errln!("note: {}", advice.text);
        }
    }
    Ok(voice)
}

/// The language that texts without one are in: what the user says, else the model's only one, else English.
pub fn language(synthesizer: &Synthesizer, said: Option<&str>) -> String {
    match (said, &synthesizer.languages()[..]) {
        (Some(said), _) => said.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => "en".to_owned(),
    }
}

//! The model and voice that are used where none is named.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use myxtts_data::utterance::Utterance;
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::MANIFEST;
use myxtts_run::folder::RunFolder;
use myxtts_run::progress::Silent;
use myxtts_speak::voices::{Voices, all_names};
use myxtts_train::corpus::read::{DEMO_FOLDER, DEMO_VOICE_FOLDER, read_from};
use myxtts_train::pipeline::MODEL_FOLDER;

use crate::failure::UsageError;
use crate::models_folder::{self, MODELS_FOLDER};

/// Number of recordings of a run's speaker that form a voice.
const REFERENCES: usize = 3;

/// A model folder.
pub struct FoundModel {
    pub model: PathBuf,
    /// The run that trained it; `None` if it is not in a run folder.
    pub run: Option<RunFolder>,
}

/// Finds the model that is named: a folder, a run folder, the name of a run, or of a model that came with the program. Without a
/// name: `./model`, that of the newest run, or the first that came with the program.
pub fn model(named: Option<&Path>, runs: &Path) -> anyhow::Result<FoundModel> {
    let Some(named) = named else { return default_model(runs) };
    if named.join(MANIFEST).is_file() {
        return Ok(FoundModel { run: run_of(named), model: named.to_owned() });
    }
    let as_run = match (named.parent(), named.file_name().and_then(|name| name.to_str())) {
        (Some(parent), Some(name)) if RunFolder::is_run(named) => RunFolder::view(parent, name).ok(),
        (_, Some(name)) if named.components().count() == 1 && RunFolder::is_run(&runs.join(name)) => {
            RunFolder::view(runs, name).ok()
        }
        _ => None,
    };
    match as_run {
        Some(run) => Ok(FoundModel { model: run.path().join(MODEL_FOLDER), run: Some(run) }),
        None if named.exists() => Ok(FoundModel { model: named.to_owned(), run: None }),
        None => match models_folder::find_noted(named) {
            Some(model) => Ok(FoundModel { model, run: None }),
            None => Err(UsageError(no_model(named, runs)?).into()),
        },
    }
}

fn no_model(named: &Path, runs: &Path) -> anyhow::Result<String> {
    let existing = match &RunFolder::list(runs)?[..] {
        [] => format!("there are no runs in {}", runs.display()),
        names => format!("runs in {}: {}", runs.display(), names.join(", ")),
    };
    let shipped = match &models_folder::all_names()[..] {
        [] => String::new(),
        names => format!("; models in {MODELS_FOLDER}/: {}", names.join(", ")),
    };
    Ok(format!("no run or model folder named {}; {existing}{shipped}", named.display()))
}

fn default_model(runs: &Path) -> anyhow::Result<FoundModel> {
    let here = PathBuf::from(MODEL_FOLDER);
    if here.join(MANIFEST).is_file() {
        return Ok(FoundModel { model: here, run: None });
    }
    let written =
        |model: &Path| std::fs::metadata(model.join(MANIFEST)).and_then(|found| found.modified()).ok();
    let mut from_runs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for name in RunFolder::list(runs)? {
        let model = runs.join(name).join(MODEL_FOLDER);
        from_runs.extend(written(&model).map(|time| (time, model)));
    }
    if let Some((_, model)) = from_runs.into_iter().max() {
        return Ok(FoundModel { run: run_of(&model), model });
    }
    if let Some(model) = models_folder::first_noted() {
        return Ok(FoundModel { model, run: None });
    }
    Err(UsageError(format!(
        "no model found in ./{MODEL_FOLDER}, {}/*/{MODEL_FOLDER} or {MODELS_FOLDER}/: `myxtts train` trains one, \
         `myxtts import` converts a release, --model names one in another folder",
        runs.display()
    ))
    .into())
}

/// The run that a model folder belongs to.
fn run_of(model: &Path) -> Option<RunFolder> {
    let run = model.canonicalize().ok()?.parent()?.to_owned();
    RunFolder::view(run.parent()?, run.file_name()?.to_str()?).ok()
}

/// The default voice: the first saved voice or voice of the model, else recordings of a speaker that its run was trained on.
pub fn voice(folder: &ModelFolder, run: Option<&RunFolder>, language: &str) -> anyhow::Result<Vec<PathBuf>> {
    let voices = Voices::from_folder(folder);
    for name in all_names(folder)? {
        // Voices encoded by other models are skipped.
        if folder.voice(&name).is_some() || matches!(voices.own(&name), Ok(Some(_))) {
            return Ok(vec![PathBuf::from(name)]);
        }
    }
    let references = run.map(|run| references(run, language)).unwrap_or_default();
    if references.is_empty() {
        return Err(UsageError(format!(
            "{} has no voice: give a recording with --voice FILE, or save a voice with `myxtts voice add`",
            folder.path().display()
        ))
        .into());
    }
    Ok(references)
}

/// Recordings of the first speaker in the corpora of a run, of one who speaks the language if there is one.
fn references(run: &RunFolder, language: &str) -> Vec<PathBuf> {
    let Ok(plan) = run.plan() else { return Vec::new() };
    let roots = match &plan.data.train_data[..] {
        [] => [DEMO_VOICE_FOLDER, DEMO_FOLDER].map(PathBuf::from).to_vec(),
        named => named.to_vec(),
    };
    for root in roots.iter().filter(|root| root.exists()) {
        let Ok(corpus) = read_from(root, &plan.data, &Silent) else { continue };
        let there: Vec<&Utterance> = corpus.utterances.iter().filter(|one| one.audio.is_file()).collect();
        let first = there.iter().find(|one| one.language == language).or(there.first());
        let Some(first) = first else { continue };
        let same = |one: &&&Utterance| one.speaker == first.speaker && one.language == first.language;
        return there.iter().filter(same).take(REFERENCES).map(|one| one.audio.clone()).collect();
    }
    Vec::new()
}

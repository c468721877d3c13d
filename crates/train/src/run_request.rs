//! The request of a run apart from its settings (its stage and base model), and the checks of a resumed run: the corpus must
//! be the same, and only some settings may change.

use crate::pipeline::{MODEL_FOLDER, Request};
use crate::run_error::RunError;
use crate::stages;
use myxtts_data::record::RecordSource;
use myxtts_run::events::Event;
use myxtts_run::folder::{FolderError, REQUEST_FILE, RunFolder};
use myxtts_run::plan::{Plan, ResumeChanges, StageKind};
use myxtts_run::progress::Progress;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a resumed run waits for its previous process, while the system is still removing that process.
const EXIT_PATIENCE: Duration = Duration::from_secs(30);
/// Interval of the checks while it waits.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The kind of event that repeats the request.
pub const REQUEST_EVENT: &str = "request";
/// The kind of event with the identity of the corpus.
pub const CORPUS_EVENT: &str = "corpus";

/// What a run trains apart from its settings. Stored in its folder, so that a resumed run does the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The only stage to train; `None` trains every stage.
    pub stage: Option<StageKind>,
    /// The model folder to start from; `None` trains from scratch.
    pub from: Option<PathBuf>,
}

impl From<&RunRequest> for Request {
    fn from(request: &RunRequest) -> Request {
        Request { only: request.stage, from: request.from.clone() }
    }
}

impl RunRequest {
    /// Reads the request of a run: from its file, or from its event log if the file is lost or damaged.
    pub fn load(folder: &RunFolder, progress: &dyn Progress) -> Result<RunRequest, RunError> {
        let path = folder.path().join(REQUEST_FILE);
        let stored = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("is missing".to_owned()),
            Err(source) => return Err(RunError::Read { path, source }),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("is damaged ({error})")),
        };
        let why = match stored {
            Ok(request) => return Ok(request),
            Err(why) => why,
        };
        let events = folder.events().read().map_err(|source| read_events(folder, source))?;
        let last = events.into_iter().rev().find(|event| event.kind == REQUEST_EVENT);
        let logged =
            last.and_then(|event| serde_json::from_value(serde_json::Value::Object(event.fields)).ok());
        let Some(request): Option<RunRequest> = logged else {
            return Err(RunError::LostRequest { path, why });
        };
        progress.say(&format!(
            "note: {} {why}: the request is taken from the event log of the run",
            path.display()
        ));
        myxtts_run::durable::write(&path, &request.to_json())?;
        Ok(request)
    }

    /// The content of its file.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and paths are JSON")
    }
}

fn read_events(folder: &RunFolder, source: std::io::Error) -> RunError {
    RunError::ReadEvents { run: folder.name().to_owned(), source }
}

/// The identity of a corpus, for the event log.
pub(crate) fn corpus_event(source: &dyn RecordSource) -> serde_json::Value {
    let fingerprint: String = source.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "records": source.len(), "fingerprint": fingerprint })
}

/// Refuses a corpus that has changed since the first stage of a run.
pub(crate) fn check_corpus(folder: &RunFolder, source: &dyn RecordSource) -> Result<(), RunError> {
    let (mut before, mut has_begun) = (None, false);
    let take = |event: Event| match event.kind.as_str() {
        CORPUS_EVENT => before = Some(event.fields),
        "stage" => has_begun = true,
        _ => {}
    };
    folder.events().read_with(take).map_err(|source| read_events(folder, source))?;
    let (now, before) = (corpus_event(source), serde_json::Value::Object(before.unwrap_or_default()));
    if !has_begun || before["fingerprint"].is_null() || before["fingerprint"] == now["fingerprint"] {
        return Ok(());
    }
    Err(RunError::CorpusChanged {
        run: folder.name().to_owned(),
        before: before["records"].to_string(),
        now: now["records"].to_string(),
        model: folder.path().join(MODEL_FOLDER),
    })
}

/// Opens the folder of a run to resume it. Waits for its previous process if the system is still removing that process.
pub(crate) fn open_for_resume(
    runs: &Path,
    name: &str,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<(RunFolder, Plan), FolderError> {
    let began = Instant::now();
    let mut reported = false;
    loop {
        match RunFolder::resume(runs, name) {
            Err(FolderError::Lock(held))
                if held.is_exiting() && began.elapsed() < EXIT_PATIENCE && !stop.load(Ordering::Relaxed) =>
            {
                if !reported {
                    let seconds = EXIT_PATIENCE.as_secs();
                    progress
                        .say(&format!("{}: it is exiting, waiting up to {seconds} s for it", held.holder()));
                    reported = true;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            opened => return opened,
        }
    }
}

/// The stages in the order they run, and the setting with the number of steps of each.
pub(crate) const STEP_SETTINGS: [(StageKind, &str); 3] = [
    (StageKind::Dvae, "training.dvae_steps"),
    (StageKind::Gpt, "training.gpt_steps"),
    (StageKind::Decoder, "training.decoder_steps"),
];

/// Applies the settings given `now`, with `--resume`, to the plan of a run, and saves them with the run. Those that cannot
/// change are refused by name.
pub(crate) fn change_settings(
    folder: &RunFolder,
    request: &RunRequest,
    plan: &mut Plan,
    now: &Plan,
    progress: &dyn Progress,
) -> Result<(), RunError> {
    let events = folder.events().read().map_err(|source| read_events(folder, source))?;
    let seen = |kind: &str, stage: StageKind| {
        let name = stages::name(stage);
        events
            .iter()
            .any(|event| event.kind == kind && event.fields.get("stage").is_some_and(|stage| stage == name))
    };
    // A stage that is finished, or that another has followed, is not run again.
    let is_over = |at: usize| {
        seen("stage_end", STEP_SETTINGS[at].0)
            || STEP_SETTINGS[at + 1..].iter().any(|(later, _)| seen("stage", *later))
    };
    let settled = |path: &str| {
        let at = STEP_SETTINGS.iter().position(|(_, steps)| *steps == path)?;
        let (stage, run) = (stages::name(STEP_SETTINGS[at].0), folder.path().display());
        if let Some(only) = request.stage.filter(|&only| only != STEP_SETTINGS[at].0) {
            return Some(format!(
                "this run trains the stage `{}` only; `train --from {run}/model --stage {stage}` trains `{stage}` in a new run",
                stages::name(only)
            ));
        }
        is_over(at).then(|| format!(
            "the stage `{stage}` of this run is finished; `train --from {run}/model` trains it further in a new run"
        ))
    };
    let ResumeChanges { applied: taken, refused } = plan.apply_changes(now, &settled);
    if !refused.is_empty() {
        return Err(RunError::FixedSettings { run: folder.name().to_owned(), refused });
    }
    if !taken.is_empty() {
        folder.replace_plan(plan)?;
        folder.event_log()?.append_durably("settings", json!({ "changed": taken }))?;
        taken.iter().for_each(|line| progress.say(&format!("changed      {line}")));
    }
    Ok(())
}

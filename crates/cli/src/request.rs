//! What a run is asked beside its settings: which stage, and from which model. Kept in its folder for when it goes on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use myxtts_data::record::RecordSource;
use myxtts_data::text::Cleaner;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::folder::{MANIFEST, VOCABULARY};
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::events::Event;
use myxtts_run::folder::{BASE_VOCABULARY, FolderError, REQUEST, RunFolder};
use myxtts_run::plan::{Plan, Stage};
use myxtts_train::TrainError;
use myxtts_train::pipeline::MODEL_FOLDER;
use serde::{Deserialize, Serialize};

use crate::failure::UsageError;
use crate::output::errln;
use crate::settings::Settings;

/// How long a run that goes on waits for the process that trained it before and is being taken down.
const DYING: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The kind of event that repeats the request.
pub const EVENT: &str = "request";
/// The kind of event that says what was learnt from.
pub const CORPUS_EVENT: &str = "corpus";

/// What is asked beside the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// This stage alone.
    pub stage: Option<Stage>,
    /// The model folder it begins from.
    pub from: Option<PathBuf>,
}

impl Asked {
    /// What the run was asked when it began: by its file, or by its log where the file is lost or damaged.
    pub fn of(folder: &RunFolder) -> anyhow::Result<Asked> {
        let path = folder.path().join(REQUEST);
        let kept = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("is not there".to_owned()),
            read => {
                let bytes = read.with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_slice(&bytes).map_err(|error| format!("is damaged ({error})"))
            }
        };
        let why = match kept {
            Ok(asked) => return Ok(asked),
            Err(why) => why,
        };
        let events =
            folder.events().read().with_context(|| format!("cannot read the log of {}", folder.name()))?;
        let last = events.into_iter().rev().find(|event| event.kind == EVENT);
        let told =
            last.and_then(|event| serde_json::from_value(serde_json::Value::Object(event.fields)).ok());
        let Some(asked): Option<Asked> = told else {
            return Err(UsageError(format!(
                "{} {why}, and the log of the run does not repeat it: write it again, \
                 {{\"stage\":null,\"from\":null}} for all stages from nothing, with \"dvae\", \"gpt\" or \"decoder\" for a \
                 single stage, and with the model folder it began from",
                path.display()
            ))
            .into());
        };
        errln!("note: {} {why}: what the run was asked is taken from its log", path.display());
        myxtts_run::durable::write(&path, &serde_json::to_vec(&asked)?)?;
        Ok(asked)
    }
}

/// What the log keeps of a corpus.
pub fn corpus_event(source: &dyn RecordSource) -> serde_json::Value {
    let fingerprint: String = source.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!({ "records": source.len(), "fingerprint": fingerprint })
}

/// Refuses a corpus that has changed since the first stage of a run: what the stages have made of it would not fit together.
pub fn check_corpus(folder: &RunFolder, source: &dyn RecordSource) -> anyhow::Result<()> {
    let (mut then, mut begun) = (None, false);
    let took = |event: Event| match event.kind.as_str() {
        CORPUS_EVENT => then = Some(event.fields),
        "stage" => begun = true,
        _ => {}
    };
    folder.events().read_with(took).with_context(|| format!("cannot read the log of {}", folder.name()))?;
    let (now, then) = (corpus_event(source), serde_json::Value::Object(then.unwrap_or_default()));
    if !begun || then["fingerprint"].is_null() || then["fingerprint"] == now["fingerprint"] {
        return Ok(());
    }
    Err(TrainError::NoData(format!(
        "the corpus is not the one that the run {} has trained on: it had {} usable clips and has {}, or some have changed. Put \
         it back, or begin a new run on it with --from {}",
        folder.name(),
        then["records"],
        now["records"],
        folder.path().join(MODEL_FOLDER).display()
    ))
    .into())
}

/// Opens a run to go on with it. One whose process is just being taken down by the system is waited for.
pub fn resume(runs: &Path, name: &str, stop: &AtomicBool) -> Result<(RunFolder, Plan), FolderError> {
    let began = Instant::now();
    let mut said = false;
    loop {
        match RunFolder::resume(runs, name) {
            Err(FolderError::Lock(held))
                if held.is_dying() && began.elapsed() < DYING && !stop.load(Ordering::Relaxed) =>
            {
                if !said {
                    errln!(
                        "{}: it is being taken down, waiting up to {} s for it",
                        held.holder(),
                        DYING.as_secs()
                    );
                    said = true;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            opened => return opened,
        }
    }
}

/// How the model that training begins from reads text.
pub struct ModelText {
    /// Its vocabulary.
    pub vocabulary: Tokenizer,
    /// The cleaner that the vocabulary was made with.
    cleaner: Cleaner,
}

impl ModelText {
    /// Takes over the model's cleaner, unless the user names one.
    pub fn follow(&self, plan: &mut Plan) {
        if plan.value("data.cleaner").is_some_and(|value| Settings::is_users(&value.origin))
            && plan.data.cleaner.is_some()
        {
            return;
        }
        if self.cleaner != Cleaner::Default {
            errln!("data.cleaner = {}: the model was trained with it", self.cleaner);
        }
        plan.data.cleaner = Some(self.cleaner.to_string());
    }
}

/// How a model folder that a stage, or all of them, shall begin from reads text; none where it has no GPT, which alone
/// knows what tokens mean.
pub fn model_text(from: &Path, stage: Option<Stage>) -> anyhow::Result<Option<ModelText>> {
    if !from.join(MANIFEST).is_file() {
        return Err(UsageError(format!(
            "{} is no model: `myxtts import` makes one of a checkpoint, and a run has one in its folder `model`",
            from.display()
        ))
        .into());
    }
    let folder = ModelFolder::open(from)?;
    if !folder.manifest().parts.contains_key("gpt") {
        return Ok(None);
    }
    if folder.part(Part::Dvae).is_none() && stage != Some(Stage::Dvae) {
        return Err(UsageError(format!(
            "{} has a GPT and no DVAE: a new one would give its audio codes another meaning; import the model again with --dvae",
            from.display()
        ))
        .into());
    }
    let Some(bytes) = folder.text(VOCABULARY)? else {
        return Err(UsageError(format!(
            "{} has a GPT and no {VOCABULARY}: nothing says what its text tokens mean; import it again with --vocab",
            from.display()
        ))
        .into());
    };
    let cleaner = match &folder.manifest().reading {
        Some(reading) => reading.cleaner.parse().map_err(|_| {
            UsageError(format!(
                "{} reads text with the cleaner {:?}, which this program lacks: take a newer one",
                from.display(),
                reading.cleaner
            ))
        })?,
        None => Cleaner::Default,
    };
    Ok(Some(ModelText { vocabulary: Tokenizer::from_bytes(&bytes, &from.join(VOCABULARY))?, cleaner }))
}

/// The vocabulary of the model a run began from, as it was then.
pub fn base_of(run: &Path) -> anyhow::Result<Option<Tokenizer>> {
    let path = run.join(BASE_VOCABULARY);
    Ok(if path.is_file() { Some(Tokenizer::load(&path)?) } else { None })
}

//! One run of `myxtts train`: from its settings to a run folder, its corpus, and the trained model on disk.

use crate::base_model::{BaseParts, BaseText, base_vocabulary};
use crate::briefing;
use crate::corpus::{Assembled, Assembly, RecordMode, SavedSplit};
use crate::devices::{DeviceRequest, RunDevices};
use crate::error::TrainError;
use crate::evaluate::listener::Listener;
use crate::model::{DECODER, GPT, check_base};
use crate::notes::{PlannedRun, corpus_notes, settings_notes};
use crate::pipeline::{self, Devices, MODEL_FOLDER, Request, due_stages, trained_stages};
use crate::ranks::Ranks;
use crate::run_error::RunError;
use crate::run_request::{
    self, CORPUS_EVENT, REQUEST_EVENT, RunRequest, check_corpus, corpus_event, open_for_resume,
};
use crate::session::Session;
use crate::stage_context::ORDER;
use crate::strategy::split;
use crate::training_data::Corpus;
use crate::tune::host::{Host, host_memory};
use crate::{low_data, stages, tune};
use myxtts_model::weights::folder::MANIFEST;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::folder::{BASE_VOCABULARY_FILE, FolderError, REQUEST_FILE, RunFolder};
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::Progress;
use myxtts_tensor::cuda::gemm;
use myxtts_text::Cleaner;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time limit of a speech recogniser for one spoken sample: training waits for it.
const RECOGNITION_TIMEOUT: Duration = Duration::from_secs(120);

/// A run with its folder, ready to train.
pub struct TrainingRun {
    folder: RunFolder,
    plan: Plan,
    request: RunRequest,
    devices: RunDevices,
    is_resumed: bool,
}

impl TrainingRun {
    /// Begins a new run: checks its settings and base model, and makes its folder. Without a `name`, a number is chosen.
    pub fn begin(
        name: Option<&str>,
        mut plan: Plan,
        request: RunRequest,
        devices: RunDevices,
        progress: &dyn Progress,
    ) -> Result<TrainingRun, RunError> {
        RecordMode::check_columns(&plan.data)?;
        recogniser(&plan)?;
        plan.begin_tuning();
        let trains_gpt = request.stage.is_none_or(|stage| stage == StageKind::Gpt);
        if trains_gpt && plan.data.frame_budget.is_none() && !plan.is_pending("data.batch_size") {
            // Before anything is written. The other stages use as many replicas as fit, and a tuned batch size always fits.
            split(plan.data.batch_size, devices.machines.len())?;
        }
        plan.strategy = Some(devices.summary());
        let parts = match &request.from {
            Some(from) => {
                check_base(from, request.stage)?;
                BaseParts::open(from)?
            }
            None => None,
        };
        check_steps(&plan, &request, parts.as_ref())?;
        let base = match &request.from {
            Some(from) => BaseText::load(from, request.stage)?,
            None => None,
        };
        if let Some(base) = &base {
            base.apply_cleaner(&mut plan, progress);
            base.apply_preset(&mut plan, progress);
        }
        let (machine, only) = (devices.first(), request.stage);
        let planned = PlannedRun { plan: &plan, machine, only, base: parts.as_ref() };
        settings_notes(&planned).iter().for_each(|note| progress.say(&format!("note: {note}")));
        let (request_file, base) = (request.to_json(), base.map(|base| base.vocabulary.to_json()));
        let mut files = vec![(REQUEST_FILE, &request_file[..])];
        files.extend(base.as_deref().map(|base| (BASE_VOCABULARY_FILE, base)));
        let folder = RunFolder::create_with(disk_from_env(), &plan.training.runs_dir, name, &plan, &files)?;
        Ok(TrainingRun { folder, plan, request, devices, is_resumed: false })
    }

    /// Opens a run that was stopped. `settings` are those of this start: they name the folder of all runs, and the settings that
    /// change from now on.
    pub fn resume(
        name: &str,
        settings: &Plan,
        devices: &DeviceRequest<'_>,
        stop: &AtomicBool,
        progress: &dyn Progress,
    ) -> Result<TrainingRun, RunError> {
        let (folder, mut plan) = open_for_resume(&settings.training.runs_dir, name, stop, progress)?;
        let request = RunRequest::load(&folder, progress)?;
        run_request::change_settings(&folder, &request, &mut plan, settings, progress)?;
        let devices = devices.choose(&plan)?;
        Ok(TrainingRun { folder, plan, request, devices, is_resumed: true })
    }

    /// Name of the run.
    pub fn name(&self) -> &str {
        self.folder.name()
    }

    /// What it trains apart from its settings.
    pub fn request(&self) -> &RunRequest {
        &self.request
    }

    /// The run folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The devices it trains on.
    pub fn devices(&self) -> &RunDevices {
        &self.devices
    }

    /// Trains every stage that is due, and returns the model folder. With `ranks` this process is rank 0.
    pub fn train(
        &mut self,
        ranks: Option<&Arc<Ranks>>,
        stop: Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<PathBuf, RunError> {
        let algorithms = self.folder.algorithms();
        gemm::pin(algorithms.clone());
        let base = base_vocabulary(self.path())?;
        let Assembled { corpus, cleaner, .. } = self.open_corpus(base.as_ref(), &stop, progress)?;
        self.devices.lines().iter().for_each(|line| progress.say(line));
        let request = Request::from(&self.request);
        self.choose_settings(&request, &corpus, cleaner, progress)?;
        let (plan, machines) = (&self.plan, &self.devices.machines);
        if self.is_resumed && !self.path().join(MODEL_FOLDER).join(MANIFEST).is_file() {
            // Steps may have changed, and no stage has written the model yet.
            let parts = self.request.from.as_deref().map(BaseParts::open).transpose()?.flatten();
            if self.request.from.is_none() || parts.is_some() {
                check_steps(plan, &self.request, parts.as_ref())?;
            }
        }
        // Other ranks may be on other machines, with memory of their own.
        if ranks.is_none()
            && let Some(line) = host_memory(plan, &request, &corpus, machines, Host::detect())?
        {
            progress.say(&line);
        }
        if let Some(ranks) = ranks {
            briefing::send(ranks, plan, base.as_ref(), &corpus, algorithms)?;
        }
        corpus_notes(&corpus, &plan.data)?.iter().for_each(|note| progress.say(note));
        let mut session = self.session(stop, progress)?;
        session.events.append_durably(REQUEST_EVENT, &self.request)?;
        session.events.append_durably(CORPUS_EVENT, corpus_event(&*corpus.source))?;
        session.events.append_durably("strategy", self.devices.event())?;
        if let Some(tuning) = &plan.tuning {
            session.events.append_durably("tuning", tuning)?;
        }
        let trained = pipeline::train(&mut session, &request, &corpus, Devices { machines, ranks });
        // If a rank was lost, every other error is a consequence of that.
        let lost = |error| ranks.and_then(|ranks| ranks.health().cause()).map_or(error, TrainError::from);
        trained.map_err(lost)?;
        Ok(self.path().join(MODEL_FOLDER))
    }

    /// Opens the corpus of the run, with the split it began with, and saves the split of a new one.
    fn open_corpus(
        &self,
        base: Option<&myxtts_data::tokenizer::Tokenizer>,
        stop: &Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<Assembled, RunError> {
        let has_begun = self.is_resumed && !self.folder.checkpoint_store()?.list()?.checkpoints.is_empty();
        let saved_split = SavedSplit::load(self.path(), has_begun)?;
        let assembly = Assembly {
            base,
            saved_split: saved_split.as_ref(),
            data_gpu: self.devices.data_gpu(),
            ..Assembly::default()
        };
        let assembled = match assembly.assemble(&self.plan, stop, progress) {
            Err(error) if error.is_stopped() => {
                return Err(RunError::StoppedEarly { run: self.name().to_owned() });
            }
            assembled => assembled?,
        };
        let corpus = &assembled.corpus;
        progress.say(&format!(
            "run {}: {} training clips, {} validation clips",
            self.name(),
            corpus.train.len(),
            corpus.validation.len()
        ));
        check_corpus(&self.folder, &*corpus.source)?;
        assembled.validation_lines.iter().for_each(|line| progress.say(line));
        if saved_split.is_none() {
            assembled.validation.save(&self.folder)?;
        }
        Ok(assembled)
    }

    /// Chooses the settings left unset that depend on the machine and the corpus: once per run, saved in its folder and reported.
    fn choose_settings(
        &mut self,
        request: &Request,
        corpus: &Corpus,
        cleaner: Cleaner,
        progress: &dyn Progress,
    ) -> Result<(), RunError> {
        let TrainingRun { folder, plan, devices, .. } = self;
        // Saved for a resumed run, and for speaking with the model.
        let cleaner_is_chosen = plan.data.cleaner.is_none();
        plan.data.cleaner.get_or_insert_with(|| cleaner.to_string());
        if plan.tuning.as_ref().is_some_and(|tuning| !tuning.pending.is_empty()) {
            let chosen = tune::tuned(plan, request, corpus, &devices.machines).unwrap_or_else(|error| {
                // A plan that is not possible fails where it is used, with its own message.
                progress.say(&format!("note: no setting is tuned: {error}"));
                Vec::new()
            });
            plan.finish_tuning(&chosen);
            folder.replace_plan(plan)?;
        }
        // A resumed run has these in its plan already, and may no longer find its base model.
        let facts = low_data::Facts::of(corpus);
        let base = request.from.as_deref().map(BaseParts::open).transpose()?.flatten();
        let begins_with = match (&request.from, &base) {
            (None, _) => low_data::Begin::FromNothing,
            (_, Some(base)) if !base.has(GPT) => low_data::Begin::WithoutGpt,
            _ => low_data::Begin::WithGpt,
        };
        let mut chosen = low_data::choose(plan, &facts, begins_with);
        if request.only.is_none()
            && base.is_some_and(|base| base.has(DECODER))
            && !grows_vocabulary(folder.path(), corpus)?
        {
            chosen.extend(low_data::choose_for_new_voice(plan, &facts));
        }
        if !chosen.is_empty() || cleaner_is_chosen {
            folder.replace_plan(plan)?;
            low_data::lines(corpus, begins_with, &chosen).iter().for_each(|line| progress.say(line));
        }
        let changes = plan.tuning.as_ref().map(|tuning| &tuning.changed[..]).unwrap_or_default();
        if let Some(line) = tune::line(changes) {
            progress.say(&line);
        }
        Ok(())
    }

    fn session<'a>(
        &'a self,
        stop: Arc<AtomicBool>,
        progress: &'a dyn Progress,
    ) -> Result<Session<'a>, RunError> {
        let mut session = Session::open(&self.folder, &self.plan, stop, progress)?;
        session.listener = recogniser(&self.plan)?;
        Ok(session)
    }

    /// Removes the folder of a run that failed before its first stage, so that its name is free. Returns whether it did.
    pub fn discard_if_unstarted(self) -> Result<bool, FolderError> {
        self.folder.rollback()
    }
}

/// Whether the corpus has text that the base model's vocabulary lacks: only the GPT can learn it.
fn grows_vocabulary(run: &Path, corpus: &Corpus) -> Result<bool, RunError> {
    let base = base_vocabulary(run)?;
    Ok(base.is_none_or(|base| base.vocabulary_size() < corpus.tokenizer.vocabulary_size()))
}

/// The speech recogniser that checks spoken samples; `None` if the settings name none.
fn recogniser(plan: &Plan) -> Result<Option<Listener>, RunError> {
    Ok(Listener::of(&plan.training)?.map(|listener| listener.with_timeout(RECOGNITION_TIMEOUT)))
}

/// Refuses a run that trains no stage: there would be no model. Stages whose part the base model has do not count, unless the
/// run trains it again.
fn check_steps(plan: &Plan, request: &RunRequest, base: Option<&BaseParts>) -> Result<(), RunError> {
    let has = |part: &str| base.is_some_and(|base| base.has(part));
    let has = base.map(|_| &has as &dyn Fn(&str) -> bool);
    if !due_stages(plan, request.stage, has).is_empty() {
        return Ok(());
    }
    let steps: Vec<String> = trained_stages(plan, request.stage, has)
        .into_iter()
        .map(|stage| format!("training.{}_steps", stages::name(stage)))
        .collect();
    let settings = match &steps[..] {
        [one] => format!("{one} is 0"),
        several => format!("{} are 0", several.join(" and ")),
    };
    let others = match (&request.from, request.stage) {
        (Some(from), None) if steps.len() < ORDER.len() => {
            let trains = if has.is_some_and(|has| has(DECODER)) {
                ", --decoder-steps N trains its decoder"
            } else {
                ""
            };
            format!(", and {} has all other parts (--gpt-steps N trains its GPT{trains})", from.display())
        }
        _ => String::new(),
    };
    Err(RunError::NoSteps { settings: settings + &others })
}

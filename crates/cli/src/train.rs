//! `myxtts train`: from recordings to a voice, stage by stage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use myxtts_model::weights::folder::MANIFEST;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::StageKind;
use myxtts_train::base_model::BaseText;
use myxtts_train::corpus::CorpusSet;
use myxtts_train::corpus::set::IfLocked;
use myxtts_train::devices::DeviceRequest;
use myxtts_train::pipeline::MODEL_FOLDER;
use myxtts_train::ranks::Ranks;
use myxtts_train::run_request::RunRequest;
use myxtts_train::{ComputeDevice, RunError, TrainingRun};

use crate::arguments::{self, device};
use crate::failure::{NotedError, UsageError, exit_of};
use crate::models_folder;
use crate::output::{errln, print};
use crate::progress::Terminal;
use crate::ranks::{self, RankArgs};
use crate::settings::Settings;
use crate::signal::stop_requested;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, in any supported layout; the built-in demo corpus if none is given
    corpus: Vec<PathBuf>,
    /// Train only this stage: tokenizer, dvae, gpt or decoder. Without it, every stage that is missing is trained in order
    #[arg(long, value_name = "STAGE", value_parser = stage_name)]
    stage: Option<StageName>,
    /// Fine-tune this model: a folder (`myxtts import` writes one), or the name of a run or of a model in models/
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Name of the run [default: run- and the next free number, such as run-001]
    #[arg(long)]
    name: Option<String>,
    /// Resume a run that was stopped; on the same device, the result is bit-identical to a run that was not interrupted
    #[arg(long, value_name = "NAME", conflicts_with_all = ["corpus", "stage", "from", "name"])]
    resume: Option<String>,
    /// Device to train on: auto, cpu, cuda or cuda:N. auto follows --multi-gpu, --visible-gpus and --model-gpu
    #[arg(long, default_value = "auto")]
    device: String,
    /// Simulate N GPUs (up to 64) on the CPU, to try a multi-GPU setup without the hardware; with --multi-gpu --device cuda:K, on that GPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    simulate_gpus: Option<u32>,
    /// Fail if --data-gpu or --model-gpu name a GPU that does not exist, instead of falling back to those that do
    #[arg(long)]
    strict_devices: bool,
    /// Decode every clip and compute its features each time it is read, without a cache; to measure the effect of the cache
    #[arg(long)]
    disable_native_loading: bool,
    /// Copy each batch to the GPU only when its step is queued; to measure the effect of prefetching
    #[arg(long)]
    disable_gpu_prefetch: bool,
    /// Wait for every step before queuing the next; to measure the effect of overlapping CPU and GPU
    #[arg(long)]
    disable_cpu_gpu_overlap: bool,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    settings: Settings,
}

/// A value of `--stage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageName {
    /// The vocabulary: saved next to the cache of the corpus, without a run.
    Tokenizer,
    Network(StageKind),
}

fn stage_name(name: &str) -> Result<StageName, String> {
    match name {
        "tokenizer" => Ok(StageName::Tokenizer),
        name => arguments::stage(name)
            .map(StageName::Network)
            .map_err(|_| "expected tokenizer, dvae, gpt or decoder".to_owned()),
    }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if args.stage == Some(StageName::Tokenizer) {
        return train_tokenizer(args);
    }
    // Before the run exists, so that a stop can be requested at any time.
    let stop = stop_requested()?;
    let run_name = args.name.as_deref().or(args.resume.as_deref());
    match args.ranks.meet(run_name, &stop)? {
        None => train(&args, None, stop),
        Some(ranks) if ranks.is_lead() => ranks::finish(&ranks, train(&args, Some(&ranks), stop)),
        Some(ranks) => ranks::follow_rank_0(&ranks, device(&args.device)?, stop),
    }
}

/// Trains as the only process of a run, or as rank 0 of several.
fn train(args: &Args, ranks: Option<&Arc<Ranks>>, stop: Arc<AtomicBool>) -> anyhow::Result<Exit> {
    let progress = Terminal::new();
    let mut run = args.open_run(ranks, &stop, &progress)?;
    progress.set_device(run.devices().first().device);
    match run.train(ranks, stop, &progress) {
        Ok(model) => {
            let next = match ModelFolder::read_manifest(&model) {
                // Without a decoder, the DVAE speaks.
                Ok(manifest)
                    if manifest.part(Part::Gpt).is_some()
                        && [Part::Decoder, Part::Dvae].iter().any(|&part| manifest.part(part).is_some()) =>
                {
                    format!("next         myxtts speak \"Hello there.\" --model {}\n", speakable(&run))
                }
                _ => String::new(),
            };
            let model = model.display();
            // The model is on disk: a report that cannot be printed is no failure of the run.
            if let Err(error) = print(&format!("model        {model}\n{next}")) {
                errln!("note: the model is in {model}: {error:#}");
            }
            Ok(Exit::Done)
        }
        Err(stopped) if stopped.is_stopped() => {
            errln!("{stopped}");
            Ok(Exit::Stopped)
        }
        Err(error) => Err(report_failure(run, error, args.name.is_some())),
    }
}

/// The value of `speak --model` for a run: its name if it is in the default folder, else its path.
fn speakable(run: &TrainingRun) -> String {
    match run.path().parent() == Some(Path::new("runs")) {
        true => run.name().to_owned(),
        false => run.path().display().to_string(),
    }
}

impl Args {
    /// Begins the run that the arguments describe, or opens the one that is resumed.
    fn open_run(
        &self,
        ranks: Option<&Arc<Ranks>>,
        stop: &AtomicBool,
        progress: &Terminal,
    ) -> anyhow::Result<TrainingRun> {
        let devices = DeviceRequest {
            device: device(&self.device)?,
            simulate_gpus: self.simulate_gpus,
            strict: self.strict_devices,
            rank: ranks.map(|ranks| ranks.identity()),
        };
        let mut settings = self.settings.clone();
        settings.set_paths("CORPUS", "data.train_data", &self.corpus)?;
        self.apply_switches(&mut settings);
        if let Some(name) = &self.resume {
            return Ok(TrainingRun::resume(name, &settings.resolve()?, &devices, stop, progress)?);
        }
        let devices = devices.choose(&settings.plan()?)?;
        settings.prefer_for_training(devices.first())?;
        let stage = match self.stage {
            Some(StageName::Network(stage)) => Some(stage),
            Some(StageName::Tokenizer) | None => None,
        };
        let plan = settings.resolve()?;
        let from = self.from.as_deref().map(|from| base_folder(from, &plan.training.runs_dir));
        let request = RunRequest { stage, from };
        Ok(TrainingRun::begin(self.name.as_deref(), plan, request, devices, progress)?)
    }

    /// Applies the switches that turn a setting off.
    fn apply_switches(&self, settings: &mut Settings) {
        for (given, argument, setting) in [
            (self.disable_native_loading, "--disable-native-loading", "data.native_loading"),
            (self.disable_gpu_prefetch, "--disable-gpu-prefetch", "data.prefetch_to_gpu"),
            (self.disable_cpu_gpu_overlap, "--disable-cpu-gpu-overlap", "data.optimize_cpu_gpu_overlap"),
        ] {
            settings.set_if(given, argument, setting, "false");
        }
    }
}

/// The folder of `--from`: a path, else the model of the run of that name, else a model that came with the program.
fn base_folder(from: &Path, runs: &Path) -> PathBuf {
    if from.exists() {
        return from.to_owned();
    }
    let of_run = runs.join(from).join(MODEL_FOLDER);
    if from.components().count() == 1 && of_run.join(MANIFEST).is_file() {
        return of_run;
    }
    models_folder::find_noted(from).unwrap_or_else(|| from.to_owned())
}

/// Removes a run that failed before its first stage; otherwise says how to resume it, where that can help.
fn report_failure(run: TrainingRun, error: RunError, is_named: bool) -> anyhow::Error {
    let (name, path) = (run.name().to_owned(), run.path().to_owned());
    let mut notes = Vec::new();
    match run.discard_if_unstarted() {
        Ok(true) if is_named => notes.push(format!(
            "no stage was started: {} is removed, and the name {name} is free",
            path.display()
        )),
        Ok(_) => {}
        Err(error) => notes.push(format!(
            "note: no stage was started, but {} could not be removed: {error}",
            path.display()
        )),
    }
    let error = anyhow::Error::new(NotedError { error, notes: Vec::new() });
    if matches!(exit_of(&error), Exit::Io | Exit::Retry) && RunFolder::is_run(&path) {
        notes.push(format!(
            "the run {name} is kept: once the cause is removed, `myxtts train --resume {name}` continues it"
        ));
    }
    match error.downcast::<NotedError>() {
        Ok(error) => NotedError { notes, ..error }.into(),
        Err(error) => error,
    }
}

/// `--stage tokenizer`: trains and saves the vocabulary alone.
fn train_tokenizer(args: Args) -> anyhow::Result<Exit> {
    if args.name.is_some() {
        let why =
            "--stage tokenizer saves the vocabulary next to the corpus and makes no run: leave --name out";
        return Err(UsageError(why.into()).into());
    }
    let stop = stop_requested()?;
    let mut settings = args.settings;
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    settings.prefer_for_training(ComputeDevice::CPU)?;
    let mut plan = settings.resolve()?;
    let progress = Terminal::new();
    // A vocabulary does not depend on audio codes, so a model without a DVAE will do, as for the stage `dvae`.
    let base = match &args.from {
        Some(from) => BaseText::load(&base_folder(from, &plan.training.runs_dir), Some(StageKind::Dvae))?,
        None => None,
    };
    if let Some(base) = &base {
        base.apply_cleaner(&mut plan, &progress);
    }
    let base = base.map(|base| base.vocabulary);
    let corpora = CorpusSet::read(&plan.data, &progress)?;
    let setup = corpora.lock_vocabulary(&plan.data, base.as_ref(), IfLocked::Wait, &stop, &progress)?;
    print(&format!("{}\n", setup.description()))?;
    Ok(Exit::Done)
}

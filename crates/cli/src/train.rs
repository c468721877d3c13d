//! `myxtts train`: from recordings to a voice, stage by stage.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use myxtts_model::weights::folder::MANIFEST;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_train::base_model::BaseText;
use myxtts_train::corpus::CorpusSet;
use myxtts_train::corpus::set::IfLocked;
use myxtts_train::devices::DeviceRequest;
use myxtts_train::model::GPT;
use myxtts_train::pipeline::MODEL_FOLDER;
use myxtts_train::ranks::Ranks;
use myxtts_train::run_request::RunRequest;
use myxtts_train::stages;
use myxtts_train::strategy::AvailableGpus;
use myxtts_train::{ComputeDevice, RunError, TrainingRun};

use crate::arguments::{self, device};
use crate::failure::{NotedError, UsageError, exit_of};
use crate::launch;
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
    /// Continue the run --name if it exists, else begin it: for schedulers that start the same command again
    #[arg(long, requires = "name")]
    or_resume: bool,
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
    if let Some(machine) = args.as_machine()? {
        return launch::run(machine);
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
                // Without a decoder, the DVAE speaks. The file of the GPT also holds the statistics of a model without one.
                Ok(manifest)
                    if manifest.parts.contains_key(GPT)
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

/// The arguments of `train` for the processes of a machine, which take their ranks from variables.
fn without_place(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept: Vec<OsString> = Vec::new();
    let mut is_value = false;
    for word in words {
        let text = word.to_string_lossy().into_owned();
        let (name, value) =
            text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
        if std::mem::take(&mut is_value) || name == "--multi-gpu" {
            continue;
        }
        if RankArgs::PLACE.contains(&name) || name == "--simulate-gpus" {
            is_value = value.is_none();
            continue;
        }
        kept.push(word);
    }
    // The last one counts, also over a file and the environment.
    kept.extend(["--set", "training.multi_gpu=false"].map(OsString::from));
    kept
}

/// The value of `speak --model` for a run: its name if it is in the default folder, else its path.
fn speakable(run: &TrainingRun) -> String {
    match run.path().parent() == Some(Path::new("runs")) {
        true => run.name().to_owned(),
        false => run.path().display().to_string(),
    }
}

impl Args {
    /// Several ranks with `--multi-gpu`: each is a machine, and starts a rank for each of its GPUs. `None` if this process trains
    /// itself.
    fn as_machine(&self) -> anyhow::Result<Option<launch::Args>> {
        let Some(identity) = self.ranks.identity()? else { return Ok(None) };
        let training = self.settings.plan()?.training;
        // Where a machine has several ranks already, `training.multi_gpu` is refused.
        if !training.multi_gpu || identity.local_world > 1 {
            return Ok(None);
        }
        let local = match (self.simulate_gpus, &training.visible_gpus) {
            (Some(count), _) => count as usize,
            (None, Some(visible)) => visible.len(),
            (None, None) => AvailableGpus::of(&myxtts_tensor::device::devices()).gpus.len(),
        };
        if local == 0 {
            let what = "training.multi_gpu (--multi-gpu) starts a process for each GPU of this machine, and none can be used: \
                        `myxtts devices` says why";
            return Err(UsageError(what.to_owned()).into());
        }
        errln!(
            "{identity}; as training.multi_gpu is on, this is a machine, with a process for each of its {local} GPUs"
        );
        let command = without_place(std::env::args_os().skip_while(|word| word != "train"));
        Ok(Some(launch::Args::of_machine(&identity, local as u32, self.simulate_gpus.is_none(), command)))
    }

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
        if let Some(name) = self.resumed(&settings)? {
            let settings = settings.resolve()?;
            let run = TrainingRun::resume(name, &settings, &devices, stop, progress)?;
            if self.or_resume {
                check_same_request(&run, &self.request(&settings))?;
            }
            return Ok(run);
        }
        let devices = devices.choose(&settings.plan()?)?;
        settings.prefer_for_training(devices.first())?;
        let plan = settings.resolve()?;
        let request = self.request(&plan);
        Ok(TrainingRun::begin(self.name.as_deref(), plan, request, devices, progress)?)
    }

    /// Name of the run to resume; `None` if a new one begins.
    fn resumed(&self, settings: &Settings) -> anyhow::Result<Option<&str>> {
        let Some(name) = self.name.as_deref().filter(|_| self.or_resume) else {
            return Ok(self.resume.as_deref());
        };
        let exists = RunFolder::is_run(&settings.plan()?.training.runs_dir.join(name));
        Ok(exists.then_some(name))
    }

    /// What a new run trains, apart from its settings.
    fn request(&self, plan: &Plan) -> RunRequest {
        let stage = match self.stage {
            Some(StageName::Network(stage)) => Some(stage),
            Some(StageName::Tokenizer) | None => None,
        };
        let from = self.from.as_deref().map(|from| base_folder(from, &plan.training.runs_dir));
        RunRequest { stage, from }
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

/// With `--or-resume`: the stage and the base model must be those that the run began with.
fn check_same_request(run: &TrainingRun, now: &RunRequest) -> Result<(), UsageError> {
    let began = run.request();
    if began == now {
        return Ok(());
    }
    let words = |request: &RunRequest| {
        let stage =
            request.stage.map_or("all stages".to_owned(), |stage| format!("--stage {}", stages::name(stage)));
        let from =
            request.from.as_ref().map_or("no --from".to_owned(), |from| format!("--from {}", from.display()));
        format!("{stage} and {from}")
    };
    Err(UsageError(format!(
        "the run {} began with {}, and this command has {}: give the same, or another --name",
        run.name(),
        words(began),
        words(now)
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_machine_get_the_arguments_without_its_place() {
        let kept = |words: &str| {
            let kept = without_place(words.split(' ').map(OsString::from));
            kept.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let machine = "train c --rank 1 --world-size=2 --rendezvous a:1 --multi-gpu --rank-timeout 3 --simulate-gpus 2 --name x";
        assert_eq!(kept(machine), "train c --rank-timeout 3 --name x --set training.multi_gpu=false");
        assert_eq!(
            kept("train --multi-gpu=true --rendezvous-token t c"),
            "train --rendezvous-token t c --set training.multi_gpu=false"
        );
    }
}

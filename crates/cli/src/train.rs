//! `myxtts train`: from recordings to a voice, stage by stage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use myxtts_run::exit::Exit;
use myxtts_run::folder::{BASE_VOCABULARY, REQUEST, RunFolder};
use myxtts_run::plan::{Plan, Stage};
use myxtts_run::progress::Progress;
use myxtts_tensor::Device;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::pipeline::{self, Corpus, DataSide, MODEL_FOLDER, Request};
use myxtts_train::ranks::Ranks;
use myxtts_train::samples::{self, Sentence};
use myxtts_train::session::Session;
use myxtts_train::stages;
use myxtts_train::strategy::split;
use myxtts_train::tune::host::{Host, host_memory};
use myxtts_train::{Machine, TrainError, low_data, tune};

use crate::advice::{Beginning, advice};
use crate::caveats::caveats;
use crate::corpora::{Corpora, Opened};
use crate::corpus;
use crate::failure::{UsageError, exit_of};
use crate::held_out::{self, HeldOutClips, Kept};
use crate::output::{errln, print};
use crate::place::{DataGpu, Place};
use crate::progress::Terminal;
use crate::ranks::{self, RankArgs};
use crate::records::Records;
use crate::request::{self, Asked, base_of, model_text};
use crate::resume::change_settings;
use crate::settings::Settings;
use crate::signal::stop_requested;
use crate::watch::Watch;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
    /// Train this stage alone (tokenizer, dvae, gpt or decoder); without it everything that is missing, in order
    #[arg(long, value_name = "STAGE", value_parser = named)]
    stage: Option<Named>,
    /// Begin from this model folder (`myxtts import` makes one, every run has one)
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Name of the run; a number where none is given
    #[arg(long)]
    name: Option<String>,
    /// Go on with a run that was stopped, to the bit as if it had not been
    #[arg(long, value_name = "NAME", conflicts_with_all = ["corpus", "stage", "from", "name"])]
    resume: Option<String>,
    /// Where to train: auto, cpu, cuda or cuda:N; auto heeds --multi-gpu, --visible-gpus and --model-gpu
    #[arg(long, default_value = "auto")]
    device: String,
    /// Let the processor play so many GPUs: what several would do can be tried without one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    simulate_gpus: Option<u32>,
    /// An error, and no way around it, where --data-gpu and --model-gpu name GPUs that are not here
    #[arg(long)]
    strict_devices: bool,
    /// Decode and compute every clip whenever it is asked for, without a cache, to see what one buys
    #[arg(long)]
    disable_native_loading: bool,
    /// Copy each batch when its step is queued, to see what copying ahead buys
    #[arg(long)]
    disable_gpu_prefetch: bool,
    /// Wait for every step before the next is queued, to see what overlap buys
    #[arg(long)]
    disable_cpu_gpu_overlap: bool,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    settings: Settings,
}

impl Args {
    /// Puts the three switches into the settings.
    fn switches(&self, settings: &mut Settings) {
        for (given, argument, setting) in [
            (self.disable_native_loading, "--disable-native-loading", "data.native_loading"),
            (self.disable_gpu_prefetch, "--disable-gpu-prefetch", "data.prefetch_to_gpu"),
            (self.disable_cpu_gpu_overlap, "--disable-cpu-gpu-overlap", "data.optimize_cpu_gpu_overlap"),
        ] {
            settings.set_where(given, argument, setting, "false");
        }
    }
}

/// What `--stage` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// The vocabulary: kept beside the corpus, and no run.
    Tokenizer,
    /// A network.
    Network(Stage),
}

fn named(name: &str) -> Result<Named, String> {
    match name {
        "tokenizer" => Ok(Named::Tokenizer),
        name => stage(name)
            .map(Named::Network)
            .map_err(|_| "the stages are tokenizer, dvae, gpt and decoder".to_owned()),
    }
}

pub fn stage(name: &str) -> Result<Stage, String> {
    match name {
        "dvae" => Ok(Stage::Dvae),
        "gpt" => Ok(Stage::Gpt),
        "decoder" => Ok(Stage::Decoder),
        _ => Err("the stages with steps are dvae, gpt and decoder".into()),
    }
}

/// The device a user names; nothing for `auto`.
pub fn device(name: &str) -> anyhow::Result<Option<Device>> {
    match name {
        "auto" => Ok(None),
        "cuda" => Ok(Some(Device::Cuda(0))),
        name => name.parse().map(Some).map_err(|_| {
            UsageError(format!(
                "--device {name}: write auto, cpu, cuda or cuda:N (`myxtts devices` lists them)"
            ))
            .into()
        }),
    }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if args.stage == Some(Named::Tokenizer) {
        return train_tokenizer(args);
    }
    // Before there is a run: what begins one can always be asked to stop.
    let stop = stop_requested()?;
    match args.ranks.meet(&stop)? {
        None => lead(&args, None, stop),
        Some(ranks) if ranks.is_lead() => ranks::ended(&ranks, lead(&args, Some(&ranks), stop)),
        Some(ranks) => ranks::follow_rank_0(&ranks, device(&args.device)?, stop),
    }
}

/// A run of one process, or rank 0 of a run of several.
fn lead(args: &Args, ranks: Option<&Arc<Ranks>>, stop: Arc<AtomicBool>) -> anyhow::Result<Exit> {
    let (folder, plan, asked, place) = begin(args, ranks, &stop)?;
    let ended = train(&folder, plan, asked, (&place, ranks), args.resume.is_some(), stop);
    if let Err(error) = &ended {
        let (name, path) = (folder.name().to_owned(), folder.path().to_owned());
        take_back(folder);
        let can_go_on = matches!(exit_of(error), Exit::Io | Exit::Retry);
        if can_go_on && RunFolder::is_run(&path) {
            errln!(
                "the run {name} is kept: when the cause is gone, `myxtts train --resume {name}` goes on with it"
            );
        }
    }
    ended
}

/// Frees the name of a run that was refused before its first stage.
fn take_back(folder: RunFolder) {
    let (name, path) = (folder.name().to_owned(), folder.path().to_owned());
    match folder.take_back() {
        Ok(true) => {
            errln!("no stage was begun: {} is removed, and the name {name} is free", path.display())
        }
        Ok(false) => {}
        Err(error) => errln!("note: no stage was begun, and {} stays: {error}", path.display()),
    }
}

/// A run, from its corpus to its model.
fn train(
    folder: &RunFolder,
    mut plan: Plan,
    asked: Asked,
    (place, ranks): (&Place, Option<&Arc<Ranks>>),
    resumed: bool,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Exit> {
    let progress = Terminal::new();
    let base = base_of(folder.path())?;
    let has_begun = resumed && !folder.checkpoint_store()?.list()?.checkpoints.is_empty();
    let kept = Kept::of(folder.path(), has_begun)?;
    let how = (Records::of(&plan.data), kept.as_ref());
    let (corpus, held) = match corpus_of(&plan, base.as_ref(), how, place.data_gpu(), &progress) {
        Err(error) if matches!(error.downcast_ref(), Some(CacheError::Stopped)) => {
            let name = folder.name();
            errln!(
                "stopped on request before the first step; `myxtts train --resume {name}` goes on from there"
            );
            return Ok(Exit::Stopped);
        }
        opened => opened?,
    };
    progress.say(&format!(
        "run {}: {} clips to learn from, {} held out",
        folder.name(),
        corpus.train.len(),
        corpus.validation.len()
    ));
    request::check_corpus(folder, &*corpus.source)?;
    held.lines.iter().for_each(|line| progress.say(line));
    if kept.is_none() {
        held.clips.keep(folder)?;
    }
    place.lines().iter().for_each(|line| progress.say(line));
    let request = Request { only: asked.stage, from: asked.from.clone() };
    settle(&mut plan, folder, &request, (&corpus, held.cleaner), place, &progress)?;
    if ranks.is_none()
        && let Some(line) = host_memory(&plan, &request, &corpus, &place.machines, Host::detect())?
    {
        // Other ranks may have memory of their own, on machines of their own.
        progress.say(&line);
    }
    if let Some(ranks) = ranks {
        ranks::brief(ranks, &plan, base.as_ref(), &corpus)?;
    }
    caveats(&corpus, &plan.data)?.iter().for_each(|caveat| progress.say(caveat));
    let mut watch = Watch::of(place.machines.first().map_or(Device::Cpu, |machine| machine.device));
    let store = folder.checkpoint_store()?;
    let last = store.list()?.checkpoints.last().map(|checkpoint| checkpoint.step);
    let mut session = Session {
        folder,
        plan: &plan,
        store,
        events: folder.event_log()?,
        // What the last checkpoint has behind it will not be told again.
        board: folder.tensorboard(last.filter(|_| resumed).map(|step| step + 1))?,
        stop,
        watcher: &mut watch,
        listener: listener_of(&plan)?,
    };
    session.events.append_durably(request::EVENT, &asked)?;
    session.events.append_durably(request::CORPUS_EVENT, request::corpus_event(&*corpus.source))?;
    session.events.append_durably("strategy", place.event())?;
    if let Some(tuning) = &plan.tuning {
        session.events.append_durably("tuning", serde_json::to_value(tuning)?)?;
    }
    let trained = pipeline::train(&mut session, &request, &corpus, (&place.machines, ranks), &progress);
    // Where a rank is gone, whatever went wrong here followed from that.
    let lost = |error| ranks.and_then(|ranks| ranks.health().cause()).map_or(error, TrainError::from);
    match trained.map_err(lost) {
        Ok(_) => {
            let model = folder.path().join(MODEL_FOLDER);
            // What was asked for is the model: that it cannot be announced is no failure of the run.
            if let Err(error) = print(&format!(
                "model        {}\nnext:        myxtts speak \"...\" --voice REFERENCE.wav --model {} -o out.wav\n",
                model.display(),
                model.display()
            )) {
                errln!("note: the model is in {}: {error:#}", model.display());
            }
            Ok(Exit::Done)
        }
        Err(stopped @ TrainError::Stopped { .. }) => {
            errln!("{stopped}");
            Ok(Exit::Stopped)
        }
        Err(error) => Err(error.into()),
    }
}

/// Seconds a recogniser has for a spoken sample: the training waits for it.
const LISTENING: Duration = Duration::from_secs(120);

/// Who listens to spoken samples, if the settings name a recogniser.
fn listener_of(plan: &Plan) -> anyhow::Result<Option<Listener>> {
    Ok(Listener::of(&plan.training)?.map(|listener| listener.with_patience(LISTENING)))
}

/// The folder of the run, its settings, what was asked, and where it trains: as the command line says, or as it was begun.
fn begin(
    args: &Args,
    ranks: Option<&Arc<Ranks>>,
    stop: &AtomicBool,
) -> anyhow::Result<(RunFolder, Plan, Asked, Place)> {
    let mut settings = args.settings.clone();
    if let Some(name) = &args.resume {
        args.switches(&mut settings);
        let now = settings.resolve()?;
        let (folder, mut plan) = request::resume(&now.training.runs_dir, name, stop)?;
        change_settings(&folder, &mut plan, &now)?;
        let place = place(args, &plan, ranks)?;
        let asked = Asked::of(&folder)?;
        return Ok((folder, plan, asked, place));
    }
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    args.switches(&mut settings);
    let place = place(args, &settings.plan()?, ranks)?;
    prefer_demo(&mut settings, place.machines[0])?;
    let mut plan = settings.resolve()?;
    Records::check(&plan.data)?;
    listener_of(&plan)?;
    plan.begin_tuning();
    let gpt = args.stage.is_none_or(|stage| stage == Named::Network(Stage::Gpt));
    if gpt && plan.data.frame_budget.is_none() && !plan.is_open("data.batch_size") {
        // Before anything is begun; the other stages split what they can, and a tuned batch can be split.
        split(plan.data.batch_size, place.machines.len()).map_err(TrainError::from)?;
    }
    plan.strategy = Some(place.sentence());
    let stage = match args.stage {
        Some(Named::Network(stage)) => Some(stage),
        Some(Named::Tokenizer) | None => None,
    };
    check_steps(&plan, stage, args.from.is_some())?;
    let base = args.from.as_deref().map(|from| model_text(from, stage)).transpose()?.flatten();
    if let Some(base) = &base {
        base.follow(&mut plan);
    }
    let beginning =
        Beginning { plan: &plan, machine: place.machines[0], only: stage, from: args.from.is_some() };
    advice(&beginning).iter().for_each(|note| errln!("note: {note}"));
    let asked = Asked { stage, from: args.from.clone() };
    let (request, base) = (serde_json::to_vec(&asked)?, base.map(|base| base.vocabulary.to_json()));
    let mut first = vec![(REQUEST, &request[..])];
    first.extend(base.as_deref().map(|base| (BASE_VOCABULARY, base)));
    let (runs, name) = (&plan.training.runs_dir, args.name.as_deref());
    let folder = RunFolder::create_with(disk_of_environment(), runs, name, &plan, &first)?;
    Ok((folder, plan, asked, place))
}

/// Where it trains, alone or as rank 0.
fn place(args: &Args, plan: &Plan, ranks: Option<&Arc<Ranks>>) -> anyhow::Result<Place> {
    let device = device(&args.device)?;
    match ranks {
        None => Ok(Place::choose(plan, device, args.simulate_gpus, args.strict_devices)?),
        Some(ranks) => {
            ranks::refuse(plan, args.simulate_gpus)?;
            Ok(Place::of_rank(plan, device, ranks.identity())?)
        }
    }
}

/// A run that would train nothing makes no model.
fn check_steps(plan: &Plan, only: Option<Stage>, fine_tune: bool) -> Result<(), UsageError> {
    let stages = [Stage::Dvae, Stage::Gpt, Stage::Decoder];
    let mut wanted = stages.into_iter().filter(|stage| only.is_none_or(|only| only == *stage));
    if wanted.any(|stage| plan.recipe(stage, fine_tune).steps > 0) {
        return Ok(());
    }
    let which = match only {
        Some(stage) => format!("training.{}_steps is 0", stages::name(stage)),
        None => "training.dvae_steps, training.gpt_steps and training.decoder_steps are 0".to_owned(),
    };
    Err(UsageError(format!("{which}: nothing would be trained, and there would be no model")))
}

/// Settings that nobody made and that depend on machine and corpus: chosen once, kept in the run's folder, and said.
fn settle(
    plan: &mut Plan,
    folder: &RunFolder,
    request: &Request,
    (corpus, cleaner): (&Corpus, Cleaner),
    place: &Place,
    progress: &Terminal,
) -> anyhow::Result<()> {
    // For whoever goes on with the run, or speaks with its model.
    let cleaner_is_chosen = plan.data.cleaner.is_none();
    plan.data.cleaner.get_or_insert_with(|| cleaner.to_string());
    if plan.tuning.as_ref().is_some_and(|tuning| !tuning.open.is_empty()) {
        let chosen = tune::tuned(plan, request, corpus, &place.machines).unwrap_or_else(|error| {
            // What cannot be planned fails where it is used, in its own words.
            progress.say(&format!("note: nothing is tuned: {error}"));
            Vec::new()
        });
        plan.finish_tuning(&chosen);
        folder.settle(plan)?;
    }
    // A run that goes on has them in its plan.
    let facts = low_data::Facts::of(corpus);
    let chosen = low_data::choose(plan, &facts, request.from.is_none());
    if !chosen.is_empty() || cleaner_is_chosen {
        folder.settle(plan)?;
        low_data::lines(&facts, &chosen).iter().for_each(|line| progress.say(line));
    }
    let changes = plan.tuning.as_ref().map(|tuning| &tuning.changed[..]).unwrap_or_default();
    if let Some(line) = tune::line(changes) {
        progress.say(&line);
    }
    Ok(())
}

/// `--stage tokenizer`: the vocabulary alone.
fn train_tokenizer(args: Args) -> anyhow::Result<Exit> {
    if args.name.is_some() {
        let why =
            "--stage tokenizer keeps the vocabulary beside the corpus and makes no run: leave --name out";
        return Err(UsageError(why.into()).into());
    }
    let mut settings = args.settings;
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    prefer_demo(&mut settings, Machine::CPU)?;
    let mut plan = settings.resolve()?;
    // A vocabulary stands on no codes.
    let text_of = |from: &Path| model_text(from, Some(Stage::Dvae));
    let base = args.from.as_deref().map(text_of).transpose()?.flatten();
    if let Some(base) = &base {
        base.follow(&mut plan);
    }
    let base = base.map(|base| base.vocabulary);
    let progress = Terminal::new();
    let computing = read(&plan, &progress)?.vocabulary(&plan.data, (base.as_ref(), true), &progress)?;
    print(&format!("{}\n", computing.described()))?;
    Ok(Exit::Done)
}

/// What every stage needs, and the demonstration's settings where no corpus is named: as small as it can be and still be
/// understood.
pub fn prefer_demo(settings: &mut Settings, machine: Machine) -> anyhow::Result<()> {
    if settings.plan()?.data.train_data.is_empty() {
        let more: &[_] = if machine.device == Device::Cpu { &[] } else { &DEMO_ON_GPU };
        // What is preferred first counts.
        for (key, value) in more.iter().chain(&DEMO) {
            settings.prefer(key, value);
        }
        // The corpus is made for it: no clip is left out.
        settings.prefer("data.max_seconds", &corpus::DEMO_VOICE_SECONDS.to_string());
    }
    settings.prefer("data.cache_columns", "tokens, dvae_mel, conditioning_mel, speaker_mel, waveform");
    Ok(())
}

/// Settings of the demonstration.
const DEMO: [(&str, &str); 16] = [
    ("model.preset", "tiny"),
    ("data.cleaner", "default"),
    ("data.batch_size", "16"),
    ("data.vocab_size", "160"),
    ("training.validate_every", "300"),
    ("training.checkpoint_every", "300"),
    ("training.sample_every", "0"),
    // The demonstration's few hundred steps are too few for what these slow down.
    ("training.code_masking", "0"),
    ("training.recombination", "0"),
    ("training.alignment_weight", "0"),
    ("training.diagonal_start", "false"),
    ("training.codebook_start", "false"),
    ("training.code_token_weight", "0"),
    ("training.text_dropout", "0"),
    ("training.dropout", "0.05"),
    ("data.val_fraction", "0.02"),
];

/// A GPU has time in two minutes for what two cores have not in six: enough to say almost every sentence right. So many
/// steps over so few sentences would be learnt by heart without more dropout.
const DEMO_ON_GPU: [(&str, &str); 4] = [
    ("training.dvae_steps", "3000"),
    ("training.gpt_steps", "5000"),
    ("training.decoder_steps", "4000"),
    ("training.dropout", "0.15"),
];

/// The corpora of a plan; a demonstration's where it names none.
pub fn read(plan: &Plan, progress: &dyn Progress) -> anyhow::Result<Corpora> {
    Corpora::read(&plan.data, progress, corpus::read_demo_voice)
}

/// The corpora of a plan and their split, for a command that begins no run.
pub fn open_corpus(plan: &Plan, data_gpu: Option<DataGpu>, progress: &Terminal) -> anyhow::Result<Corpus> {
    Ok(corpus_of(plan, None, (Records::of(&plan.data), None), data_gpu, progress)?.0)
}

/// The corpora, with records from where they are asked for and the split that a run has kept, if it has; for a model with the
/// vocabulary `base`, if there is one, and with sound for a GPU that prepares batches. Beside them what is held out.
pub fn corpus_of(
    plan: &Plan,
    base: Option<&Tokenizer>,
    (records, kept): (Records, Option<&Kept>),
    data_gpu: Option<DataGpu>,
    progress: &Terminal,
) -> anyhow::Result<(Corpus, Held)> {
    Records::check(&plan.data)?;
    let read = read(plan, progress)?;
    let computing = read.vocabulary(&plan.data, (base, true), progress)?;
    progress.say(&computing.described());
    let cleaner = computing.cleaner();
    let listener = match data_gpu {
        Some(gpu) => Some((gpu, Sounds::listener(&computing.extractor)?)),
        None => None,
    };
    let Opened { source, tokenizer, utterances, training } =
        read.open(records, computing, &plan.data, progress)?;
    let found = held_out::split(&utterances, training, plan, kept)?;
    let held = Held {
        lines: held_out::described(&found, &utterances, plan),
        clips: HeldOutClips::of(&found, &utterances, plan),
        cleaner,
    };
    let sentences = sentences(&utterances, &found.split);
    let data_side = listener.map(|(gpu, own)| data_side(gpu, &source, utterances, own)).transpose()?;
    let numbers = |side: Vec<usize>| side.into_iter().map(|record| record as u32).collect();
    let corpus = Corpus {
        train: numbers(found.split.train),
        validation: numbers(found.split.validation),
        source,
        tokenizer,
        sentences,
        data_side,
    };
    Ok((corpus, held))
}

/// What is held out, for people and to be kept; and the cleaner that the texts were read with.
pub struct Held {
    lines: Vec<String>,
    clips: HeldOutClips,
    cleaner: Cleaner,
}

/// What a GPU that prepares batches is given: the sound of every record.
fn data_side(
    gpu: DataGpu,
    source: &Arc<dyn RecordSource>,
    utterances: Vec<Utterance>,
    listener: Extractor,
) -> anyhow::Result<DataSide> {
    let sounds = Sounds::new(source.clone(), utterances, listener);
    let sounds =
        sounds.context("the prepared records are not those of the corpus: run `myxtts prepare` again")?;
    let DataGpu { device, buffer_size, model_start_delay } = gpu;
    Ok(DataSide { device, sounds: Arc::new(sounds), buffer_size, model_start_delay })
}

/// Held-out sentences to be spoken.
fn sentences(utterances: &[Utterance], split: &Split) -> Vec<Sentence> {
    let held_out: Vec<(u32, &Utterance)> =
        split.validation.iter().map(|&record| (record as u32, &utterances[record])).collect();
    let known: Vec<&Utterance> = split.train.iter().map(|&record| &utterances[record]).collect();
    samples::choose(&held_out, &known, samples::SPOKEN)
}

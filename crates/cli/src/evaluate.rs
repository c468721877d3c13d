//! `myxtts evaluate`: speaks validation sentences or a list of texts, and compares them with their recordings.

mod texts;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use myxtts_model::weights::ModelFolder;
use myxtts_run::durable::{self, OsDisk};
use myxtts_run::exit::Exit;
use myxtts_run::progress::Progress;
use myxtts_speak::{SpeakOptions, Synthesizer};
use myxtts_train::ComputeDevice;
use myxtts_train::corpus::{CorpusSet, validation_set};
use myxtts_train::evaluate::held_out::{EvaluationOutput, EvaluationRequest, evaluate};
use myxtts_train::evaluate::html::Page;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::job_control::JobControl;

use crate::arguments::device;
use crate::failure::UsageError;
use crate::models_folder;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::sampling::{Sampling, at_least_one};
use crate::settings::Settings;
use crate::signal::stop_requested;
use crate::target::Target;

#[derive(clap::Args)]
pub struct Args {
    /// A run, whose model speaks its validation set; with --texts also a model folder or the name of a model in models/
    #[arg(value_name = "MODEL_OR_RUN")]
    target: PathBuf,
    /// Speak the texts of this file instead: lines `id|text`, `id|text|reference.wav`, or a text alone
    #[arg(long, value_name = "FILE", requires = "output")]
    texts: Option<PathBuf>,
    /// Folder for ID.wav of every text, report.json and report.html
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// A recording of the voice, or the name of a voice, for all texts of --texts; several recordings form one voice
    #[arg(long, value_name = "FILE", requires = "texts")]
    voice: Vec<PathBuf>,
    /// Folder with recordings of --texts, named `ID.*` [default: next to the file, or in wavs/ there]
    #[arg(long, value_name = "DIR", requires = "texts")]
    recordings: Option<PathBuf>,
    /// Speak only the first N texts of --texts
    #[arg(long, value_name = "N", requires = "texts", value_parser = at_least_one, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Number of validation sentences to speak
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one, allow_negative_numbers = true)]
    sentences: usize,
    /// Number of recordings that each sentence is compared with, including its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one, allow_negative_numbers = true)]
    candidates: usize,
    /// Model folder, or the name of a model in models/, to use instead of the run's own
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    sampling: Sampling,
    /// Device to compute on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    settings: Settings,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let settings = args.settings.plan()?;
    let target = Target::find(&args.target, &settings.training.runs_dir)?;
    let path = match &args.model {
        Some(named) if named.exists() => named.clone(),
        Some(named) => models_folder::find_noted(named).unwrap_or_else(|| named.clone()),
        None => target.model.clone(),
    };
    if let (Some(list), Some(output)) = (&args.texts, &args.output) {
        return texts::run(&args, list, output, &path, &settings);
    }
    let Some(folder) = target.run else {
        return Err(UsageError(format!(
            "{} is a model folder, which has no validation set: name a run, or texts with --texts",
            args.target.display()
        ))
        .into());
    };
    let plan = folder.plan()?;
    let machine = ComputeDevice::choose(device(&args.device)?)?;
    let progress = Terminal::new();
    let (held_out, known) =
        validation_set::partition(folder.path(), &CorpusSet::read(&plan.data, &progress)?, &plan)?;
    let (held_out, known): (Vec<&_>, Vec<&_>) = (held_out.iter().collect(), known.iter().collect());
    if let Some(output) = &args.output {
        reject_recordings(output, held_out.iter().chain(&known).map(|utterance| utterance.audio.as_path()))?;
    }
    let model = ModelFolder::open(&path)?;
    let mut synthesizer = Synthesizer::open_for(&model, machine.device, args.sampling.decoding())?;
    let written = settings.value("training.seed").filter(|seed| seed.origin.is_explicit());
    let seed = written.map_or(plan.training.seed, |_| settings.training.seed);
    let options = args.sampling.speak_options(&synthesizer, seed);
    let request = EvaluationRequest {
        sentences: args.sentences,
        candidates: args.candidates,
        seed,
        options: options.clone(),
    };
    let stop = stop_requested()?;
    let mut listener = Listener::of(&settings.training)?;
    match &args.output {
        Some(output) => durable::create_folder(&OsDisk, output)?,
        None if listener.is_some() => {
            progress.say("note: the recogniser is not used, since it needs audio files: name a folder for them with -o");
            listener = None;
        }
        None => {}
    }
    let keeping = EvaluationOutput { folder: args.output.as_deref(), listener: listener.as_mut() };
    let job = JobControl { progress: &progress, stop: &stop };
    let found = evaluate(&mut synthesizer, &known, &held_out, &request, keeping, job)?;
    let error = listener.as_ref().and_then(Listener::failed).map(ToString::to_string);
    if let Some(output) = &args.output {
        let mut facts = vec![("model", path.display().to_string()), ("run", folder.name().to_owned())];
        facts.push(("device", machine.device.to_string()));
        facts.extend(common_facts(&options, listener.as_ref()));
        facts.push(("nearest to its own recording", found.sentences.to_string()));
        let (figures, columns) = (vec![("spoken", &found.figures)], vec!["recording", "spoken"]);
        let page = Page { title: "Held-out sentences", facts, figures, columns, rows: found.rows() };
        durable::write(&output.join("report.html"), page.html().as_bytes())?;
        durable::write(&output.join("report.json"), &serde_json::to_vec_pretty(&found)?)?;
    }
    if args.json {
        print_json(&found)?;
    } else {
        print(&format!("{found}\n"))?;
    }
    Ok(match error {
        _ if stop.load(Ordering::Relaxed) => Exit::Stopped,
        Some(_) => Exit::Io,
        None => Exit::Done,
    })
}

/// Facts about sampling and recognition for the page.
fn common_facts(options: &SpeakOptions, listener: Option<&Listener>) -> Vec<(&'static str, String)> {
    let (sampling, takes) = (&options.sampling, options.candidates);
    let how = match sampling.greedy {
        true => format!("the most likely code, repetition penalty {}", sampling.repetition_penalty),
        false => format!(
            "temperature {}, top-k {}, top-p {}, repetition penalty {}, seed {}, best of {takes}",
            sampling.temperature, sampling.top_k, sampling.top_p, sampling.repetition_penalty, sampling.seed
        ),
    };
    let recognizer = listener.map_or("none".to_owned(), |listener| listener.recognizer().to_string());
    let mut facts = vec![("sampling", how), ("recogniser", recognizer)];
    facts.extend(listener.and_then(Listener::failed).map(|error| ("recogniser's error", error.to_string())));
    facts
}

/// Spoken sentences have the names of their recordings, which must not be replaced.
fn reject_recordings<'a>(
    output: &Path,
    recordings: impl Iterator<Item = &'a Path>,
) -> Result<(), UsageError> {
    let folders: BTreeSet<&Path> = recordings.filter_map(Path::parent).collect();
    let written = [output.to_owned(), output.join("original")];
    let written = written.map(|folder| folder.canonicalize().ok());
    let holds = |folder: &&Path| {
        folder.canonicalize().is_ok_and(|folder| written.iter().flatten().any(|written| *written == folder))
    };
    folders.into_iter().find(holds).map_or(Ok(()), |folder| {
        Err(UsageError(format!(
            "-o {}: {} holds recordings of the corpus, which spoken sentences of the same names would replace; choose another folder",
            output.display(),
            folder.display()
        )))
    })
}

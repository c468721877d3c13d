//! `myxtts resynthesize`: passes recordings through the parts of a model, and measures each part.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use myxtts_data::dataset::list::{adjacent_transcript, is_audio_file, read_list};
use myxtts_model::weights::ModelFolder;
use myxtts_run::durable;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Plan;
use myxtts_run::progress::Progress;
use myxtts_speak::Fit;
use myxtts_train::ComputeDevice;
use myxtts_train::corpus::{read, report_problems};
use myxtts_train::evaluate::html::Page;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::evaluate::measures::METRICS;
use myxtts_train::job_control::JobControl;
use myxtts_train::resynthesize::{PATHS, Recording, Resynthesis, Resynthesizer};
use serde::Serialize;

use crate::arguments::device;
use crate::failure::UsageError;
use crate::inputs::Inputs;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::sampling::at_least_one;
use crate::settings::Settings;
use crate::signal::stop_requested;
use crate::target::{Target, find_voice, language};

#[derive(clap::Args)]
pub struct Args {
    /// A model folder, a run that has one, or the name of a model in models/
    #[arg(value_name = "MODEL_OR_RUN")]
    target: PathBuf,
    /// Audio files with a .txt next to each; lists (`id|text` or `id|text|reference.wav`) with audio next to them or in wavs/; or
    /// corpus folders
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// Folder for original/ID.wav, dvae/ID.wav, decoder/ID.wav, report.json and report.html
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// A recording of the voice, or the name of a voice, for recordings without a reference; several recordings form one voice
    /// [default: each recording itself]
    #[arg(long, value_name = "FILE")]
    voice: Vec<PathBuf>,
    /// Transcript of a single audio file without a .txt
    #[arg(long)]
    text: Option<String>,
    /// Use only the first N recordings
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Device to compute on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    settings: Settings,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The content of `report.json`.
#[derive(Serialize)]
struct Report {
    model: PathBuf,
    device: String,
    seed: u64,
    recognizer: Option<String>,
    /// Why the recogniser failed.
    recognizer_error: Option<String>,
    #[serde(flatten)]
    found: Resynthesis,
}

/// Results are written as `WAY/ID.wav`, which may be the recordings of an earlier report: those must not be replaced.
fn reject_inputs(given: &[Recording], voice: &[PathBuf], output: &Path) -> anyhow::Result<()> {
    let mut inputs = Inputs::default();
    voice.iter().for_each(|path| inputs.add(path, "a recording of the voice"));
    for one in given {
        inputs.add(&one.sound, "a recording that is read");
        one.reference.iter().for_each(|path| inputs.add(path, "a reference"));
    }
    for way in PATHS {
        for one in given {
            inputs.reject("-o", &output.join(way).join(format!("{}.wav", one.id)))?;
        }
    }
    Ok(())
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let stop = stop_requested()?;
    let settings = args.settings.plan()?;
    let target = Target::find(&args.target, &settings.training.runs_dir)?;
    let progress = Terminal::new();
    let mut given = recordings(&args, &settings, &progress)?;
    given.truncate(args.limit.unwrap_or(usize::MAX));
    reject_inputs(&given, &args.voice, &args.output)?;
    let mut listener = Listener::of(&settings.training)?;
    let machine = ComputeDevice::choose(device(&args.device)?)?;
    let cleaner = settings.data.cleaner.as_deref().map(str::parse).transpose()?;
    let mut parts = Resynthesizer::open(&target.model, machine, cleaner)?;
    let spoken = match parts.synthesizer() {
        Some(synthesizer) => language(synthesizer, settings.data.language.as_deref()),
        // As for a model of several languages.
        None => settings.data.language.clone().unwrap_or_else(|| "en".to_owned()),
    };
    given.iter_mut().filter(|one| one.language.is_empty()).for_each(|one| one.language.clone_from(&spoken));
    let voice = match (&args.voice[..], parts.synthesizer()) {
        ([], _) | (_, None) => None,
        (named, Some(synthesizer)) => {
            Some(find_voice(synthesizer, &ModelFolder::open(&target.model)?, named)?)
        }
    };
    if !parts.has_decoder() {
        progress.say("the model has no decoder yet: only its DVAE is measured");
    }
    let seed = settings.training.seed;
    let found = parts.pass(
        &given,
        voice.as_ref(),
        &args.output,
        listener.as_mut(),
        JobControl { progress: &progress, stop: &stop },
        seed,
    )?;
    let failed = listener.as_ref().and_then(Listener::failed);
    let report = Report {
        model: target.model,
        device: machine.device.to_string(),
        seed,
        recognizer: listener.as_ref().map(|listener| listener.recognizer().to_string()),
        recognizer_error: failed.map(ToString::to_string),
        found,
    };
    durable::write(&args.output.join("report.json"), &serde_json::to_vec_pretty(&report)?)?;
    let recognizer = report.recognizer.clone().unwrap_or_else(|| "none".to_owned());
    let mut facts = vec![("model", report.model.display().to_string()), ("device", report.device.clone())];
    facts.push(("recogniser", recognizer));
    facts.extend(report.recognizer_error.clone().map(|error| ("recogniser's error", error)));
    if let Some(fit) = report.found.fit {
        facts.push(("the GPT's prediction of the codes", prediction(fit)));
    }
    let figures = report.found.figures();
    let columns = figures.iter().map(|(way, _)| *way).collect();
    let page = Page {
        title: "Recordings through the parts of a model",
        facts,
        figures,
        columns,
        rows: report.found.rows(),
    };
    durable::write(&args.output.join("report.html"), page.html().as_bytes())?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&as_text(&report, &args.output))?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }
    Ok(match (report.found.failed, &report.recognizer_error) {
        (0, None) => Exit::Done,
        (0, Some(_)) => Exit::Io,
        _ => Exit::BadData,
    })
}

/// Reads the recordings that the arguments name. An unknown language is left empty.
fn recordings(args: &Args, settings: &Plan, progress: &Terminal) -> anyhow::Result<Vec<Recording>> {
    let mut all: Vec<Recording> = Vec::new();
    for path in &args.recordings {
        if path.is_dir() {
            let corpus = read::read_from(path, &settings.data, progress)?;
            report_problems(&corpus.problems, progress);
            all.extend(corpus.utterances.into_iter().map(|one| Recording {
                id: one.id.replace(['/', '\\'], "_"),
                text: one.text,
                language: one.language,
                sound: one.audio,
                reference: None,
            }));
        } else if is_audio_file(path) {
            all.push(from_audio_file(path, args.text.as_deref())?);
        } else {
            for one in read_list(path, None)? {
                let Some(sound) = one.recording else {
                    return Err(UsageError(format!(
                        "{}, line {}: there is no audio file {}.* next to the list or in wavs/ there",
                        path.display(),
                        one.line,
                        one.id
                    ))
                    .into());
                };
                let (id, text, reference) = (one.id, one.text, one.reference);
                all.push(Recording { id, text, language: String::new(), sound, reference });
            }
        }
    }
    let mut names = HashSet::new();
    match all.iter().find(|one| !names.insert(&one.id)) {
        Some(twice) => {
            let what = "two recordings would be written to";
            Err(UsageError(format!("{what} {}.wav: run the command once for each", twice.id)).into())
        }
        None => Ok(all),
    }
}

fn from_audio_file(path: &Path, text: Option<&str>) -> anyhow::Result<Recording> {
    let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let text = text.map(str::to_owned).or_else(|| adjacent_transcript(path)).ok_or_else(|| {
        UsageError(format!(
            "{} has no transcript: write it to {}, or give it with --text",
            path.display(),
            path.with_extension("txt").display()
        ))
    })?;
    Ok(Recording { id, text, language: String::new(), sound: path.to_owned(), reference: None })
}

fn prediction(fit: Fit) -> String {
    format!("{:.3} nats per code, {:.1} % most likely", fit.loss, 100.0 * fit.accuracy)
}

/// A table with one column for each way through the model.
fn as_text(report: &Report, output: &Path) -> String {
    let found = &report.found;
    let ways: Vec<&str> = PATHS.into_iter().filter(|way| found.ways.contains_key(*way)).collect();
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("  {cell:<28}")).collect();
        format!("{name:<36}{}\n", cells.trim_end())
    };
    let mut text = row("", ways.iter().map(|way| (*way).to_owned()).collect());
    for metric in &METRICS {
        let cell = |way: &&str| match found.ways[*way].get(metric.key) {
            Some(figure) => {
                let [value, low, high] = [figure.value, figure.low, figure.high].map(|v| metric.unit.show(v));
                format!("{value} ({low} to {high})")
            }
            None => "-".to_owned(),
        };
        let cells: Vec<String> = ways.iter().map(cell).collect();
        if cells.iter().any(|cell| cell != "-") {
            text += &row(metric.title, cells);
        }
    }
    if let Some(fit) = found.fit {
        text += &row("the GPT's prediction of the codes", vec![prediction(fit)]);
    }
    text +=
        &row("recordings", vec![format!("{} of {}", found.items.len() - found.failed, found.items.len())]);
    text + &row("written", vec![output.join("report.html").display().to_string()])
}

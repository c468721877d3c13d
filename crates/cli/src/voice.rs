//! `myxtts voice`: voices that are encoded once and saved next to a model.

use std::path::{Path, PathBuf};

use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::Manifest;
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;
use myxtts_speak::reference::{Reference, ReferenceReport};
use myxtts_speak::voices::{StoredVoice, VoiceError, Voices, all_names, built_in, check_name};
use myxtts_speak::{ComputeDevice, SpeakError, Synthesizer};
use serde::Serialize;

use crate::arguments::device;
use crate::failure::UsageError;
use crate::inputs::Inputs;
use crate::output::{print, print_json};
use crate::speak::defaults;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Encode a voice from recordings and save it, with a report on the quality of the recordings
    Add(AddArgs),
    /// List the voices of a model
    List(ListArgs),
    /// Show the details of a voice
    Show(ShowArgs),
    /// Remove a saved voice
    Remove(RemoveArgs),
    /// Write a voice to a file: .safetensors, or .json in the format of Coqui's servers
    Export(ExportArgs),
}

#[derive(clap::Args)]
struct Model {
    /// Model folder, or the name of a run or of a model in models/ [default: ./model, else the newest run's, else the first in models/]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct AddArgs {
    /// Name of the voice
    name: String,
    /// Recordings of one speaker, six seconds or more recommended; or the .safetensors file of an exported voice
    #[arg(required = true, value_name = "FILE")]
    references: Vec<PathBuf>,
    #[command(flatten)]
    at: Model,
    /// Device to compute on: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Replace an existing voice of that name
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    at: Model,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Name of the voice
    name: String,
    #[command(flatten)]
    at: Model,
}

#[derive(clap::Args)]
struct RemoveArgs {
    /// Name of the voice
    name: String,
    #[command(flatten)]
    at: Model,
}

#[derive(clap::Args)]
struct ExportArgs {
    /// Name of the voice
    name: String,
    /// Output file: .safetensors or .json
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    at: Model,
}

/// A voice as printed by `--json`.
#[derive(Serialize)]
struct VoiceSummary {
    name: String,
    /// `stored`, or `model` for a voice included in the model.
    kind: &'static str,
    /// Whether this model can use it.
    usable: bool,
    /// Why it cannot be used.
    problem: Option<String>,
    references: Vec<String>,
    seconds: Option<f64>,
    /// Fingerprint of the model that encoded it.
    model: Option<String>,
    report: Option<ReferenceReport>,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Add(args) => add(args),
        Command::List(args) => list(&args.at),
        Command::Show(args) => show(&args.name, &args.at),
        Command::Remove(args) => remove(&args.name, &args.at),
        Command::Export(args) => export(args),
    }
}

fn add(args: AddArgs) -> anyhow::Result<Exit> {
    check_name(&args.name)?;
    let model = args.at.path()?;
    let manifest = ModelFolder::read_manifest(&model)?;
    let voices = Voices::from_manifest(&model, &manifest);
    // Checked before the work, and again when it is written.
    if voices.names()?.contains(&args.name) && !args.force {
        return Err(VoiceError::Exists { name: args.name }.into());
    }
    let stored = match &args.references[..] {
        [file] if file.extension().is_some_and(|extension| extension == "safetensors") => {
            let found = StoredVoice::read(file)?;
            let stored = StoredVoice { name: args.name.clone(), ..found };
            check_model(&voices, &stored)?;
            stored
        }
        files => encode(&args, files, (&model, &voices))?,
    };
    let path = voices.add(&OsDisk, &stored, args.force)?;
    if args.at.json {
        print_json(&summary(&voices, stored))?;
        return Ok(Exit::Done);
    }
    let mut text = as_text(&summary(&voices, stored));
    text += &row("written", &path.display().to_string());
    print(&text)?;
    Ok(Exit::Done)
}

fn encode(
    args: &AddArgs,
    files: &[PathBuf],
    (model, voices): (&Path, &Voices),
) -> anyhow::Result<StoredVoice> {
    // Before the model is opened, so that a wrong file is reported at once.
    let references =
        files.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, SpeakError>>()?;
    let folder = ModelFolder::open(model)?;
    let mut synthesizer = Synthesizer::open(&folder, ComputeDevice::choose(device(&args.device)?)?.device)?;
    let voice = synthesizer.encode_references(&references)?;
    let report = ReferenceReport::new(&references, &synthesizer.speaker_segments(&references)?);
    Ok(StoredVoice {
        name: args.name.clone(),
        voice,
        latents: synthesizer.latents(),
        references: references.iter().map(Reference::file).collect(),
        seconds: report.seconds,
        model: voices.fingerprint().to_owned(),
        report: Some(report),
    })
}

/// Refuses a voice that another model has encoded.
fn check_model(voices: &Voices, stored: &StoredVoice) -> Result<(), VoiceError> {
    if stored.model == voices.fingerprint() {
        return Ok(());
    }
    Err(VoiceError::OtherModel {
        name: stored.name.clone(),
        found: stored.model.clone(),
        wanted: voices.fingerprint().to_owned(),
        references: stored.references.clone(),
    })
}

fn list(at: &Model) -> anyhow::Result<Exit> {
    let (voices, manifest) = opened(at)?;
    let names = voices.names()?;
    let mut all: Vec<VoiceSummary> = names.iter().filter_map(|name| stored_voice(&voices, name)).collect();
    all.extend(manifest.voices.into_iter().filter(|name| !names.contains(name)).map(model_voice));
    if at.json {
        print_json(&all)?;
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        print("no voices yet: `myxtts voice add NAME recording.wav` saves one\n")?;
        return Ok(Exit::Done);
    }
    let line = |one: &VoiceSummary| {
        let about = match (&one.problem, one.seconds) {
            (Some(problem), _) => problem.clone(),
            (None, Some(seconds)) => format!("{seconds:.1} s of {}", one.references.join(", ")),
            (None, None) => "included in the model".to_owned(),
        };
        row(&one.name, &about)
    };
    print(&all.iter().map(line).collect::<String>())?;
    Ok(Exit::Done)
}

fn show(name: &str, at: &Model) -> anyhow::Result<Exit> {
    let (voices, manifest) = opened(at)?;
    let found = match stored_voice(&voices, name) {
        Some(found) => found,
        None if manifest.voices.iter().any(|own| own == name) => model_voice(name.to_owned()),
        None => return Err(unknown(name, &voices, manifest)?),
    };
    if at.json {
        print_json(&found)?
    } else {
        print(&as_text(&found))?
    }
    Ok(Exit::Done)
}

fn remove(name: &str, at: &Model) -> anyhow::Result<Exit> {
    let (voices, manifest) = opened(at)?;
    let is_included = manifest.voices.iter().any(|own| own == name);
    if is_included && !voices.names()?.iter().any(|saved| saved == name) {
        let message =
            format!("the voice {name:?} came with the model and is part of its files: it cannot be removed");
        return Err(UsageError(message).into());
    }
    voices.remove(&OsDisk, name)?;
    match at.json {
        true => print_json(&serde_json::json!({ "removed": name }))?,
        false => print(&row("removed", name))?,
    }
    Ok(Exit::Done)
}

fn export(args: ExportArgs) -> anyhow::Result<Exit> {
    let extension =
        args.output.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_owned();
    if extension != "safetensors" && extension != "json" {
        let message = format!("-o {}: name a .safetensors or a .json file", args.output.display());
        return Err(UsageError(message).into());
    }
    let model = args.at.path()?;
    let mut inputs = Inputs::default();
    inputs.add_model(&model);
    let destination = inputs.check("-o", &args.output)?;
    let voices = Voices::from_manifest(&model, &ModelFolder::read_manifest(&model)?);
    let stored = match voices.own(&args.name)? {
        Some(stored) => stored,
        None => {
            let folder = ModelFolder::open(&model)?;
            let Some(voice) = built_in(&folder, &args.name) else {
                return Err(VoiceError::Unknown { name: args.name, names: all_names(&folder)? }.into());
            };
            let latents =
                folder.voice(&args.name).and_then(|(latents, _)| latents.shape.iter().rev().nth(1).copied());
            StoredVoice {
                name: args.name.clone(),
                voice,
                latents: latents.unwrap_or(1),
                references: Vec::new(),
                seconds: 0.0,
                model: voices.fingerprint().to_owned(),
                report: None,
            }
        }
    };
    let bytes = match extension.as_str() {
        "json" => serde_json::to_vec(&stored.to_json())?,
        _ => stored.to_bytes(),
    };
    destination.write(&bytes)?;
    match args.at.json {
        true => print_json(&serde_json::json!({ "name": args.name, "output": args.output }))?,
        false => print(&row("written", &args.output.display().to_string()))?,
    }
    Ok(Exit::Done)
}

impl Model {
    /// The model that `speak` would use.
    fn path(&self) -> anyhow::Result<PathBuf> {
        Ok(defaults::model(self.model.as_deref(), &self.runs)?.model)
    }
}

/// The saved voices of a model, and its manifest.
fn opened(at: &Model) -> anyhow::Result<(Voices, Manifest)> {
    let model = at.path()?;
    let manifest = ModelFolder::read_manifest(&model)?;
    Ok((Voices::from_manifest(&model, &manifest), manifest))
}

fn unknown(name: &str, voices: &Voices, manifest: Manifest) -> anyhow::Result<anyhow::Error> {
    let names = voices.names()?.into_iter().chain(manifest.voices).collect();
    Ok(VoiceError::Unknown { name: name.to_owned(), names }.into())
}

/// A stored voice, even if it is not usable; `None` if there is none of that name.
fn stored_voice(voices: &Voices, name: &str) -> Option<VoiceSummary> {
    match voices.get(name) {
        Ok(found) => found.map(|stored| summary(voices, stored)),
        Err(error) => Some(VoiceSummary {
            usable: false,
            problem: Some(error.to_string()),
            kind: "stored",
            ..model_voice(name.to_owned())
        }),
    }
}

fn model_voice(name: String) -> VoiceSummary {
    VoiceSummary {
        name,
        kind: "model",
        usable: true,
        problem: None,
        references: Vec::new(),
        seconds: None,
        model: None,
        report: None,
    }
}

fn summary(voices: &Voices, stored: StoredVoice) -> VoiceSummary {
    let problem = check_model(voices, &stored).err().map(|error| error.to_string());
    VoiceSummary {
        name: stored.name,
        kind: "stored",
        usable: problem.is_none(),
        problem,
        references: stored.references,
        seconds: Some(stored.seconds),
        model: Some(stored.model),
        report: stored.report,
    }
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<12} {text}\n")
}

fn as_text(one: &VoiceSummary) -> String {
    let mut text = row("voice", &one.name);
    if let Some(seconds) = one.seconds {
        text += &row("length", &format!("{seconds:.1} s"));
    }
    if one.kind == "model" {
        text += &row("from", "included in the model");
    }
    for facts in one.report.iter().flat_map(|report| &report.references) {
        let clipped = match facts.clipped > 0.0 {
            true => format!(", {:.2} % clipped", 100.0 * facts.clipped),
            false => String::new(),
        };
        let line = format!(
            "{}: {:.1} s at {} Hz, {:.0} dB above the noise{clipped}",
            facts.file, facts.seconds, facts.sample_rate, facts.signal_to_noise_db
        );
        text += &row("reference", &line);
    }
    if let Some(least) = one.report.as_ref().and_then(|report| report.least_similarity) {
        let meaning = "similarity of the two most different parts; 1 is identical";
        text += &row("consistency", &format!("{least:.2} ({meaning})"));
    }
    for advice in one.report.iter().flat_map(|report| &report.advice) {
        text += &row("note", &advice.text);
    }
    if let Some(problem) = &one.problem {
        text += &row("problem", problem);
    }
    text
}

//! `evaluate --texts`: speaks a list of texts.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use myxtts_data::dataset::list::{ListEntry, read_list};
use myxtts_model::sampling::SamplingOptions;
use myxtts_model::weights::ModelFolder;
use myxtts_run::durable::{self, OsDisk};
use myxtts_run::exit::Exit;
use myxtts_run::plan::Plan;
use myxtts_speak::Synthesizer;
use myxtts_train::ComputeDevice;
use myxtts_train::evaluate::html::Page;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::evaluate::texts::{SpeakListOptions, SpokenTexts, speak_list};
use myxtts_train::job_control::JobControl;
use serde::Serialize;

use super::{Args, common_facts};
use crate::arguments::device;
use crate::failure::UsageError;
use crate::inputs::Inputs;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::signal::stop_requested;
use crate::target::{find_voice, language};

/// The content of `report.json`.
#[derive(Serialize)]
struct Report {
    model: PathBuf,
    list: PathBuf,
    voice: Vec<PathBuf>,
    device: String,
    language: String,
    seed: u64,
    sampling: SamplingOptions,
    takes: usize,
    recognizer: Option<String>,
    /// Why the recogniser failed.
    recognizer_error: Option<String>,
    #[serde(flatten)]
    spoken: SpokenTexts,
}

pub fn run(args: &Args, list: &Path, output: &Path, model: &Path, settings: &Plan) -> anyhow::Result<Exit> {
    let stop = stop_requested()?;
    let mut texts = read_list(list, args.recordings.as_deref())?;
    texts.truncate(args.limit.unwrap_or(usize::MAX));
    if args.voice.is_empty()
        && let Some(without) = texts.iter().find(|text| text.reference.is_none())
    {
        return Err(UsageError(format!(
            "{}, line {}: {} has no reference: write `id|text|reference.wav`, or give one voice for all with --voice",
            list.display(),
            without.line,
            without.id
        ))
        .into());
    }
    reject_inputs(&texts, &args.voice, list, output)?;
    let mut listener = Listener::of(&settings.training)?;
    let machine = ComputeDevice::choose(device(&args.device)?)?;
    let folder = ModelFolder::open(model)?;
    let mut synthesizer = Synthesizer::open_for(&folder, machine.device, args.sampling.decoding())?;
    if let Some(cleaner) = &settings.data.cleaner {
        synthesizer = synthesizer.with_cleaner(cleaner.parse()?);
    }
    let voice = match &args.voice[..] {
        [] => None,
        named => Some(find_voice(&mut synthesizer, &folder, named)?),
    };
    durable::create_folder(&OsDisk, output)?;
    let language = language(&synthesizer, settings.data.language.as_deref());
    let options = args.sampling.speak_options(&synthesizer, settings.training.seed);
    let speaking =
        SpeakListOptions { folder: output, language: &language, voice: voice.as_ref(), options: &options };
    let progress = Terminal::new();
    let job = JobControl { progress: &progress, stop: &stop };
    let spoken = speak_list(&mut synthesizer, &texts, &speaking, listener.as_mut(), job)?;
    let failed = listener.as_ref().and_then(Listener::failed);
    let report = Report {
        model: model.to_owned(),
        list: list.to_owned(),
        voice: args.voice.clone(),
        device: machine.device.to_string(),
        language: language.clone(),
        seed: settings.training.seed,
        sampling: options.sampling.clone(),
        takes: options.candidates,
        recognizer: listener.as_ref().map(|listener| listener.recognizer().to_string()),
        recognizer_error: failed.map(ToString::to_string),
        spoken,
    };
    let json = serde_json::to_vec_pretty(&report)?;
    durable::write(&output.join("report.json"), &json)?;
    let facts = [("model", &report.model), ("list", &report.list)]
        .map(|(name, path)| (name, path.display().to_string()));
    let mut facts = facts.to_vec();
    let named: Vec<String> = args.voice.iter().map(|path| path.display().to_string()).collect();
    facts.push((
        "voice",
        if named.is_empty() { "each text's own reference".to_owned() } else { named.join(", ") },
    ));
    facts.extend([("device", report.device.clone()), ("language", language.clone())]);
    facts.extend(common_facts(&options, listener.as_ref()));
    let (figures, columns) = (vec![("spoken", &report.spoken.figures)], vec!["recording", "spoken"]);
    let page = Page { title: "Texts spoken", facts, figures, columns, rows: report.spoken.rows() };
    durable::write(&output.join("report.html"), page.html().as_bytes())?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&as_text(&report, output))?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }
    Ok(match (report.spoken.failed, &report.recognizer_error) {
        (0, None) => Exit::Done,
        (0, Some(_)) => Exit::Io,
        _ => Exit::BadData,
    })
}

fn as_text(report: &Report, output: &Path) -> String {
    let SpokenTexts { figures, failed, items } = &report.spoken;
    let mut text = format!("{:<36} {} of {}\n", "texts spoken", items.len() - failed, items.len());
    text += &figures.lines();
    text + &format!("{:<36} {}\n", "written", output.join("report.html").display())
}

/// Spoken texts are written as `ID.wav`, also next to the recordings of the same names: those must not be replaced.
fn reject_inputs(texts: &[ListEntry], voice: &[PathBuf], list: &Path, output: &Path) -> anyhow::Result<()> {
    let mut inputs = Inputs::default();
    inputs.add(list, "the list of texts");
    voice.iter().for_each(|path| inputs.add(path, "a recording of the voice"));
    for text in texts {
        text.recording.iter().for_each(|path| inputs.add(path, "a recording that is compared with"));
        text.reference.iter().for_each(|path| inputs.add(path, "a reference"));
    }
    let reports = ["report.json", "report.html"].map(str::to_owned);
    for name in texts.iter().map(|text| format!("{}.wav", text.id)).chain(reports) {
        inputs.reject("-o", &output.join(name))?;
    }
    Ok(())
}

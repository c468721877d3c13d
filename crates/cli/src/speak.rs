//! `myxtts speak`: a text in the voice of a recording.

use std::path::PathBuf;
use std::time::Instant;

use myxtts_data::audio::wav;
use myxtts_data::text::Cleaner;
use myxtts_model::SamplingOptions;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::destination::{Destination, DestinationError};
use myxtts_run::exit::Exit;
use myxtts_speak::{Attempt, Flaw, Quality, SpeakOptions, Synthesizer, Waveform};
use myxtts_tensor::device::{self, Device};
use serde::Serialize;

use crate::failure::UsageError;
use crate::output::{print, print_json};
use crate::sampling::Sampling;
use crate::target::hear;

#[derive(clap::Args)]
pub struct Args {
    /// What to say
    text: String,
    /// A recording of the voice, or the name of a voice in the model; several recordings are heard as one voice
    #[arg(long, value_name = "FILE", required = true)]
    voice: Vec<PathBuf>,
    /// WAV file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Model folder
    #[arg(long, value_name = "DIR", default_value = "model")]
    model: PathBuf,
    /// Language of the text
    #[arg(long, value_name = "CODE", default_value = "en")]
    language: String,
    /// The same seed says it the same way
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    sampling: Sampling,
    /// How often to try again with the next seed where it looped, did not end, stopped early or fell silent
    #[arg(long, value_name = "N", default_value_t = SpeakOptions::from(SamplingOptions::default()).further_tries)]
    retries: usize,
    /// How text is read, `default`, `coqui` or `phonemes` [default: as the model was trained; for imported models `default`]
    #[arg(long, value_name = "NAME")]
    cleaner: Option<Cleaner>,
    /// Where to compute: auto, cpu, cuda, cuda:1
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What was done, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    output: PathBuf,
    model: PathBuf,
    device: String,
    /// `decoded` or `early`.
    quality: &'static str,
    /// The text as it was read.
    text: String,
    tokens: usize,
    unknown: Vec<char>,
    codes: usize,
    ended: myxtts_model::Ended,
    /// What is wrong with it still.
    flaw: Option<Flaw>,
    /// All tries in their order.
    attempts: Vec<Attempt>,
    seconds: f64,
    sample_rate: u32,
    /// Seconds it took to open the model, to hear the voice, and to speak.
    opening: f64,
    hearing: f64,
    speaking: f64,
    /// Seconds of speaking for a second of sound.
    real_time_factor: f64,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let device = chosen(&args.device)?;
    if !args.model.exists() {
        return Err(UsageError(format!(
            "there is no model folder {}: name one with --model; `myxtts import` makes one of a release",
            args.model.display()
        ))
        .into());
    }
    let output = destination(&args)?;
    let start = Instant::now();
    let folder = ModelFolder::open(&args.model)?;
    let mut synthesizer = Synthesizer::open(&folder, device)?;
    if let Some(cleaner) = args.cleaner {
        synthesizer = synthesizer.with_cleaner(cleaner);
    }
    let opening = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let voice = hear(&mut synthesizer, &folder, &args.voice)?;
    let hearing = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let sampling = args.sampling.options(synthesizer.usual_options(), args.seed);
    let options = SpeakOptions { further_tries: args.retries, ..sampling.into() };
    let said = synthesizer.speak_with(&args.text, &args.language, &voice, &options)?;
    let speaking = start.elapsed().as_secs_f64();
    output.write(&wav::encode_pcm16(&said.samples, said.rate))?;

    let seconds = said.seconds();
    let Waveform { cleaned, tokens, unknown, codes, ended, flaw, attempts, rate, .. } = said;
    let report = Report {
        output: args.output,
        model: args.model,
        device: device.to_string(),
        quality: match synthesizer.quality() {
            Quality::Decoded => "decoded",
            Quality::Early => "early",
        },
        text: cleaned,
        tokens,
        unknown,
        codes,
        ended,
        flaw,
        attempts,
        seconds,
        sample_rate: rate,
        opening,
        hearing,
        speaking,
        real_time_factor: if seconds > 0.0 { speaking / seconds } else { 0.0 },
    };
    if args.json {
        print_json(&report)?
    } else {
        print(&as_text(&report, &args.voice))?
    }
    Ok(Exit::Done)
}

/// Where the sound goes: known to be writable, and nothing that is read, before the model is opened.
fn destination(args: &Args) -> Result<Destination, DestinationError> {
    let model = ["manifest.json", "vocab.json", "config.json"].map(str::to_owned);
    let parts = Part::ALL.map(|part| part.file().to_owned());
    let model: Vec<PathBuf> = model.iter().chain(&parts).map(|file| args.model.join(file)).collect();
    let references = args.voice.iter().map(|path| (path.as_path(), "a recording of the voice"));
    let model = model.iter().map(|path| (path.as_path(), "a file of the model"));
    Destination::of("-o", &args.output)?.unlike("-o", references.chain(model))
}

/// The device that was asked for, if there is such a one.
fn chosen(asked: &str) -> anyhow::Result<Device> {
    if asked == "cpu" {
        return Ok(Device::Cpu);
    }
    let inventory = device::devices();
    if asked == "auto" {
        return Ok(inventory.default.device);
    }
    let device: Device = asked.parse().map_err(|error| UsageError(format!("{error}, or auto")))?;
    match device {
        Device::Cuda(index) if inventory.gpus.get(index).is_none() => {
            let reason = inventory.no_gpus.unwrap_or_else(|| format!("there are {}", inventory.gpus.len()));
            Err(UsageError(format!("there is no {device}: {reason}")).into())
        }
        device => Ok(device),
    }
}

fn as_text(report: &Report, voice: &[PathBuf]) -> String {
    let row = |name: &str, text: String| format!("{name:<12} {text}\n");
    let how = match report.quality {
        "early" => "early sound, by the DVAE: rough until there is a decoder",
        _ => "the decoder",
    };
    let names: Vec<String> = voice.iter().map(|path| path.display().to_string()).collect();
    let mut text = row("model", format!("{} on {}", report.model.display(), report.device));
    text += &row("voice", names.join(", "));
    text += &row("read as", report.text.clone());
    if !report.unknown.is_empty() {
        let list: String = report.unknown.iter().map(|c| format!(" {c:?}")).collect();
        text += &row("not said", format!("{} characters the vocabulary lacks:{list}", report.unknown.len()));
    }
    text += &row("codes", format!("{} of {} tokens", report.codes, report.tokens));
    if let Some(flaw) = report.flaw {
        text += &row("note", flaw.to_string());
    }
    if report.attempts.len() > 1 {
        let list: Vec<String> = report.attempts.iter().map(Attempt::to_string).collect();
        text += &row("tries", list.join("; "));
    }
    text += &row("sound", format!("{:.2} s at {} Hz, from {how}", report.seconds, report.sample_rate));
    text += &row(
        "time",
        format!(
            "{:.2} s to open, {:.2} s to hear, {:.2} s to speak: {:.2} s for a second of sound",
            report.opening, report.hearing, report.speaking, report.real_time_factor
        ),
    );
    text + &row("written", report.output.display().to_string())
}

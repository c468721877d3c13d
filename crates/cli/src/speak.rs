//! `myxtts speak`: speaks a text of any length.

pub mod defaults;
mod job;
mod player;
mod report;
mod speaker;
mod text;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use myxtts_model::SamplingOptions;
use myxtts_model::weights::ModelFolder;
use myxtts_run::exit::Exit;
use myxtts_run::output_path::OutputPath;
use myxtts_run::regular_file;
use myxtts_speak::audio_file::{Depth, Encoder, Format, SinkKind};
use myxtts_speak::language::guess_language;
use myxtts_speak::long_text::Pieces;
use myxtts_speak::narration::{Joins, NarrationSettings, SPEEDS};
use myxtts_speak::threads::limit_threads;
use myxtts_speak::{AudibleStart, Decoding, Quality, SpeakOptions, Synthesizer, Voice};
use myxtts_tensor::device::{self, Device};
use myxtts_text::Cleaner;

use crate::failure::UsageError;
use crate::inputs::Inputs;
use crate::output::{errln, print, print_json};
use crate::sampling::{Sampling, at_least_one};
use crate::target::find_voice;
use defaults::FoundModel;
use job::{Job, Output};
use player::Player;
use report::Report;
use speaker::{ModelSpeaker, Totals};
use text::{Text, free_name};

const EXAMPLES: &str = "\
Examples:
  myxtts speak \"Hello there.\"
      the newest run's model, its first voice, to speech.wav
  myxtts speak \"Hello.\" --voice ref.wav -o hi.mp3
      clones the voice of a recording
  myxtts speak \"Hello.\" --voice \"anna(2)+ben(1)\"
      a mix of voices saved with `myxtts voice add`
  myxtts speak --file book.txt -o book.opus --srt book.srt
  myxtts speak --file book.txt -o book.opus --resume
      continues where it was interrupted
  echo \"Hello.\" | myxtts speak --play
      plays it while it is generated
  myxtts speak \"Hello.\" -o - --format pcm --stream | aplay -f S16_LE -r 24000

Text: blank lines separate paragraphs, [pause:1s] and [pause:300ms] insert
silence. Formats: wav, wav24, wav-float, flac, mp3, opus, pcm; by the file
extension, or --format. The same text, model, voice and seed give the same
audio; see --seed about --stream and --play.";

/// A text of at least this many bytes counts as long: it may have many pieces.
const LONG_TEXT: u64 = 1000;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The text to speak; `-` for standard input
    text: Option<String>,
    /// Read the text from a file of any length; `-` for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// A saved voice, a voice of the model, a mix such as `anna(2)+ben(1)`, or a recording; several recordings form one voice
    /// [default: the model's first voice, else a speaker of the run]
    #[arg(long, value_name = "VOICE")]
    voice: Vec<PathBuf>,
    /// Output file; `-` for standard output [default: speech.wav, speech-2.wav and so on; none with --play]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// wav (16 bits), wav24, wav-float, flac, mp3, opus or pcm [default: by the file extension]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Model folder, or the name of a run or of a model in models/ [default: ./model, else the newest run's, else the first in models/]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Language of the text [default: guessed from its letters, among the languages of the model]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Random seed; the same seed gives the same audio. Speech that --stream or --play has already output is not retried if it is
    /// flawed, so it may differ from a file written without them
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Speaking rate from 0.5 (slower) to 2 (faster), at the same pitch
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed, allow_negative_numbers = true)]
    speed: f64,
    /// Pause between sentences, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300)]
    sentence_pause: u64,
    /// Pause between paragraphs, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 700)]
    paragraph_pause: u64,
    /// Write audio while it is generated, instead of a whole file at the end
    #[arg(long, conflicts_with = "resume")]
    stream: bool,
    /// Play audio while it is generated, with ffplay, aplay, paplay or afplay
    #[arg(long, conflicts_with = "resume")]
    play: bool,
    /// Continue a long text that was interrupted
    #[arg(long)]
    resume: bool,
    /// Write the time of each piece as subtitles
    #[arg(long, value_name = "FILE")]
    srt: Option<PathBuf>,
    #[command(flatten)]
    sampling: Sampling,
    /// How often to retry with the next seed if speech loops, does not end, stops early or is silent
    #[arg(long, value_name = "N", default_value_t = SpeakOptions::from(SamplingOptions::default()).retries)]
    retries: usize,
    /// Text cleaner: `default`, `coqui` or `phonemes` [default: the one the model was trained with; `default` if imported]
    #[arg(long, value_name = "NAME")]
    cleaner: Option<Cleaner>,
    /// Number of pieces of a long text spoken at the same time on a GPU; it does not change the audio
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    batch: usize,
    /// Decode in f32 on a GPU too: slower, with the same codes as on a CPU
    #[arg(long)]
    exact: bool,
    /// Device to compute on: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Number of CPU threads; it does not change the audio [default: one per logical CPU]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// Print the report as JSON, with the times of all pieces
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(threads) = args.threads {
        limit_threads(threads).context("--threads")?;
    }
    let device = existing_device(&args.device)?;
    let FoundModel { model, run } = defaults::model(args.model.as_deref(), &args.runs)?;
    let (output, format) = output(&args, &model)?;
    let srt = args.srt.as_deref().map(|path| srt(&args, path, &model)).transpose()?;
    if args.play {
        Player::check_installed()?;
    }
    let text = Text::find(args.text.clone(), args.file.as_deref())?;

    let start = Instant::now();
    let folder = ModelFolder::open(&model)?;
    let mut synthesizer = Synthesizer::open_for(&folder, device, decoding(&args, text.bytes))?;
    if let Some(cleaner) = args.cleaner {
        synthesizer = synthesizer.with_cleaner(cleaner);
    }
    // Fails now, and not after an hour of speech, if the format does not support the sample rate of this model.
    Encoder::begin(format, synthesizer.quality().rate(), SinkKind::Streamed, &mut Vec::new())?;
    let opening = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let guessed = || guess_language(&text.beginning, &synthesizer.languages());
    let language = args.language.clone().or_else(guessed).unwrap_or_else(|| "en".to_owned());
    let voice_names = match &args.voice[..] {
        [] => defaults::voice(&folder, run.as_ref(), &language)?,
        names => names.to_vec(),
    };
    let voice = find_voice(&mut synthesizer, &folder, &voice_names)?;
    let encoding = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let audible_start = args.play.then(AudibleStart::default);
    let mut options = args.sampling.speak_options(&synthesizer, args.seed);
    (options.retries, options.audible_start) = (args.retries, audible_start);
    let is_streamed = args.stream || args.play;
    if let Some(note) = args.sampling.length_penalty_note(&synthesizer, &options, is_streamed) {
        errln!("note: {note}");
    }
    let job = Job {
        output,
        format,
        settings: settings(&args),
        resume: args.resume,
        play: args.play,
        bytes: text.bytes,
        identity: identity(&folder, &voice, &language, &synthesizer, &options, args.exact),
    };
    let quality = synthesizer.quality();
    let is_phonemes = synthesizer.cleaner() == Cleaner::Phonemes && language.starts_with("en");
    let measure = synthesizer.token_budget(&language);
    let count = |text: &str| measure.count(text);
    let pieces = Pieces::new(text.reader, measure.limit(), &count);
    let totals = Totals::default();
    let mut speaker =
        ModelSpeaker { synthesizer: &mut synthesizer, voice, language, options, is_streamed, totals };
    let Some(spoken) = job.speak(pieces, &mut speaker)? else { return Ok(Exit::Stopped) };
    let speaking = start.elapsed().as_secs_f64();
    if let Some(srt) = srt {
        srt.write(spoken.timings.srt().as_bytes())?;
    }

    let timings = &spoken.timings;
    let seconds = timings.samples as f64 / f64::from(timings.rate);
    let now = (timings.samples - spoken.resumed_samples) as f64 / f64::from(timings.rate);
    let ModelSpeaker { language, totals, .. } = speaker;
    let report = Report {
        output: job.output.path(),
        format: format.to_string(),
        model,
        voice: voice_names,
        language,
        device: device.to_string(),
        quality: match quality {
            Quality::Decoded => "decoded",
            Quality::Early => "early",
        },
        is_phonemes,
        text: totals.cleaned,
        tokens: totals.tokens,
        unknown: totals.unknown.into_iter().collect(),
        codes: totals.codes,
        ended: totals.ended,
        flaw: totals.flaw,
        attempts: totals.attempts,
        seconds,
        sample_rate: timings.rate,
        opening,
        encoding,
        first_audio: totals.first_audio.map(|first| (first - start).as_secs_f64()),
        speaking,
        real_time_factor: if now > 0.0 { speaking / now } else { 0.0 },
        resumed: spoken.resumed,
        pieces: Report::pieces_of(timings),
    };
    match (matches!(job.output, Output::Stdout), args.json) {
        (false, true) => print_json(&report)?,
        (false, false) => print(&report.text())?,
        // Standard output carries the audio.
        (true, true) => errln!("{}", serde_json::to_string_pretty(&report)?),
        (true, false) => errln!("{}", report.text().trim_end()),
    }
    Ok(Exit::Done)
}

/// How codes are decoded: with slots for many pieces only if the text may have many.
fn decoding(args: &Args, bytes: Option<u64>) -> Decoding {
    let is_short = bytes.is_some_and(|bytes| bytes < LONG_TEXT);
    match args.exact {
        true => Decoding::Exact,
        false if args.stream || args.play => Decoding::Fast { slots: 1 },
        false if is_short => args.sampling.decoding(),
        false => Decoding::Fast { slots: args.batch },
    }
}

fn settings(args: &Args) -> NarrationSettings {
    let joins = Joins {
        sentence: Duration::from_millis(args.sentence_pause),
        paragraph: Duration::from_millis(args.paragraph_pause),
        ..Joins::default()
    };
    NarrationSettings { joins, speed: args.speed, seed: args.seed }
}

/// Everything that determines how a text sounds, apart from the narration settings.
fn identity(
    folder: &ModelFolder,
    voice: &Voice,
    language: &str,
    synthesizer: &Synthesizer,
    options: &SpeakOptions,
    exact: bool,
) -> String {
    let files: Vec<&str> = folder.manifest().files.values().map(|file| file.blake3.as_str()).collect();
    let SpeakOptions { sampling, retries, candidates, length_penalty, audible_start } = options;
    // Journals of unfinished books hold a hash of this text: it stays as it was where options keep their defaults.
    let options = format!(
        "SpeakOptions {{ sampling: {sampling:?}, retries: {retries}, takes: {candidates}, \
         audible_start: {audible_start:?} }}"
    );
    let penalty = if *length_penalty == 0.0 { String::new() } else { format!(" {length_penalty:?}") };
    format!("{files:?} {voice:?} {language} {} {options} {exact}{penalty}", synthesizer.cleaner())
}

/// The output and its format. Checked before the model is opened: it must be writable and must not be an input.
fn output(args: &Args, model: &Path) -> anyhow::Result<(Output, Format)> {
    let wav = Format::Wav(Depth::Int16);
    let path = match &args.output {
        Some(path) if path == Path::new("-") => return Ok((Output::Stdout, args.format.unwrap_or(wav))),
        Some(path) => path.clone(),
        None if args.play => return Ok((Output::Nowhere, args.format.unwrap_or(wav))),
        None if args.resume => {
            return Err(UsageError("--resume needs -o: the file to continue".to_owned()).into());
        }
        None => free_name("speech", args.format.map_or("wav", extension)),
    };
    let destination = inputs(args, model).check("-o", &path)?;
    let format = match args.format {
        Some(format) => format,
        // A device or a pipe has no extension.
        None if path.extension().is_none() && is_special(&path) => wav,
        None => Format::from_path(&path)?,
    };
    let output = if args.stream { Output::Streamed(destination) } else { Output::Whole(destination) };
    Ok((output, format))
}

/// Whether a path names a device, a pipe or a socket.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn extension(format: Format) -> &'static str {
    match format {
        Format::Wav(_) => "wav",
        format => format.name(),
    }
}

/// The files that speaking reads.
fn inputs(args: &Args, model: &Path) -> Inputs {
    let mut inputs = Inputs::default();
    args.voice.iter().for_each(|path| inputs.add(path, "a recording of the voice"));
    args.file.iter().for_each(|path| inputs.add(path, "the text"));
    inputs.add_model(model);
    inputs
}

/// The file of subtitles, which must be another one than the audio.
fn srt(args: &Args, path: &Path, model: &Path) -> anyhow::Result<OutputPath> {
    if args.output.as_deref().is_some_and(|audio| audio == path || regular_file::is_same(audio, path)) {
        let message = format!("--srt {} is the file of the audio too: name another", path.display());
        return Err(UsageError(message).into());
    }
    Ok(inputs(args, model).check("--srt", path)?)
}

/// Parses `--device` and checks that the device exists.
pub fn existing_device(name: &str) -> anyhow::Result<Device> {
    if name == "cpu" {
        return Ok(Device::Cpu);
    }
    let inventory = device::devices();
    if name == "auto" {
        return Ok(inventory.default.device);
    }
    let device: Device = name.parse().map_err(|error| UsageError(format!("{error}, or auto")))?;
    match device {
        Device::Cuda(index) if inventory.gpus.get(index).is_none() => {
            let reason = inventory.no_gpus.unwrap_or_else(|| format!("there are {}", inventory.gpus.len()));
            Err(UsageError(format!("there is no {device}: {reason}")).into())
        }
        device => Ok(device),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let parsed: Option<f64> = text.parse().ok();
    parsed.filter(|speed| SPEEDS.contains(speed)).ok_or_else(|| "expected a number from 0.5 to 2".to_owned())
}

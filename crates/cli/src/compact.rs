//! `myxtts compact`: writes a model folder that takes about a fifth of the space.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use myxtts_model::weights::compact::{DEFAULT_BITS, limit_of_bits, relative_error};
use myxtts_model::weights::folder::{CONFIG, Manifest, VOCABULARY};
use myxtts_model::weights::tensors::TensorSpec;
use myxtts_model::weights::{ElementType, FolderWriter, ModelFolder, Part};
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;
use myxtts_speak::reference::{Reference, ReferenceReport};
use myxtts_speak::voices::{check_name, find_stored};
use myxtts_speak::{ComputeDevice, SpeakError, Synthesizer, Voice};
use serde::Serialize;

use crate::arguments::device;
use crate::failure::UsageError;
use crate::output::{errln, print, print_json};
use crate::speak::defaults;

const EXAMPLES: &str = "\
Examples:
  myxtts compact mina -o mina-small
      the model of the run mina; --bits 6.5 makes it smaller
  myxtts compact xtts -o models/anna --voice anna=anna.wav --source \"Anna, 2 hours\" --licence CC-BY-4.0
      a model to publish, with a voice
  myxtts speak \"Hello there.\" --model mina-small
  myxtts train CORPUS --from mina-small

Weights become integers of --bits bits with one scale per row or column; small
tensors and voices are stored exactly. The weights change a little: the report
has the relative error of each part. Every command reads the result like any
other model folder.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, run folder, or the name of a run or of a model in models/
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Model folder to write
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Bits per weight before compression, from 4 to 8; fractions such as 6.5 are possible
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BITS, value_parser = bits)]
    bits: f32,
    /// Include a voice: NAME=RECORDING encodes it (repeat it for several recordings of one voice), NAME takes the saved voice
    #[arg(long, value_name = "NAME[=FILE]", value_parser = voice_argument)]
    voice: Vec<VoiceArgument>,
    /// Where the weights come from [default: the model's own]
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,
    /// Licence of the weights [default: the model's own]
    #[arg(long, value_name = "TEXT")]
    licence: Option<String>,
    /// Folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Device to encode voices on: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Replace the model that is in the folder
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A value of `--voice`.
#[derive(Clone, Debug)]
struct VoiceArgument {
    name: String,
    /// `None` for a saved voice.
    recording: Option<PathBuf>,
}

fn voice_argument(text: &str) -> Result<VoiceArgument, String> {
    let (name, recording) = match text.split_once('=') {
        Some((name, recording)) => (name, Some(PathBuf::from(recording))),
        None => (text, None),
    };
    check_name(name).map_err(|error| error.to_string())?;
    Ok(VoiceArgument { name: name.to_owned(), recording })
}

fn bits(text: &str) -> Result<f32, String> {
    let bits = text.parse().ok().filter(|&bits| limit_of_bits(bits).is_some());
    bits.ok_or_else(|| "expected a number from 4 to 8".to_owned())
}

/// A voice to be included.
struct IncludedVoice {
    name: String,
    /// Shape and data of the conditioning.
    latents: (Vec<usize>, Vec<f32>),
    /// Shape and data of the speaker vector.
    speaker: (Vec<usize>, Vec<f32>),
}

/// What was written.
#[derive(Serialize)]
struct Report {
    output: PathBuf,
    bits: f32,
    /// Bytes of all files that the manifests list.
    bytes_before: u64,
    bytes: u64,
    parts: Vec<PartReport>,
    voices: Vec<String>,
    source: String,
    licence: String,
}

#[derive(Serialize)]
struct PartReport {
    file: &'static str,
    bytes_before: u64,
    bytes: u64,
    /// Norm of the difference of all weights divided by their norm.
    relative_error: f64,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let limit = limit_of_bits(args.bits).ok_or_else(|| UsageError("--bits: from 4 to 8".to_owned()))?;
    let model = defaults::model(Some(&args.model), &args.runs)?.model;
    let folder = ModelFolder::open(&model)?;
    if same_folder(&model, &args.output) {
        return Err(UsageError("-o names the model itself: name another folder".to_owned()).into());
    }
    let voices = voices(&args, &folder)?;
    write(&args, &folder, &voices, limit)?;

    // From the files: what is reported was measured.
    let written = ModelFolder::open(&args.output)?;
    let mut parts = Vec::new();
    for part in Part::ALL.into_iter().filter(|&part| part != Part::Voices) {
        let (Some(before), Some(after)) = (folder.part(part), written.part(part)) else { continue };
        let relative_error = relative_error(before, after)
            .ok_or_else(|| anyhow::anyhow!("{} has other tensors than the model", after.path().display()))?;
        let size = |manifest: &Manifest| manifest.part(part).map_or(0, |record| record.bytes);
        let (bytes_before, bytes) = (size(folder.manifest()), size(written.manifest()));
        let file = part.compact_file().unwrap_or(part.file());
        parts.push(PartReport { file, bytes_before, bytes, relative_error });
    }
    let size = |manifest: &Manifest| manifest.files.values().map(|record| record.bytes).sum();
    let report = Report {
        output: args.output,
        bits: args.bits,
        bytes_before: size(folder.manifest()),
        bytes: size(written.manifest()),
        parts,
        voices: written.manifest().voices.clone(),
        source: written.manifest().source.clone(),
        licence: written.manifest().licence.clone(),
    };
    match args.json {
        true => print_json(&report)?,
        false => print(&as_text(&report))?,
    }
    Ok(Exit::Done)
}

fn same_folder(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

fn write(args: &Args, folder: &ModelFolder, voices: &[IncludedVoice], limit: u8) -> anyhow::Result<()> {
    let mut writer = FolderWriter::create(&OsDisk, &args.output, args.force)?;
    let manifest = folder.manifest();
    *writer.manifest() = Manifest {
        files: Default::default(),
        voices: voices.iter().map(|voice| voice.name.clone()).collect(),
        source: args.source.clone().unwrap_or_else(|| manifest.source.clone()),
        licence: args.licence.clone().unwrap_or_else(|| manifest.licence.clone()),
        ..manifest.clone()
    };
    for part in Part::ALL.into_iter().filter(|&part| part != Part::Voices) {
        if let Some(file) = folder.part(part) {
            writer.compact(part, file, limit)?;
        }
    }
    write_voices(&mut writer, voices)?;
    for file in [VOCABULARY, CONFIG] {
        if let Some(bytes) = folder.text(file)? {
            writer.text(file, &bytes)?;
        }
    }
    writer.finish()?;
    Ok(())
}

fn write_voices(writer: &mut FolderWriter, voices: &[IncludedVoice]) -> anyhow::Result<()> {
    if voices.is_empty() {
        return Ok(());
    }
    let named = voices.iter().enumerate().flat_map(|(i, voice)| {
        [(format!("{i}.gpt_cond_latent"), &voice.latents), (format!("{i}.speaker_embedding"), &voice.speaker)]
    });
    let (specs, data): (Vec<TensorSpec>, Vec<&Vec<f32>>) = named
        .map(|(name, (shape, data))| {
            (TensorSpec { name, kind: ElementType::F32, shape: shape.clone() }, data)
        })
        .unzip();
    let bytes = |i: usize| data[i].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    writer.tensors(Part::Voices, &specs, &mut |i| Ok(Cow::Owned(bytes(i))))?;
    Ok(())
}

/// The voices of the model, then those of `--voice`.
fn voices(args: &Args, folder: &ModelFolder) -> anyhow::Result<Vec<IncludedVoice>> {
    let mut voices = Vec::new();
    for name in &folder.manifest().voices {
        let found = folder.voice(name).and_then(|(latents, speaker)| {
            let (latents, speaker) =
                ((latents.shape.to_vec(), latents.to_f32()?), (speaker.shape.to_vec(), speaker.to_f32()?));
            Some(IncludedVoice { name: name.clone(), latents, speaker })
        });
        let missing = || UsageError(format!("the model lists the voice {name:?} but does not contain it"));
        voices.push(found.ok_or_else(missing)?);
    }
    let mut requested: Vec<(&str, Vec<PathBuf>)> = Vec::new();
    for VoiceArgument { name, recording } in &args.voice {
        match requested.iter_mut().find(|(known, _)| known == name) {
            Some((_, recordings)) if !recordings.is_empty() && recording.is_some() => {
                recordings.extend(recording.clone());
            }
            Some(_) => return Err(UsageError(format!("--voice names {name:?} twice")).into()),
            None if voices.iter().any(|voice| voice.name == *name) => {
                return Err(UsageError(format!("the model already contains a voice {name:?}")).into());
            }
            None => requested.push((name, recording.iter().cloned().collect())),
        }
    }
    if requested.is_empty() {
        return Ok(voices);
    }
    let mut synthesizer = Synthesizer::open(folder, ComputeDevice::choose(device(&args.device)?)?.device)?;
    for (name, recordings) in requested {
        let voice = match recordings.is_empty() {
            true => find_stored(folder, name)?,
            false => encode(&mut synthesizer, &recordings)?,
        };
        let Voice { conditioning, speaker: Some(speaker) } = voice else {
            let message = format!(
                "--voice {name}: the model has no speaker encoder, and only a complete voice can be included"
            );
            return Err(UsageError(message).into());
        };
        let latents = synthesizer.latents();
        let width = conditioning.len() / latents.max(1);
        voices.push(IncludedVoice {
            name: name.to_owned(),
            latents: (vec![1, latents, width], conditioning),
            speaker: (vec![1, speaker.len(), 1], speaker),
        });
    }
    Ok(voices)
}

/// Encodes a voice, and says what is wrong with its recordings.
fn encode(synthesizer: &mut Synthesizer, recordings: &[PathBuf]) -> anyhow::Result<Voice> {
    let references =
        recordings.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, SpeakError>>()?;
    let voice = synthesizer.encode_references(&references)?;
    let report = ReferenceReport::new(&references, &synthesizer.speaker_segments(&references)?);
    report.advice.iter().for_each(|advice| errln!("note: {}", advice.text));
    Ok(voice)
}

fn as_text(report: &Report) -> String {
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let mut text = String::new();
    for part in &report.parts {
        text += &format!(
            "{:<16} {:>10} -> {:>10}, relative error {:.4}\n",
            part.file,
            megabytes(part.bytes_before),
            megabytes(part.bytes),
            part.relative_error
        );
    }
    text += &format!(
        "{:<16} {:>10} -> {:>10}\n",
        "all files",
        megabytes(report.bytes_before),
        megabytes(report.bytes)
    );
    if !report.voices.is_empty() {
        text += &format!("{:<16} {}\n", "voices", report.voices.join(", "));
    }
    text += &format!("{:<16} {}\n", "written", report.output.display());
    text
}

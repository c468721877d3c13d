//! `random_model DIR [PRESET [CODES]]` writes a model folder of a preset's size with random weights that produces audio, to
//! measure a server under load without a trained model. It has one voice, `default`. It speaks for about two seconds; with
//! CODES, every text has exactly that number of codes (140 are 6.5 s, as for 100 characters of text).

use std::borrow::Cow;
use std::path::Path;

use myxtts_data::audio::Clip;
use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_demo as demo;
use myxtts_model::decoder::Decoder;
use myxtts_model::presets::{Networks, Preset, TextIds};
use myxtts_model::speaker::SpeakerEncoder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::tensors::TensorSpec;
use myxtts_model::weights::{ElementType, FolderWriter, ModelFolder, Part};
use myxtts_model::{Declare, Gpt, Released, SamplingOptions};
use myxtts_run::durable::OsDisk;
use myxtts_speak::Synthesizer;
use myxtts_speak::voices::{StoredVoice, Voices};
use myxtts_tensor::{Device, Engine, EngineOptions, Precision};

/// Added to the logit of STOP: as likely as each of the fifty codes that are sampled from.
const STOP: f32 = 0.6;

/// Added to it if only the position decides, and what the position of STOP adds: it is never among the fifty before, and
/// the only candidate then.
const NOT_YET: f32 = -16.0;
const NOW: f32 = 40.0;

/// Component of the STOP position's embedding in the direction of STOP; other positions have about 0.02.
const POINTS: f32 = 1000.0;

/// Target level: a fresh decoder is quiet, the more so the larger it is.
const LEVEL: f32 = 0.1;

/// Minimum audible level.
const AUDIBLE: f32 = 0.03;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let preset = |name: &str| serde_json::from_value::<Preset>(name.into());
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] => make(Path::new(path), Preset::Tiny, None),
        [path, name] => make(Path::new(path), preset(name)?, None),
        [path, name, codes] => make(Path::new(path), preset(name)?, Some(codes.parse()?)),
        _ => Err("name a folder, a preset, and the number of codes of each text".into()),
    }
}

fn make(path: &Path, preset: Preset, codes: Option<usize>) -> Outcome {
    // Approximately what the presets need.
    let mut louder = 50.0;
    for _ in 0..4 {
        write(path, preset, codes, louder)?;
        let level = voice(path)?;
        println!("decoder {louder} times as loud: level {level}");
        if level >= AUDIBLE {
            return Ok(());
        }
        std::fs::remove_dir_all(path)?;
        louder *= LEVEL / level.max(1e-9);
    }
    Err("it cannot be heard".into())
}

fn write(path: &Path, preset: Preset, codes: Option<usize>, louder: f32) -> Outcome {
    let texts = [("en", "hello world, this is a voice and it is again in the world"), ("fa", "سلام دنیا")];
    let vocabulary = tokenizer::train(texts, &TrainOptions { vocab_size: 200, ..TrainOptions::default() })?;
    let ids = TextIds { vocabulary: vocabulary.vocabulary_size(), ..TextIds::v2() };
    let networks = Networks::of(preset, ids);
    let mut declare = Declare::new(0.0, &|_| false);
    Gpt::declare(&mut declare, networks.gpt.clone());
    Decoder::declare(&mut declare, &networks.decoder);
    SpeakerEncoder::declare(&mut declare, &networks.speaker);
    let (layout, released) = declare.finish();
    let engine = Engine::new(
        Device::Cpu,
        layout,
        Precision::F32,
        EngineOptions { seed: 5, ..EngineOptions::default() },
    )?;
    let mut folder = FolderWriter::create(&OsDisk, path, false)?;
    for part in [Part::Gpt, Part::Decoder, Part::Speaker] {
        let own: Vec<_> = released.iter().filter(|one| Part::of_tensor(&one.name) == Some(part)).collect();
        let spec = |name: &str, shape: &[usize]| TensorSpec {
            name: name.to_owned(),
            kind: ElementType::F32,
            shape: shape.to_vec(),
        };
        let mut specs: Vec<TensorSpec> = own.iter().map(|one| spec(&one.name, &one.shape)).collect();
        if part == Part::Gpt {
            specs.push(spec("mel_stats", &[80]));
        }
        folder.tensors(part, &specs, &mut |number| {
            let Some(one) = own.get(number) else {
                return Ok(Cow::Owned(2f32.to_le_bytes().repeat(80)));
            };
            let mut data =
                engine.read_parameter(one.id).map(|data| one.to_released(&data)).unwrap_or_default();
            match one.name.as_str() {
                "gpt.mel_head.bias" => {
                    data[networks.gpt.stop_audio as usize] = codes.map_or(STOP, |_| NOT_YET);
                }
                "gpt.mel_head.weight" if codes.is_some() => {
                    let scale = NOW / (one.shape[1] as f32).sqrt();
                    let towards: Vec<f32> = direction(one).iter().map(|to| scale * to).collect();
                    row(&mut data, networks.gpt.stop_audio as usize, one).copy_from_slice(&towards);
                }
                "gpt.mel_pos_embedding.emb.weight" => {
                    // The hidden state at a code's position predicts the next code.
                    if let Some(codes) = codes {
                        let there = row(&mut data, codes, one);
                        let towards = direction(one);
                        there.iter_mut().zip(towards).for_each(|(weight, to)| *weight += POINTS * to);
                    }
                }
                // Taps with a zero sum: audio without a DC offset.
                name if name.contains("conv_post") => {
                    for taps in data.chunks_exact_mut(one.shape[2]) {
                        let mean = taps.iter().sum::<f32>() / taps.len() as f32;
                        taps.iter_mut().for_each(|weight| *weight = louder * (*weight - mean));
                    }
                }
                _ => {}
            }
            Ok(Cow::Owned(data.iter().flat_map(|weight| weight.to_le_bytes()).collect()))
        })?;
    }
    folder.text(VOCABULARY, &vocabulary.to_json())?;
    folder.manifest().source = "random weights".to_owned();
    folder.manifest().parts.insert("gpt".to_owned(), serde_json::json!({ "heads": networks.gpt.heads }));
    folder.finish()?;
    Ok(())
}

fn row<'d>(data: &'d mut [f32], number: usize, one: &Released) -> &'d mut [f32] {
    let width = one.shape[1];
    &mut data[number * width..(number + 1) * width]
}

/// Direction of STOP: unit length and zero mean, so that layer norms preserve it.
fn direction(one: &Released) -> Vec<f32> {
    let length = (one.shape[1] as f32).sqrt();
    (0..one.shape[1]).map(|i| if i % 2 == 0 { 1.0 / length } else { -1.0 / length }).collect()
}

/// Stores the voice of the demo corpus with the model; returns the level of a few codes.
fn voice(path: &Path) -> Result<f32, Box<dyn std::error::Error>> {
    let folder = ModelFolder::open(path)?;
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu)?;
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let seconds = samples.len() as f64 / f64::from(demo::SAMPLE_RATE);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }])?;
    let voices = Voices::from_folder(&folder);
    let stored = StoredVoice {
        name: "default".to_owned(),
        voice: voice.clone(),
        latents: synthesizer.latents(),
        references: vec!["demo".to_owned()],
        seconds,
        model: voices.fingerprint().to_owned(),
        report: None,
    };
    voices.add(&OsDisk, &stored, false)?;
    let options = SamplingOptions { max_codes: 12, seed: 1, ..synthesizer.default_sampling() };
    let samples = synthesizer.speak("hello world, this is a voice", "en", &voice, &options)?.samples;
    let power = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    Ok(power.sqrt())
}

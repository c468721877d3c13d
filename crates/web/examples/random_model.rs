//! `random_model DIR [PRESET]` writes a model folder of a preset's size with random weights that makes sound: what a server does
//! under load can be measured without a model that was trained. It has one voice, `default`, and speaks for about two seconds.

use std::borrow::Cow;
use std::path::Path;

use myxtts_data::audio::Clip;
use myxtts_data::demo;
use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_model::decoder::Decoder;
use myxtts_model::presets::{Networks, Preset, TextIds};
use myxtts_model::speaker::SpeakerEncoder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::tensors::Spec;
use myxtts_model::weights::{FolderWriter, Kind, ModelFolder, Part};
use myxtts_model::{Declare, Gpt, SamplingOptions};
use myxtts_run::durable::Os;
use myxtts_speak::Synthesizer;
use myxtts_speak::voices::{StoredVoice, Voices};
use myxtts_tensor::{Device, Engine, EngineOptions, Precision};

/// What is added to the score of STOP: as likely as each of the fifty codes that are drawn from.
const STOP: f32 = 0.6;

/// A fresh decoder whispers, the more so the larger it is: so much louder, the first of these that is heard.
const LOUDER: [f32; 6] = [10.0, 1e2, 1e3, 1e4, 1e5, 1e6];

/// The mean level from which it is heard.
const HEARD: f32 = 0.03;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] => make(Path::new(path), Preset::Tiny),
        [path, preset] => make(Path::new(path), serde_json::from_value(preset.into())?),
        _ => Err("name a folder, and a preset".into()),
    }
}

fn make(path: &Path, preset: Preset) -> Outcome {
    for louder in LOUDER {
        write(path, preset, louder)?;
        let level = voice(path)?;
        println!("decoder {louder} times as loud: level {level:.4}");
        if level >= HEARD {
            return Ok(());
        }
        std::fs::remove_dir_all(path)?;
    }
    Err("it cannot be heard".into())
}

fn write(path: &Path, preset: Preset, louder: f32) -> Outcome {
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
    let mut folder = FolderWriter::create(&Os, path, false)?;
    for part in [Part::Gpt, Part::Decoder, Part::Speaker] {
        let own: Vec<_> = released.iter().filter(|one| Part::of(&one.name) == Some(part)).collect();
        let spec = |name: &str, shape: &[usize]| Spec {
            name: name.to_owned(),
            kind: Kind::F32,
            shape: shape.to_vec(),
        };
        let mut specs: Vec<Spec> = own.iter().map(|one| spec(&one.name, &one.shape)).collect();
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
                "gpt.mel_head.bias" => data[networks.gpt.stop_audio as usize] = STOP,
                // Taps that add up to nothing: sound and no offset.
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

/// Keeps the voice of the demo corpus beside it; gives the level at which it says a few codes.
fn voice(path: &Path) -> Result<f32, Box<dyn std::error::Error>> {
    let folder = ModelFolder::open(path)?;
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu)?;
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let seconds = samples.len() as f64 / f64::from(demo::SAMPLE_RATE);
    let voice = synthesizer.hear(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }])?;
    let voices = Voices::of(&folder);
    let stored = StoredVoice {
        name: "default".to_owned(),
        voice: voice.clone(),
        latents: synthesizer.latents(),
        references: vec!["demo".to_owned()],
        seconds,
        model: voices.fingerprint().to_owned(),
        report: None,
    };
    voices.add(&Os, &stored, false)?;
    let options = SamplingOptions { max_codes: 12, seed: 1, ..synthesizer.usual_options() };
    let said = synthesizer.speak("hello world, this is a voice", "en", &voice, &options)?.samples;
    let power = said.iter().map(|sample| sample * sample).sum::<f32>() / said.len().max(1) as f32;
    Ok(power.sqrt())
}

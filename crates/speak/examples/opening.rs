//! Measures how long a model takes to open.
//!
//! `opening make DIR` writes a model of XTTS-v2's size with random weights (1.9 GB), `opening make-guided DIR` one with text
//! guidance; `opening DIR [cpu|cuda] [times]` opens it.

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_model::decoder::Decoder;
use myxtts_model::presets::{Networks, Preset, TextIds};
use myxtts_model::speaker::SpeakerEncoder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::tensors::TensorSpec;
use myxtts_model::weights::{ElementType, FolderWriter, ModelFolder, Part};
use myxtts_model::{Declare, Gpt};
use myxtts_run::durable::OsDisk;
use myxtts_speak::Synthesizer;
use myxtts_tensor::Device;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", path] => make(Path::new(path), false),
        ["make-guided", path] => make(Path::new(path), true),
        [path, ref rest @ ..] => {
            let device = if rest.first() == Some(&"cuda") { Device::Cuda(0) } else { Device::Cpu };
            let times = rest.get(1).and_then(|times| times.parse().ok()).unwrap_or(3);
            (0..times).try_for_each(|_| open(Path::new(path), device))
        }
        [] => Err("name a folder, or `make` and a folder".into()),
    }
}

fn open(path: &Path, device: Device) -> Outcome {
    let start = Instant::now();
    let folder = ModelFolder::open(path)?;
    let checked = start.elapsed().as_secs_f64();
    let synthesizer = Synthesizer::open(&folder, device)?;
    let opened = start.elapsed().as_secs_f64();
    drop(synthesizer);
    println!("files {checked:.2} s, networks {:.2} s, in all {opened:.2} s", opened - checked);
    Ok(())
}

fn make(path: &Path, guided: bool) -> Outcome {
    let texts = [("en", "hello world, this is a voice"), ("fa", "سلام دنیا")];
    let vocabulary = tokenizer::train(texts, &TrainOptions { vocab_size: 200, ..TrainOptions::default() })?;
    let networks = Networks::of(Preset::V2, TextIds::v2());
    let mut declare = Declare::new(0.0, &|_| false);
    Gpt::declare(&mut declare, networks.gpt.clone());
    Decoder::declare(&mut declare, &networks.decoder);
    SpeakerEncoder::declare(&mut declare, &networks.speaker);
    let (_, released) = declare.finish();
    let mut folder = FolderWriter::create(&OsDisk, path, false)?;
    for part in [Part::Gpt, Part::Decoder, Part::Speaker] {
        let of_part = released.iter().filter(|one| Part::of_tensor(&one.name) == Some(part));
        let mut specs: Vec<TensorSpec> = of_part
            .map(|one| TensorSpec {
                name: one.name.clone(),
                kind: ElementType::F32,
                shape: one.shape.clone(),
            })
            .collect();
        if part == Part::Gpt {
            specs.push(TensorSpec { name: "mel_stats".to_owned(), kind: ElementType::F32, shape: vec![80] });
        }
        let counts: Vec<usize> = specs.iter().map(|spec| spec.shape.iter().product()).collect();
        let mut state = 1u32;
        folder.tensors(part, &specs, &mut |i| {
            // Loud enough to be audible.
            let scale = match &specs[i].name {
                name if name.contains("conv_post") => 8.0,
                name if name.ends_with("weight_g") => 1.0,
                _ => 0.02,
            };
            let mut number = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (scale * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) + 1e-4).to_le_bytes()
            };
            let mut bytes: Vec<u8> = (0..counts[i]).flat_map(|_| number()).collect();
            // It never generates STOP.
            if specs[i].name == "gpt.mel_head.bias" {
                let stop = 4 * networks.gpt.stop_audio as usize;
                bytes[stop..stop + 4].copy_from_slice(&(-1e4f32).to_le_bytes());
            }
            Ok(Cow::Owned(bytes))
        })?;
    }
    folder.text(VOCABULARY, &vocabulary.to_json())?;
    folder.manifest().source = "random weights".to_owned();
    let mut gpt = serde_json::json!({ "heads": networks.gpt.heads });
    if guided {
        gpt[myxtts_speak::weight_source::TEXT_DROPOUT] = 0.1.into();
    }
    folder.manifest().parts.insert("gpt".to_owned(), gpt);
    folder.finish()?;
    Ok(())
}

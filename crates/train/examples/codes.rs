//! Speed of computing audio codes, one clip at a time and in batches, with random weights.
//!
//! `cargo run -p myxtts-train --example codes -- [PRESET] [CLIPS] [DEVICE]`, by default `small 100 cpu`.

use myxtts_model::Declare;
use myxtts_model::dvae::Dvae;
use myxtts_model::presets::{Networks, Preset, TextIds};
use myxtts_run::seed::Seed;
use myxtts_tensor::{Device, Engine, EngineOptions, Precision, Training};
use myxtts_train::model::{DVAE, MEL_STATS};
use myxtts_train::stages::codes::Encoder;
use myxtts_train::{ComputeDevice, Model};
use serde_json::json;
use std::time::Instant;

/// Clips last from 1 to 11 s.
const FRAMES: std::ops::Range<u64> = 86..948;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let preset = match arguments.next().as_deref() {
        Some("tiny") => Preset::Tiny,
        None | Some("small") => Preset::Small,
        Some("v2") => Preset::V2,
        Some(other) => return Err(format!("{other}: the presets are tiny, small and v2").into()),
    };
    let count: u64 = arguments.next().map_or(Ok(100), |count| count.parse())?;
    let machine = match arguments.next().as_deref() {
        None | Some("cpu") => ComputeDevice::CPU,
        Some(_) => ComputeDevice::choose(Some(Device::Cuda(0)))?,
    };
    let model = model(preset)?;
    let seed = Seed::new(5);
    let mels: Vec<Vec<f32>> = (0..count)
        .map(|clip| {
            let frames = FRAMES.start + seed.below(clip, FRAMES.end - FRAMES.start);
            let wave = |i: u64| (i as f32 * 0.37 + (i / 173 + clip) as f32).sin();
            (0..frames * 80).map(|i| -6.0 + 3.0 * wave(i)).collect()
        })
        .collect();
    let clips: Vec<&[f32]> = mels.iter().map(|mel| &mel[..]).collect();
    let seconds = mels.iter().map(Vec::len).sum::<usize>() as f64 / 80.0 * 256.0 / 22_050.0;
    println!("{count} clips, {seconds:.0} s of audio, {preset:?}, {:?}", machine.device);
    let mut encoder = Encoder::new(&model, machine)?;
    for _ in 0..2 {
        let began = Instant::now();
        let alone = clips.iter().map(|clip| encoder.codes(clip)).collect::<Result<Vec<_>, _>>()?;
        let one_by_one = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let together = encoder.codes_of_all(&clips)?;
        let in_batches = began.elapsed().as_secs_f64();
        let differ = alone.iter().flatten().zip(together.iter().flatten()).filter(|(a, b)| a != b).count();
        println!(
            "one at a time {:.2} clips/s, in batches {:.2} clips/s; {differ} of {} codes differ",
            count as f64 / one_by_one,
            count as f64 / in_batches,
            alone.iter().map(Vec::len).sum::<usize>()
        );
    }
    Ok(())
}

/// A DVAE with random weights and a random codebook.
fn model(preset: Preset) -> Result<Model, Box<dyn std::error::Error>> {
    let sizes = Networks::of(preset, TextIds { vocabulary: 1, start: 0, stop: 0 }).dvae;
    let mut declare = Declare::new(0.0, &|_| false);
    let dvae = Dvae::declare(&mut declare, &sizes, "dvae.");
    let (layout, released) = declare.finish();
    let options = EngineOptions { training: Training::None, ..EngineOptions::default() };
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, options)?;
    let seed = Seed::new(7);
    let book: Vec<f32> = (0..(sizes.code_width * sizes.codes) as u64)
        .map(|i| 0.2 * (seed.below(i, 1 << 20) as f32 / (1 << 20) as f32 - 0.5))
        .collect();
    engine.write_parameter(dvae.codebook().embed, &book)?;
    let mut model = Model::default();
    model.set(MEL_STATS, &[sizes.channels], &vec![5.0; sizes.channels]);
    model.take(DVAE, json!({ "codes": sizes.codes }), &engine, &released, false)?;
    Ok(model)
}

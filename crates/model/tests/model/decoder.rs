//! Tests the decoder against the reference: every interpolation and upsampling on the way to the waveform.

use crate::goldens::{self, Tensor};
use crate::rig::{Rig, TRAINED, assert_near, assert_released, devices, transposed};
use myxtts_model::declare::Declare;
use myxtts_model::decoder::{Decoder, DecoderSizes, PREFIX, Residual, Upsampling};
use myxtts_tensor::{Control, DType, Device};
use std::collections::BTreeMap;

fn sizes() -> DecoderSizes {
    let config = goldens::json("hifigan/config.json");
    let number = |name: &str| config[name].as_u64().unwrap_or_else(|| panic!("no {name}")) as usize;
    let list = |value: &serde_json::Value| -> Vec<usize> {
        value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
    };
    let upsampling = list(&config["upsample_rates"]).into_iter().zip(list(&config["upsample_kernel_sizes"]));
    let dilations = config["resblock_dilations"].as_array().unwrap().iter().map(list);
    let residuals = list(&config["resblock_kernel_sizes"]).into_iter().zip(dilations);
    let sizes = DecoderSizes {
        latent: number("decoder_input_dim"),
        speaker: number("d_vector_dim"),
        channels: number("upsample_initial_channel_decoder"),
        upsampling: upsampling.map(|(rate, taps)| Upsampling { rate, taps }).collect(),
        residuals: residuals.map(|(taps, dilations)| Residual { taps, dilations }).collect(),
        code_rate: number("input_sample_rate"),
        wave_rate: number("output_sample_rate"),
        code_samples: number("ar_mel_length_compression"),
    };
    assert_eq!(sizes.hop(), number("output_hop_length"));
    assert_eq!(sizes.samples_of(number("frames")), number("output_samples"));
    sizes
}

fn loaded(device: Device) -> (Rig, Decoder) {
    let weights = goldens::tensors("hifigan/weights.safetensors");
    let mut declare = Declare::new(0.0, TRAINED);
    let decoder = Decoder::declare(&mut declare, &sizes());
    let rig =
        Rig::new(device, declare, |name| weights.get(name).map(|t| (t.shape.clone(), t.floats().to_vec())));
    assert_eq!(rig.released.len(), weights.len(), "every weight has a parameter");
    (rig, decoder)
}

/// The speaker's contribution at one position. The reference records activations before it is added.
fn speaker_contribution(rig: &Rig, name: &str, speaker: &[f32]) -> Vec<f32> {
    let weight = rig.weight(&format!("{PREFIX}{name}.weight"));
    let bias = rig.weight(&format!("{PREFIX}{name}.bias"));
    let rows = weight.chunks_exact(speaker.len()).zip(bias);
    rows.map(|(row, bias)| row.iter().zip(speaker).map(|(w, s)| w * s).sum::<f32>() + bias).collect()
}

fn without(rows: &[f32], part: &[f32]) -> Vec<f32> {
    rows.chunks_exact(part.len()).flat_map(|row| row.iter().zip(part).map(|(x, p)| x - p)).collect()
}

/// Converts a golden `[channels, time]` or `[1, channels, time]` to rows of channels.
fn rows(tensor: &Tensor) -> Vec<f32> {
    let shape: Vec<usize> = [1].into_iter().chain(tensor.shape.iter().copied()).collect();
    transposed(tensor.floats(), &shape[shape.len() - 3..])
}

fn assert_golden(device: Device, io: &BTreeMap<String, Tensor>) {
    let (mut rig, decoder) = loaded(device);
    let mut tape = rig.tape();
    let latents = tape.input(&io["latents"].shape[..], DType::F32);
    let speaker = tape.input([1, decoder.sizes().speaker], DType::F32);
    let finer_shape = &io["z_after_x4"].shape;
    let finer = tape.input([1, finer_shape[2], finer_shape[1]], DType::F32);
    let stretched = decoder.upsample_latents(&mut tape, latents);
    let made = decoder.forward(&mut tape, stretched, speaker);
    let unstretched = decoder.wave(&mut tape, finer, speaker);
    let all = [stretched, made.first, made.wave, unstretched];
    all.into_iter().chain(made.layers.iter().copied()).for_each(|v| tape.keep(v));
    let frames = io["latents"].shape[1];
    assert_eq!(tape.shape(stretched).dim(1), decoder.sizes().frames_of(frames));
    assert_eq!(tape.shape(made.wave).dims(), [1, decoder.sizes().samples_of(frames), 1]);
    let mut program = rig.engine.load(tape).unwrap();
    let voice = io["speaker_embedding"].floats();
    rig.engine.write(&program, latents, io["latents"].floats()).unwrap();
    rig.engine.write(&program, speaker, voice).unwrap();
    rig.engine.write(&program, finer, &rows(&io["z_after_x4"])).unwrap();
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let read = |v| rig.engine.read(&program, v).unwrap();
    let near = |name: &str, found: &[f32], wanted: &[f32]| {
        assert_near(&format!("{device} {name}"), found, wanted, 1e-4);
    };
    near("z_after_sr_interp", &read(stretched), &rows(&io["z_after_sr_interp"]));
    let first = without(&read(made.first), &speaker_contribution(&rig, "cond_layer", voice));
    near("conv_pre_out", &first, &rows(&io["conv_pre_out"]));
    let mut seen = 0;
    for (i, &layer) in made.layers.iter().enumerate() {
        let Some(wanted) = io.get(&format!("up{i}_out")) else { continue };
        let upsampled = without(&read(layer), &speaker_contribution(&rig, &format!("conds.{i}"), voice));
        near(&format!("up{i}_out"), &upsampled, &rows(wanted));
        seen += 1;
    }
    assert_eq!(seen, io.keys().filter(|name| name.starts_with("up")).count());
    near("waveform", &read(made.wave), io["waveform"].floats());
    near("waveform_from_z_after_x4", &read(unstretched), io["waveform_from_z_after_x4"].floats());
}

/// Checks the first of the two interpolations alone, with a decoder whose two sample rates are equal.
fn assert_finer(device: Device, io: &BTreeMap<String, Tensor>) {
    let sizes = DecoderSizes { wave_rate: sizes().code_rate, ..sizes() };
    let mut declare = Declare::new(0.0, TRAINED);
    let decoder = Decoder::declare(&mut declare, &sizes);
    let mut rig = Rig::fresh(device, declare);
    let mut tape = rig.tape();
    let latents = tape.input(&io["latents"].shape[..], DType::F32);
    let finer = decoder.upsample_latents(&mut tape, latents);
    tape.keep(finer);
    let mut program = rig.engine.load(tape).unwrap();
    rig.engine.write(&program, latents, io["latents"].floats()).unwrap();
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let found = rig.engine.read(&program, finer).unwrap();
    assert_near(&format!("{device} z_after_x4"), &found, &rows(&io["z_after_x4"]), 1e-4);
}

#[test]
fn waveform_and_intermediates_match_the_reference() {
    let io = goldens::tensors("hifigan/io.safetensors");
    for device in devices("waveform_and_intermediates_match_the_reference") {
        assert_golden(device, &io);
        assert_finer(device, &io);
    }
}

#[test]
fn folded_decoder_gives_the_same_samples() {
    let io = goldens::tensors("hifigan/io.safetensors");
    for device in devices("folded_decoder_gives_the_same_samples") {
        let (mut rig, mut decoder) = loaded(device);
        let wave = |rig: &mut Rig, decoder: &Decoder| {
            let mut tape = rig.tape();
            let latents = tape.input(&io["latents"].shape[..], DType::F32);
            let speaker = tape.input([1, decoder.sizes().speaker], DType::F32);
            let z = decoder.upsample_latents(&mut tape, latents);
            let wave = decoder.wave(&mut tape, z, speaker);
            tape.keep(wave);
            let mut program = rig.engine.load(tape).unwrap();
            rig.engine.write(&program, latents, io["latents"].floats()).unwrap();
            rig.engine.write(&program, speaker, io["speaker_embedding"].floats()).unwrap();
            rig.engine.run(&mut program, &Control::default()).unwrap();
            rig.engine.read(&program, wave).unwrap()
        };
        let learnt = wave(&mut rig, &decoder);
        decoder.fold(&mut rig.engine).unwrap();
        assert!(wave(&mut rig, &decoder) == learnt, "on {device}");
        // Folding again changes nothing.
        decoder.fold(&mut rig.engine).unwrap();
        assert!(wave(&mut rig, &decoder) == learnt, "on {device}");
        assert_near(&format!("{device} folded"), &learnt, io["waveform"].floats(), 1e-4);
    }
}

#[test]
fn batch_items_are_independent() {
    let io = goldens::tensors("hifigan/io.safetensors");
    let (mut rig, decoder) = loaded(Device::Cpu);
    let z = rows(&io["z_after_sr_interp"]);
    let (frames, latent) = (io["z_after_sr_interp"].shape[2], decoder.sizes().latent);
    let mut tape = rig.tape();
    let input = tape.input([2, frames, latent], DType::F32);
    let speaker = tape.input([2, decoder.sizes().speaker], DType::F32);
    let wave = decoder.wave(&mut tape, input, speaker);
    tape.keep(wave);
    let mut program = rig.engine.load(tape).unwrap();
    // The golden second, after other audio in another voice.
    let both: Vec<f32> = z.iter().map(|x| -0.5 * x).chain(z.iter().copied()).collect();
    let voice = io["speaker_embedding"].floats();
    let voices: Vec<f32> = voice.iter().map(|x| -x).chain(voice.iter().copied()).collect();
    rig.engine.write(&program, input, &both).unwrap();
    rig.engine.write(&program, speaker, &voices).unwrap();
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let found = rig.engine.read(&program, wave).unwrap();
    let wanted = io["waveform"].floats();
    assert_near("the second item", &found[wanted.len()..], wanted, 1e-4);
    assert!(found[..wanted.len()].iter().zip(wanted).any(|(a, b)| (a - b).abs() > 1e-2));
}

#[test]
fn output_lengths_are_known_in_advance() {
    let sizes = DecoderSizes::v2();
    // 4 * 13 = 52 frames at 22.05 kHz are 56.6 at 24 kHz.
    assert_eq!(sizes.frames_of(13), 56);
    assert_eq!(sizes.samples_of(13), 14_336);
    assert_eq!(sizes.samples_of(0), 0);
    assert_eq!(sizes.samples_of(602), (602.0f64 * 4.0 * 24_000.0 / 22_050.0).floor() as usize * 256);
}

#[test]
fn names_and_shapes_match_a_release() {
    let mut declare = Declare::new(0.0, TRAINED);
    Decoder::declare(&mut declare, &DecoderSizes::v2());
    assert_released(declare, PREFIX, |_| false, 17_827_808);
}

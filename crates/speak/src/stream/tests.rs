//! Joined chunks equal the whole waveform, and windows cover the receptive field exactly.

use super::streamer::{FrameDecoder, Streamer, decode_in_windows, windows};
use super::upsampler::LatentUpsampler;
use crate::error::SpeakError;
use crate::vocoder::Vocoder;
use myxtts_model::Declare;
use myxtts_model::decoder::{Decoder, DecoderSizes, Residual, Upsampling};
use myxtts_run::seed::Seed;
use myxtts_tensor::{Control, DType, Device, Engine, EngineOptions, ParameterId, Precision, Tape, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A decoder of any sizes with random weights.
struct Rig {
    engine: Engine,
    decoder: Decoder,
    biases: Vec<(ParameterId, usize)>,
    /// Requested windows, and whether they are cached.
    requested: Vec<(usize, bool)>,
}

impl Rig {
    fn new(sizes: &DecoderSizes) -> Rig {
        let mut declare = Declare::new(0.0, &|_| false);
        let decoder = Decoder::declare(&mut declare, sizes);
        let (layout, released) = declare.finish();
        let options = EngineOptions { seed: 3, ..EngineOptions::default() };
        let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, options).unwrap();
        // A new decoder is almost silent and hardly reacts to distant frames: amplified everywhere.
        for one in &released {
            let mut data = engine.read_parameter(one.id).unwrap();
            let by = match one.name.as_str() {
                name if name.contains("conv_post") => 4.0,
                name if name.ends_with("weight_g") => 2.0,
                _ => 1.0,
            };
            data.iter_mut().for_each(|value| *value *= by);
            engine.write_parameter(one.id, &data).unwrap();
        }
        let biases = released.iter().filter(|one| one.name.ends_with("bias"));
        let biases = biases.map(|one| (one.id, one.shape.iter().product())).collect();
        Rig { engine, decoder, biases, requested: Vec::new() }
    }

    fn without_biases(&mut self) {
        for (id, count) in self.biases.clone() {
            self.engine.write_parameter(id, &vec![0.0; count]).unwrap();
        }
    }

    fn run(&mut self, tape: Tape, inputs: [(Value, &[f32]); 2], out: Value) -> Vec<f32> {
        let mut program = self.engine.load(tape).unwrap();
        inputs.into_iter().for_each(|(value, data)| self.engine.write(&program, value, data).unwrap());
        self.engine.run(&mut program, &Control::default()).unwrap();
        self.engine.read(&program, out).unwrap()
    }

    /// Decodes all latents with one program.
    fn whole(&mut self, latents: &[f32], speaker: &[f32]) -> Vec<f32> {
        let rows = latents.len() / self.decoder.sizes().latent;
        if self.decoder.sizes().frames_of(rows) == 0 {
            return Vec::new();
        }
        let mut tape = Tape::new(Arc::clone(self.engine.layout()), Precision::F32);
        let x = tape.input([1, rows, self.decoder.sizes().latent], DType::F32);
        let vector = tape.input([1, speaker.len()], DType::F32);
        let z = self.decoder.upsample_latents(&mut tape, x);
        let wave = self.decoder.wave(&mut tape, z, vector);
        tape.keep(wave);
        self.run(tape, [(x, latents), (vector, speaker)], wave)
    }
}

impl FrameDecoder for Rig {
    fn windows(
        &mut self,
        (count, frames): (usize, usize),
        z: &[f32],
        speakers: &[f32],
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError> {
        self.requested.push((frames, keep));
        let mut tape = Tape::new(Arc::clone(self.engine.layout()), Precision::F32);
        let x = tape.input([count, frames, self.decoder.sizes().latent], DType::F32);
        let vector = tape.input([count, speakers.len() / count], DType::F32);
        let wave = self.decoder.wave(&mut tape, x, vector);
        tape.keep(wave);
        Ok(self.run(tape, [(x, z), (vector, speakers)], wave))
    }
}

fn noise(count: usize, purpose: &str) -> Vec<f32> {
    let seed = Seed::new(1).derive(purpose);
    (0..count as u64).map(|i| 4.0 * seed.unit(i) as f32 - 2.0).collect()
}

/// XTTS-v2's decoder with fewer channels; one with an asymmetric receptive field; one whose codes have the waveform's rate.
fn all_sizes() -> [DecoderSizes; 3] {
    let v2 = DecoderSizes { latent: 5, speaker: 3, channels: 16, ..DecoderSizes::v2() };
    let upsampling = [(4, 10), (3, 3), (2, 4)].map(|(rate, taps)| Upsampling { rate, taps }).to_vec();
    let residuals =
        [(3, vec![1, 3]), (5, vec![2])].map(|(taps, dilations)| Residual { taps, dilations }).to_vec();
    let odd = DecoderSizes { upsampling, residuals, code_samples: 24 * 4, channels: 24, ..v2.clone() };
    let same = DecoderSizes { wave_rate: 22_050, code_samples: 24 * 2, ..odd.clone() };
    [v2, odd, same]
}

fn frame(stretch: &LatentUpsampler, number: usize) -> Vec<f32> {
    let mut frame = vec![0.0; stretch.width()];
    stretch.frame(number, &mut frame);
    frame
}

#[test]
fn settled_frames_do_not_change_and_equal_those_of_the_decoder() {
    for sizes in all_sizes() {
        let mut rig = Rig::new(&sizes);
        let latents = noise(40 * sizes.latent, "latents");
        let (mut stretch, mut early) = (LatentUpsampler::new(&sizes), Vec::new());
        for latent in latents.chunks(sizes.latent) {
            stretch.push(latent);
            (early.len() / sizes.latent..stretch.ready())
                .for_each(|number| early.extend(frame(&stretch, number)));
        }
        stretch.end(40);
        let mut all = Vec::new();
        (0..stretch.ready()).for_each(|number| all.extend(frame(&stretch, number)));
        assert_eq!(all.len(), sizes.frames_of(40) * sizes.latent);
        assert_eq!(early, all[..early.len()], "no later latent has changed them");
        // All but those between the last two latents.
        let per_state = (sizes.frames_per_latent() * sizes.resampling()).ceil() as usize;
        assert!(all.len() - early.len() <= (per_state + 1) * sizes.latent);
        let mut tape = Tape::new(Arc::clone(rig.engine.layout()), Precision::F32);
        let x = tape.input([1, 40, sizes.latent], DType::F32);
        let unused = tape.input([1, 1], DType::F32);
        let z = rig.decoder.upsample_latents(&mut tape, x);
        tape.keep(z);
        let wanted = rig.run(tape, [(x, &latents[..]), (unused, &[0.0])], z);
        assert!(all.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-5));
    }
}

#[test]
fn the_receptive_field_is_the_reach_of_a_changed_frame() {
    for sizes in all_sizes() {
        let mut rig = Rig::new(&sizes);
        rig.without_biases();
        let (before, after) = sizes.receptive_field();
        let (frames, changed) = (2 * (before + after) + 3, before + after + 1);
        // Only one frame is not zero: any output comes from it.
        let mut z = vec![0.0; frames * sizes.latent];
        z[changed * sizes.latent..][..sizes.latent].copy_from_slice(&noise(sizes.latent, "z"));
        let made = rig.windows((1, frames), &z, &vec![0.0; sizes.speaker], false).unwrap();
        let is_reached =
            |frame: &usize| made[frame * sizes.hop()..][..sizes.hop()].iter().any(|sample| *sample != 0.0);
        let reached: BTreeSet<usize> = (0..frames).filter(is_reached).collect();
        let (first, last) = (*reached.first().unwrap(), *reached.last().unwrap());
        // Later frames look back to it, earlier ones look ahead.
        assert_eq!((changed - first, last - changed), (after, before), "{sizes:?}");
    }
    assert_eq!(DecoderSizes::v2().receptive_field(), (13, 13));
}

#[test]
fn joined_chunks_equal_the_whole_waveform() {
    for sizes in all_sizes() {
        let mut rig = Rig::new(&sizes);
        let speaker = noise(sizes.speaker, "speaker");
        let lengths: Vec<usize> = (1..=12).chain([17, 25, 26, 33, 60, 111]).collect();
        let latents = noise(111 * sizes.latent, "latents");
        for count in lengths {
            let latents = &latents[..count * sizes.latent];
            let whole = rig.whole(latents, &speaker);
            rig.requested.clear();
            let mut streamer = Streamer::new(&sizes, &speaker);
            let (mut joined, mut pieces) = (Vec::new(), Vec::new());
            for latent in latents.chunks(sizes.latent) {
                let piece = streamer.push(&mut rig, latent).unwrap();
                if !piece.is_empty() {
                    pieces.push(piece.len() / sizes.hop());
                }
                joined.extend(piece);
            }
            let early = joined.len();
            joined.extend(streamer.finish(&mut rig, count).unwrap());
            assert_eq!(joined.len(), whole.len(), "{count} states of {sizes:?}");
            assert_eq!(joined.len(), sizes.samples_of(count));
            let apart = joined.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-3, "{apart} apart after {count} states of {sizes:?}");
            let loudest = whole.iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
            assert!(loudest > 0.05, "a waveform that is nearly silent ({loudest}) shows nothing");
            // Only cached sizes, except for an utterance shorter than all of them.
            let kept = windows(&sizes);
            assert!(
                rig.requested.iter().all(|(frames, keep)| !keep || kept.contains(frames)),
                "{:?}",
                rig.requested
            );
            assert!(rig.requested.iter().filter(|(_, keep)| !keep).count() <= 1, "{:?}", rig.requested);
            if count == 111 {
                assert!(rig.requested.iter().all(|(_, keep)| *keep), "{:?}", rig.requested);
                assert!(early * 10 > 6 * joined.len(), "most of it came before the end");
                assert!(pieces.windows(2).all(|pair| pair[0] <= pair[1] + 1), "they grow: {pieces:?}");
            }
        }
    }
}

#[test]
fn whole_utterances_in_cached_windows_equal_the_whole_waveform() {
    for sizes in all_sizes() {
        let mut rig = Rig::new(&sizes);
        let latents = noise(260 * sizes.latent, "latents");
        // Each has other latents and another speaker.
        let counts = [0, 1, 5, 8, 13, 40, 99, 131, 260];
        let speakers: Vec<Vec<f32>> =
            counts.iter().map(|count| noise(sizes.speaker, &format!("speaker {count}"))).collect();
        let utterances: Vec<(&[f32], &[f32])> = counts
            .iter()
            .zip(&speakers)
            .map(|(&count, speaker)| (&latents[(260 - count) * sizes.latent..], &speaker[..]))
            .collect();
        let wholes: Vec<Vec<f32>> =
            utterances.iter().map(|(latents, speaker)| rig.whole(latents, speaker)).collect();
        let is_right = |rig: &mut Rig, some: &[usize]| {
            let chosen: Vec<(&[f32], &[f32])> = some.iter().map(|&i| utterances[i]).collect();
            let made = decode_in_windows(rig, &sizes, &chosen).unwrap();
            for (&i, made) in some.iter().zip(made) {
                let (count, whole) = (counts[i], &wholes[i]);
                assert_eq!(made.len(), whole.len(), "{count} states of {sizes:?}");
                let apart = made.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart < 1e-3, "{apart} apart after {count} states of {sizes:?}");
            }
        };
        for (i, &count) in counts.iter().enumerate() {
            rig.requested.clear();
            is_right(&mut rig, &[i]);
            let shorter = sizes.frames_of(count) < windows(&sizes)[0];
            assert!(rig.requested.iter().all(|(_, keep)| *keep != shorter), "{count}: {:?}", rig.requested);
        }
        let all: Vec<usize> = (0..counts.len()).collect();
        is_right(&mut rig, &all);
    }
}

/// Streams latents through cached windows, and decodes them with one program of the utterance's length. Returns the largest
/// difference and the largest sample.
fn streamed_against_whole(decoder: &mut Vocoder, sizes: &DecoderSizes, count: usize) -> (f32, f32) {
    let (latents, speaker) = (noise(count * sizes.latent, "latents"), noise(sizes.speaker, "speaker"));
    let mut stretch = LatentUpsampler::new(sizes);
    latents.chunks(sizes.latent).for_each(|latent| stretch.push(latent));
    stretch.end(count);
    let frames = stretch.ready();
    let z: Vec<f32> = (0..frames).flat_map(|number| frame(&stretch, number)).collect();
    let whole = decoder.windows((1, frames), &z, &speaker, false).unwrap();

    let mut streamer = Streamer::new(sizes, &speaker);
    let mut joined = Vec::new();
    for latent in latents.chunks(sizes.latent) {
        joined.extend(streamer.push(decoder, latent).unwrap());
    }
    assert!(!joined.is_empty(), "nothing was streamed before the end");
    joined.extend(streamer.finish(decoder, count).unwrap());
    assert_eq!(joined.len(), whole.len());
    let largest = |numbers: &mut dyn Iterator<Item = f32>| numbers.fold(0.0, f32::max);
    let apart = largest(&mut joined.iter().zip(&whole).map(|(a, b)| (a - b).abs()));
    (apart, largest(&mut whole.iter().map(|sample| sample.abs())))
}

#[test]
fn streamed_audio_equals_a_whole_utterance_program_on_every_device() {
    let sizes = DecoderSizes { latent: 32, speaker: 16, channels: 128, ..DecoderSizes::v2() };
    let found = myxtts_tensor::device::devices();
    let mut runs = vec![(Device::Cpu, Precision::F32, 1e-3)];
    match found.gpus.is_empty() {
        // bf16 has a resolution of 2^-8 at full scale; the two programs may round differently.
        false => {
            runs.extend([(Device::Cuda(0), Precision::F32, 1e-3), (Device::Cuda(0), Precision::Bf16, 1e-2)])
        }
        true => println!(
            "streaming on CUDA: skipped, there is no GPU: {}",
            found.no_gpus.unwrap_or_else(|| "none was found".to_owned())
        ),
    }
    for (device, precision, tolerance) in runs {
        let mut decoder = Vocoder::random(device, precision, &sizes).unwrap();
        decoder.reserve_windows().unwrap();
        // On a GPU the first run of a window is eager, the second is captured, later ones replay the graph.
        for round in 0..3 {
            let (apart, loudest) = streamed_against_whole(&mut decoder, &sizes, 111);
            println!("{device} {precision:?}, round {round}: {apart:.2e} apart, loudest sample {loudest:.2}");
            assert!(loudest > 0.05, "a waveform that is nearly silent shows nothing");
            assert!(apart < tolerance, "{apart} apart on {device} in {precision:?}");
        }
    }
}

#[test]
fn the_first_chunk_of_xtts_needs_five_codes() {
    let sizes = &all_sizes()[0];
    let mut rig = Rig::new(sizes);
    let speaker = noise(sizes.speaker, "speaker");
    let mut streamer = Streamer::new(sizes, &speaker);
    let latents = noise(20 * sizes.latent, "latents");
    let first =
        latents.chunks(sizes.latent).position(|latent| !streamer.push(&mut rig, latent).unwrap().is_empty());
    // One code, three of the decoder's look-ahead, and one to interpolate to.
    assert_eq!(first.map(|first| first + 1), Some(5));
}

#[test]
fn speech_truncated_after_delivery_fades_out() {
    let sizes = &all_sizes()[0];
    let mut rig = Rig::new(sizes);
    let speaker = noise(sizes.speaker, "speaker");
    let latents = noise(60 * sizes.latent, "latents");
    let mut streamer = Streamer::new(sizes, &speaker);
    let mut given = Vec::new();
    for latent in latents.chunks(sizes.latent) {
        given.extend(streamer.push(&mut rig, latent).unwrap());
    }
    // A loop is detected: only ten codes are valid, and far more was delivered.
    assert!(given.len() > sizes.samples_of(10));
    let rest = streamer.finish(&mut rig, 10).unwrap();
    assert_eq!(rest.len(), sizes.hop());
    let loud = |samples: &[f32]| samples.iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
    assert_eq!(rest.last(), Some(&0.0));
    assert!(loud(&rest[rest.len() - 20..]) < 0.1 * loud(&given));
    // Nothing was delivered yet: there is nothing to fade.
    let mut streamer = Streamer::new(sizes, &speaker);
    streamer.push(&mut rig, &latents[..sizes.latent]).unwrap();
    assert!(streamer.finish(&mut rig, 0).unwrap().is_empty());
}

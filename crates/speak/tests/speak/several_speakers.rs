//! Recordings of two people are reported as such, by a small speaker encoder that is trained here.
//!
//! An untrained encoder gives nearly the same vector for every voice, so it could never tell two speakers apart. This one learns
//! to classify twelve synthetic speakers by scaled cosines with a margin, as in the decoder stage, and is tested with sentences
//! and speakers that are not in its training data.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_data::mel::{FrontEnd, MelExtractor, instance_normalize};
use myxtts_demo::{self as demo, Language};
use myxtts_model::Declare;
use myxtts_model::speaker::{SpeakerEncoder, Statistics};
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::Synthesizer;
use myxtts_speak::reference::{Concern, Reference, ReferenceReport};
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::{
    Backward, Control, DType, Device, Engine, EngineOptions, Init, Precision, Tape, Training,
};
use std::collections::BTreeMap;

/// Speakers that the encoder learns.
const SPEAKERS: usize = 12;
/// Frames of a training crop: 1.2 s.
const FRAMES: usize = 120;
const ROWS: usize = 12;
const STEPS: usize = 70;
/// Factor and margin of the cosines, as in the decoder stage.
const SCALE: f32 = 16.0;
const MARGIN: f32 = 0.5;

const LEARNT: &str = "The old man walked to the market every day and bought a loaf of bread. \
    When it rained, he took an umbrella, and when the sun was out he left his coat at home. \
    Nobody in the village knew how old he was, and he did not tell.";
const OTHER: &str = "This is what I sound like, most of the time. And now a little more of it, to be sure. \
    A quick brown fox jumps over the lazy dog.";

fn speech(voice: usize, text: &str) -> Clip {
    let samples = demo::speak(text, Language::English, &demo::Voice::all()[voice]);
    Clip { samples, sample_rate: demo::SAMPLE_RATE }
}

fn reference(voice: usize) -> Reference {
    let path = format!("speaker-{voice}.wav").into();
    Reference { path, clip: speech(voice, OTHER), channels: 1, clipped: 0.0 }
}

/// Features of all speech of a voice, `[frames, mels]`, not normalised.
fn features(voice: usize) -> Vec<f32> {
    let clip = speech(voice, LEARNT);
    let mut resampler = myxtts_data::audio::Resampler::new(clip.sample_rate, FrontEnd::Speaker.sample_rate());
    let mut features = Vec::new();
    MelExtractor::new(FrontEnd::Speaker).compute(&resampler.resample(&clip.samples), &mut features);
    features
}

/// Trains the encoder of [`tiny`]; its tensors by name, in release order.
fn trained() -> BTreeMap<String, Vec<f32>> {
    let sizes = tiny::speaker_sizes();
    let mut declare = Declare::new(0.01, &|_| true);
    let encoder = SpeakerEncoder::declare(&mut declare, &sizes);
    let table = declare.same("speakers", &[SPEAKERS, sizes.result], Init::Uniform(0.25), false);
    let (layout, released) = declare.finish();
    let options = EngineOptions { seed: 3, training: Training::Adam, ..EngineOptions::default() };
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, options).unwrap();

    let mut tape = Tape::new(engine.layout().clone(), Precision::F32);
    let crops = tape.input([ROWS, FRAMES, sizes.mels], DType::F32);
    let targets = tape.input([ROWS], DType::I32);
    let margins = tape.input([ROWS, SPEAKERS], DType::F32);
    let vectors = encoder.forward(&mut tape, crops, Statistics::Batch).embedding;
    let vectors = tape.reshape(vectors, [1, ROWS, sizes.result]);
    let speakers = tape.master(table);
    let speakers = tape.l2_normalize(speakers);
    let speakers = tape.reshape(speakers, [1, SPEAKERS, sizes.result]);
    let cosines = tape.matmul(vectors, speakers, (false, true));
    let logits = tape.scale(cosines, SCALE);
    let logits = tape.reshape(logits, [ROWS, SPEAKERS]);
    let logits = tape.add(logits, margins);
    let loss = tape.cross_entropy(logits, targets, 0.0).loss;
    tape.backward(loss, Backward::default());
    tape.update(loss, AdamW::default());
    tape.keep(loss);
    let mut program = engine.load(tape).unwrap();

    let all: Vec<Vec<f32>> = (0..SPEAKERS).map(features).collect();
    let mut stream = Stream::new(11);
    let mut last = 0.0;
    for step in 0..STEPS {
        let (mut data, mut who, mut margin) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..ROWS {
            let speaker = (step * ROWS + row) % SPEAKERS;
            let frames = all[speaker].len() / sizes.mels;
            let start = stream.below(frames - FRAMES) * sizes.mels;
            let mut crop = all[speaker][start..start + FRAMES * sizes.mels].to_vec();
            instance_normalize(&mut crop, sizes.mels);
            data.extend(crop);
            who.push(speaker as i32);
            margin.extend((0..SPEAKERS).map(|other| if other == speaker { -MARGIN * SCALE } else { 0.0 }));
        }
        engine.write(&program, crops, &data).unwrap();
        engine.write_i32(&program, targets, &who).unwrap();
        engine.write(&program, margins, &margin).unwrap();
        let control = Control { rate: 4e-3, clip: 5.0, ..Control::default() };
        engine.run(&mut program, &control).unwrap();
        last = engine.read(&program, loss).unwrap()[0];
    }
    println!("loss after {STEPS} steps: {last:.2}");
    let of_encoder = released.iter().filter(|one| one.name != "speakers");
    of_encoder
        .map(|one| (one.name.clone(), one.to_released(&engine.read_parameter(one.id).unwrap())))
        .collect()
}

#[test]
fn two_speakers_are_reported_by_a_trained_encoder_and_one_is_not() {
    let at = tempfile::tempdir().unwrap();
    tiny::write_with(at.path(), &[Part::Decoder, Part::Speaker], &trained());
    let folder = ModelFolder::open(at.path()).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let mut report = |voices: &[usize]| {
        let references: Vec<Reference> = voices.iter().map(|&voice| reference(voice)).collect();
        let parts = synthesizer.speaker_segments(&references).unwrap();
        assert!(parts.len() > voices.len(), "each recording has several parts of 3 s");
        let report = ReferenceReport::new(&references, &parts);
        let suspected = report.advice.iter().any(|advice| advice.concern == Concern::SeveralSpeakers);
        (report.least_similarity.unwrap(), suspected)
    };
    let mut counts = [[0usize; 2]; 2];
    for (group, voices) in [(0, 0..SPEAKERS), (1, 100..100 + SPEAKERS)] {
        let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
        for voice in voices.clone() {
            let (similarity, suspected) = report(&[voice]);
            of_one.push(similarity);
            counts[group][0] += usize::from(suspected);
            let other = if voice + 1 == voices.end { voices.start } else { voice + 1 };
            let (similarity, suspected) = report(&[voice, other]);
            of_two.push(similarity);
            counts[group][1] += usize::from(suspected);
        }
        of_one.sort_by(f64::total_cmp);
        of_two.sort_by(f64::total_cmp);
        let name = ["speakers of the training", "other speakers"][group];
        println!("{name}: least similarity of one speaker {of_one:.2?}, of two {of_two:.2?}");
    }
    println!("suspected of {SPEAKERS}, alone and in pairs: {counts:?}");
    // mina and dara, a woman and a man.
    assert!(report(&[0, 1]).1 && !report(&[0]).1 && !report(&[1]).1);
}

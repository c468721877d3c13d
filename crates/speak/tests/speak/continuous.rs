//! Continuous batching gives every text the audio that it has alone.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::SamplingOptions;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::{AudibleStart, Decoding, SpeakOptions, Speech, Synthesizer, Voice};
use myxtts_tensor::Device;
use std::path::Path;
use std::sync::Arc;

fn open(folder: &ModelFolder, slots: usize) -> (Synthesizer, Arc<Voice>) {
    let mut model = Synthesizer::open_for(folder, Device::Cpu, Decoding::Continuous { slots })
        .expect("a model that opens");
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = model.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    (model, Arc::new(voice))
}

fn options(model: &Synthesizer, seed: u64) -> SpeakOptions {
    let sampling = SamplingOptions { seed, ..model.default_sampling() };
    SpeakOptions { audible_start: Some(AudibleStart::default()), ..sampling.into() }
}

/// Speaks texts in all slots, `steps` codes at a time.
fn together(folder: &ModelFolder, texts: &[&str], slots: usize, steps: usize) -> Vec<Vec<f32>> {
    let (mut model, voice) = open(folder, slots);
    let mut spoken = vec![Vec::new(); texts.len()];
    let mut waiting = texts.iter().enumerate();
    let mut speaking: Vec<(usize, Speech)> = Vec::new();
    loop {
        while model.free_slots() > 0
            && let Some((number, text)) = waiting.next()
        {
            let options = options(&model, number as u64);
            speaking.push((number, model.join(text, "en", &voice, &options).unwrap()));
        }
        if speaking.is_empty() {
            return spoken;
        }
        model.advance(steps).unwrap();
        for (number, speech) in &mut speaking {
            spoken[*number].extend(model.take_audio(speech).unwrap());
            model.collect(speech).unwrap();
        }
        let (done, going) = speaking.into_iter().partition(|(_, speech)| speech.is_done());
        speaking = going;
        let done: Vec<(usize, Speech)> = done;
        done.into_iter().for_each(|(_, speech)| model.leave(speech).unwrap());
    }
}

fn alone(folder: &ModelFolder, texts: &[&str]) -> Vec<Vec<f32>> {
    let mut model = Synthesizer::open(folder, Device::Cpu).unwrap();
    let (_, voice) = open(folder, 1);
    let one = |(number, text): (usize, &&str)| {
        let (mut all, options) = (Vec::new(), options(&model, number as u64));
        let mut sink = |samples: &[f32]| {
            all.extend_from_slice(samples);
            true
        };
        model.speak_streamed(text, "en", &voice, &options, &mut sink).unwrap();
        all
    };
    texts.iter().enumerate().map(one).collect()
}

fn folder(at: &Path, parts: &[Part], stop: f32) -> ModelFolder {
    tiny::write_ending(&at.join("model"), parts, stop);
    ModelFolder::open(&at.join("model")).unwrap()
}

#[test]
fn texts_that_join_and_leave_have_the_audio_they_have_alone() {
    let texts = ["hello world", "a", "this is a voice", "hello, hello", "world", "voice. hello"];
    // A model that never stops, one that stops at random and is retried, and one without a decoder.
    for (parts, stop) in [
        (&[Part::Decoder, Part::Speaker][..], -50.0),
        (&[Part::Decoder, Part::Speaker], 1.0),
        (&[Part::Dvae], -50.0),
    ] {
        let at = tempfile::tempdir().unwrap();
        let folder = folder(at.path(), parts, stop);
        let expected = alone(&folder, &texts);
        for (slots, steps) in [(1, 8), (3, 5), (8, 16)] {
            let spoken = together(&folder, &texts, slots, steps);
            for (number, (spoken, expected)) in spoken.iter().zip(&expected).enumerate() {
                assert!(
                    spoken == expected,
                    "{:?}, {slots} at once, {steps} steps, {stop}: {} and {} samples",
                    texts[number],
                    spoken.len(),
                    expected.len()
                );
            }
        }
    }
}

#[test]
fn leaving_frees_the_slot_at_once() {
    let at = tempfile::tempdir().unwrap();
    let folder = folder(at.path(), &[Part::Decoder, Part::Speaker], -50.0);
    let (mut model, voice) = open(&folder, 2);
    let options = options(&model, 0);
    let join = |model: &mut Synthesizer| model.join("hello world", "en", &voice, &options);
    let (first, second) = (join(&mut model).unwrap(), join(&mut model).unwrap());
    assert_eq!(model.free_slots(), 0);
    assert!(join(&mut model).is_err(), "there is no third slot");
    model.advance(3).unwrap();
    model.leave(first).unwrap();
    assert_eq!(model.free_slots(), 1);
    let third = join(&mut model).unwrap();
    model.leave(second).unwrap();
    model.leave(third).unwrap();
    assert_eq!(model.free_slots(), 2);
}

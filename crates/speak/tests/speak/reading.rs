//! A model hears references as training read its recordings: silence cut, brought to the same loudness.

use crate::tiny;
use myxtts_data::audio::{Clip, Resampler, integrated_loudness, trim_silence};
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::{Synthesizer, Voice};
use myxtts_tensor::Device;

/// The rate of the front-end: recordings at this rate are not resampled.
const RATE: u32 = 22_050;
const TRIM_DB: f32 = 40.0;
const LUFS: f64 = -27.0;

/// A second of silence, speech, and another second of silence.
fn recording() -> Clip {
    let text = "This is what I sound like, most of the time.";
    let speech = demo::speak(text, demo::Language::English, &demo::VOICES[0]);
    let speech = Resampler::new(demo::SAMPLE_RATE, RATE).resample(&speech);
    let silence = vec![0.0; RATE as usize];
    Clip { samples: [&silence[..], &speech, &silence].concat(), sample_rate: RATE }
}

fn scaled(clip: &Clip, by: f32) -> Clip {
    Clip { samples: clip.samples.iter().map(|sample| sample * by).collect(), ..*clip }
}

/// A model whose manifest differs from that of others in what it says about its recordings, and nothing else.
fn model(trim_db: Option<f32>, loudness_lufs: Option<f64>) -> Synthesizer {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("model");
    tiny::write_prepared(&path, &[Part::Decoder, Part::Speaker], trim_db, loudness_lufs);
    Synthesizer::open(&ModelFolder::open(&path).unwrap(), Device::Cpu).unwrap()
}

fn heard(model: &mut Synthesizer, clip: &Clip) -> Voice {
    model.encode_voice(std::slice::from_ref(clip)).unwrap()
}

/// The largest difference of two voices.
fn apart(a: &Voice, b: &Voice) -> f32 {
    let all = |voice: &Voice| [&voice.conditioning[..], voice.speaker.as_deref().unwrap()].concat();
    all(a).iter().zip(all(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_model_of_trimmed_recordings_hears_references_without_their_silence() {
    let raw = recording();
    let kept = trim_silence(&raw.samples, RATE, TRIM_DB, 50.0);
    assert!(kept.len() + 3 * RATE as usize / 2 < raw.samples.len(), "the silence is found: {kept:?}");
    let cut = Clip { samples: raw.samples[kept].to_vec(), ..raw };
    let (mut whole, mut trimmed) = (model(None, None), model(Some(TRIM_DB), None));
    let voice = heard(&mut trimmed, &raw);
    assert_eq!(voice, heard(&mut whole, &cut), "trimmed before it is heard");
    assert_ne!(voice, heard(&mut whole, &raw), "a model of whole recordings hears the silence");
    // So is what recordings are compared with in `evaluate`.
    assert_eq!((trimmed.prepare_reference(&raw), whole.prepare_reference(&raw)), (cut.samples, raw.samples));
}

#[test]
fn a_model_of_one_loudness_hears_quiet_and_loud_references_alike() {
    let loud = recording();
    let quiet = scaled(&loud, 0.25);
    let (mut as_it_is, mut levelled) = (model(None, None), model(None, Some(LUFS)));
    let by = 10f64.powf((LUFS - integrated_loudness(&loud.samples, RATE).unwrap()) / 20.0);
    assert!((by - 1.0).abs() > 0.1, "the recording has another loudness: {by}");
    let voice = heard(&mut levelled, &loud);
    let expected = heard(&mut as_it_is, &scaled(&loud, by as f32));
    let usual = apart(&heard(&mut as_it_is, &loud), &heard(&mut as_it_is, &quiet));
    assert!(apart(&voice, &expected) < 0.01 * usual, "brought to its loudness before it is heard");
    assert!(apart(&voice, &heard(&mut levelled, &quiet)) < 0.01 * usual, "whatever it was before");
    assert!(apart(&voice, &heard(&mut as_it_is, &loud)) > 0.01 * usual);
    let loudness = integrated_loudness(&levelled.prepare_reference(&quiet), RATE).unwrap();
    assert!((loudness - LUFS).abs() < 0.1, "{loudness} LUFS");
}

//! Checks that the evaluation recognises the right sentence: speech of the demo corpus, degraded in known ways.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_data::features::preprocess;
use myxtts_data::mel::{FrontEnd, MelExtractor};
use myxtts_demo::{self as demo, DemoOptions, Language, VOICES};
use myxtts_model::weights::Part;
use myxtts_run::progress::Silent;
use myxtts_tensor::random::Stream;
use myxtts_train::ComputeDevice;
use myxtts_train::evaluate::dtw::{DtwOptions, Frames, align};
use myxtts_train::evaluate::{cepstrum, rank};
use myxtts_train::resynthesize::Resynthesizer;

const CANDIDATES: usize = 20;
const MELS: usize = 80;

/// Sentences of the demo corpus, in one language.
fn sentences() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("corpus");
    let languages = vec![Language::English];
    let options = DemoOptions { utterances: CANDIDATES, speakers: 1, languages, ..DemoOptions::default() };
    demo::write(&dir, &options, &Silent).unwrap();
    let metadata = std::fs::read_to_string(dir.join("metadata.csv")).unwrap();
    metadata.lines().map(|line| line.split('|').nth(1).unwrap().to_owned()).collect()
}

fn mel(samples: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    MelExtractor::new(FrontEnd::Dvae).compute(samples, &mut out);
    out
}

fn frames(mel: &[f32]) -> Frames<'_> {
    Frames::new(mel, MELS).unwrap()
}

/// Adds white noise at the given number of decibels below the signal.
fn noisy(samples: &[f32], decibels: f32, seed: u64) -> Vec<f32> {
    let power = samples.iter().map(|x| x * x).sum::<f32>() / samples.len() as f32;
    let deviation = (power / 10f32.powf(decibels / 10.0)).sqrt();
    let noise = Stream::new(seed).normals(samples.len());
    samples.iter().zip(noise).map(|(x, noise)| x + deviation * noise).collect()
}

/// Resamples frames to another pace, with interpolation.
fn stretched(mel: &[f32], pace: f32) -> Vec<f32> {
    let old = mel.len() / MELS;
    let new = (old as f32 * pace) as usize;
    let at = |t: usize| t as f32 * (old - 1) as f32 / (new - 1) as f32;
    let value = |i: usize, c: usize| mel[i.min(old - 1) * MELS + c];
    let frame = |t: usize| {
        let (i, part) = (at(t) as usize, at(t).fract());
        (0..MELS).map(move |c| value(i, c) * (1.0 - part) + value(i + 1, c) * part)
    };
    (0..new).flat_map(frame).collect()
}

/// Number of sentences nearest to their own, and the mean distance in dB.
fn right(heard: &[Vec<f32>], references: &[Vec<f32>]) -> (usize, f32) {
    let candidates: Vec<Frames<'_>> = references.iter().map(|mel| frames(mel)).collect();
    let first = |(i, mel): (usize, &Vec<f32>)| {
        rank::sentences(frames(mel), &candidates, &DtwOptions::default()).rank(i) == 1
    };
    let count = heard.iter().enumerate().filter(|&item| first(item)).count();
    let distance = |(mel, other): (&Vec<f32>, &Frames<'_>)| {
        let path = align(frames(mel), *other, &DtwOptions::default());
        cepstrum::distortion_along(frames(mel), *other, &path)
    };
    let sum: f32 = heard.iter().zip(&candidates).map(distance).sum();
    (count, sum / heard.len() as f32)
}

#[test]
fn the_right_sentence_is_nearest_with_noise_at_another_speed_or_in_another_voice() {
    let texts = sentences();
    let said = |voice: usize| -> Vec<Vec<f32>> {
        texts.iter().map(|text| demo::speak(text, Language::English, &VOICES[voice])).collect()
    };
    let own = said(0);
    let references: Vec<Vec<f32>> = own.iter().map(|samples| mel(samples)).collect();
    assert_eq!(references.len(), CANDIDATES);
    let mels = |all: &[Vec<f32>]| -> Vec<Vec<f32>> { all.iter().map(|samples| mel(samples)).collect() };
    let spoiled = |decibels: f32| -> Vec<Vec<f32>> {
        own.iter().enumerate().map(|(i, samples)| mel(&noisy(samples, decibels, i as u64))).collect()
    };
    let paced = |pace: f32| -> Vec<Vec<f32>> { references.iter().map(|mel| stretched(mel, pace)).collect() };
    let half: Vec<Vec<f32>> =
        references.iter().map(|mel| mel[..mel.len() / MELS / 2 * MELS].to_vec()).collect();
    let cases = [
        ("noise at 20 dB", spoiled(20.0), 20),
        ("noise at 10 dB", spoiled(10.0), 19),
        ("at 0.7 of the time", paced(0.7), 20),
        ("at 1.4 of the time", paced(1.4), 20),
        ("the first half alone", half, 19),
        ("by a man", mels(&said(1)), 19),
        ("by a child", mels(&said(2)), 18),
    ];
    for (name, heard, wanted) in cases {
        let (found, distortion) = right(&heard, &references);
        println!("{name}: {found} of {CANDIDATES} right, {distortion:.2} dB");
        assert!(found >= wanted, "{name}: {found} of {CANDIDATES} right, {wanted} were expected");
    }
    // It can also be wrong: with the names rotated by one, a sentence is right by chance at most.
    let mut turned = references.clone();
    turned.rotate_left(1);
    let (found, distortion) = right(&turned, &references);
    assert!(found == 0 && distortion > 5.0, "{found} right, {distortion} dB");
    assert_eq!(right(&vec![Vec::new(); CANDIDATES], &references).0, 0);
}

/// By the codes of a recording with silence around the speech.
#[test]
fn recordings_are_resynthesized_as_training_read_them() {
    let (front, at) = (FrontEnd::Dvae, tempfile::tempdir().unwrap());
    let speech = demo::speak("The sea is calm.", Language::English, &VOICES[0]);
    let silence = vec![0.0; front.sample_rate() as usize];
    let raw = Clip { samples: [&silence[..], &speech, &silence].concat(), sample_rate: front.sample_rate() };
    let codes = |name: &str, trim_db, loudness_lufs, clip: &Clip| {
        let path = at.path().join(name);
        if !path.exists() {
            tiny::write_prepared(&path, &[Part::Dvae], trim_db, loudness_lufs);
        }
        let mut parts = Resynthesizer::open(&path, ComputeDevice::CPU, None).unwrap();
        parts.through_dvae(clip).unwrap().0
    };
    let (trim_db, loudness_lufs) = (Some(40.0), Some(-30.0));
    for (name, trim_db, loudness_lufs) in [("trimmed", trim_db, None), ("levelled", None, loudness_lufs)] {
        let prepared = Clip { samples: preprocess(&raw.samples, trim_db, loudness_lufs), ..raw };
        let heard = codes(name, trim_db, loudness_lufs, &raw);
        assert_eq!(heard, codes("plain", None, None, &prepared), "{name}");
        assert_ne!(heard, codes("plain", None, None, &raw), "{name}");
    }
}

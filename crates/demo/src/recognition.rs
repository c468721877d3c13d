//! Tests that the audio depends on the text: words cut from synthetic sentences are recognised by comparison with the same
//! words cut from other sentences.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use myxtts_run::seed::Seed;
use realfft::RealFftPlanner;

use super::sentences::sentences;
use super::{Language, SAMPLE_RATE, VOICES, Voice, phonemes, synthesise};

const WINDOW: usize = 512;
const HOP: usize = 220;
const BANDS: usize = 22;

type Features = Vec<[f64; BANDS]>;

/// Logarithmic band energies minus their mean: the shape of the spectrum without its loudness.
fn features(samples: &[f32]) -> Features {
    let fft = RealFftPlanner::<f64>::new().plan_fft_forward(WINDOW);
    let mut spectrum = fft.make_output_vec();
    // Bands widen with frequency, as in hearing: 100 Hz to 9 kHz.
    let edge = |band: usize| {
        let hertz = 100.0 * 90.0_f64.powf(band as f64 / BANDS as f64);
        ((hertz * WINDOW as f64 / f64::from(SAMPLE_RATE)).round() as usize).max(1)
    };
    let mut out = Vec::new();
    for start in (0..samples.len().saturating_sub(WINDOW)).step_by(HOP) {
        let mut frame: Vec<f64> = (0..WINDOW)
            .map(|i| {
                let hann = 0.5 - 0.5 * (std::f64::consts::TAU * i as f64 / WINDOW as f64).cos();
                hann * f64::from(samples[start + i])
            })
            .collect();
        fft.process(&mut frame, &mut spectrum).unwrap();
        let mut bands: [f64; BANDS] = std::array::from_fn(|band| {
            let bins = &spectrum[edge(band)..edge(band + 1).max(edge(band) + 1)];
            (bins.iter().map(|bin| bin.norm_sqr()).sum::<f64>() / bins.len() as f64 + 1e-6).ln()
        });
        let mean = bands.iter().sum::<f64>() / BANDS as f64;
        bands.iter_mut().for_each(|band| *band -= mean);
        out.push(bands);
    }
    out
}

/// Distance under the best alignment in time (DTW), per step.
fn distance(a: &Features, b: &Features) -> f64 {
    let mut row = vec![f64::INFINITY; b.len() + 1];
    row[0] = 0.0;
    for one in a {
        let mut diagonal = row[0];
        row[0] = f64::INFINITY;
        for (j, other) in b.iter().enumerate() {
            let local = one.iter().zip(other).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
            let best = diagonal.min(row[j]).min(row[j + 1]);
            diagonal = row[j + 1];
            row[j + 1] = best + local;
        }
    }
    row[b.len()] / (a.len() + b.len()) as f64
}

/// Every word of the sentences with at least three phones, with its features.
fn spoken_words(language: Language, voice: &Voice, count: usize) -> Vec<(String, Features)> {
    let mut out = Vec::new();
    for (i, sentence) in sentences(language, Seed::new(11), count).iter().enumerate() {
        let (samples, times) = synthesise(&sentence.text, language, voice, Seed::new(12).with(i as u64));
        let phrases = phonemes(&sentence.text, language).unwrap();
        let words: Vec<_> = phrases.iter().flat_map(|phrase| &phrase.words).collect();
        assert_eq!(words.len(), times.len());
        for (word, (from, to)) in words.iter().zip(times) {
            if word.phones.len() >= 3 {
                let at = |time: f64| ((time * f64::from(SAMPLE_RATE)) as usize).min(samples.len());
                out.push((word.text.clone(), features(&samples[at(from - 0.01)..at(to + 0.01)])));
            }
        }
    }
    out
}

/// Fraction of words recognised, number of trials, number of templates.
fn recognised(language: Language, voice: &Voice) -> (f64, usize, usize) {
    let mut templates: HashMap<String, Features> = HashMap::new();
    let mut trials = Vec::new();
    for (word, features) in spoken_words(language, voice, 28) {
        match templates.entry(word) {
            Entry::Occupied(known) => trials.push((known.key().clone(), features)),
            Entry::Vacant(new) => _ = new.insert(features),
        }
    }
    let right = trials.iter().filter(|(word, trial)| {
        let measured = templates.iter().map(|(other, features)| (distance(features, trial), other));
        measured.min_by(|a, b| a.0.total_cmp(&b.0)).is_some_and(|(_, found)| found == word)
    });
    (right.count() as f64 / trials.len() as f64, trials.len(), templates.len())
}

#[test]
fn words_are_recognised_by_their_audio() {
    for (language, voice) in
        [(Language::English, &VOICES[0]), (Language::Persian, &VOICES[1]), (Language::Persian, &VOICES[2])]
    {
        let (share, trials, templates) = recognised(language, voice);
        println!("{language:?} {}: {share:.3} of {trials} against {templates} words", voice.name);
        assert!(trials >= 30 && templates >= 60, "too few words for a meaningful test");
        assert!(share > 0.9, "{language:?} by {}: only {share:.2} of {trials} recognised", voice.name);
    }
}

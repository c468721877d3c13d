use crate::suite::Case;
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::sync::Arc;

pub fn cases() -> Vec<Case> {
    let spectrum = |name: &'static str, kind: Spectrum| {
        Case::new(name, move |b| {
            let (rows, bins) = (b.size(1, 20), b.size(1, 40));
            let z = b.master([rows, 2 * bins]);
            vec![b.tape.spectrum(z, kind)]
        })
        .step(3e-3)
    };
    vec![
        spectrum("power", Spectrum::Power),
        spectrum("magnitude", Spectrum::Magnitude { epsilon: 1e-2 }),
        Case::new("magnitude of silence", |b| {
            let z = b.master([2, 6]);
            let nothing = b.constant([6, 6], vec![0.0; 36]);
            let silence = b.tape.transform(z, nothing);
            let both = b.tape.spectrum(z, Spectrum::Magnitude { epsilon: 0.0 });
            vec![b.tape.spectrum(silence, Spectrum::Magnitude { epsilon: 0.0 }), both]
        })
        .not_smooth(),
        Case::new("stft", |b| {
            let points = 2 * b.size(2, 20);
            let stft = Stft {
                points,
                length: 2 * b.size(1, points / 2),
                window: [Window::Hann, Window::Hamming][b.random.below(2)],
                hop: b.size(1, 10),
            };
            let (items, samples) = (b.size(1, 2), b.size(40, 200));
            let (x, basis) =
                (b.master([items, samples]), b.constant([2 * stft.bins(), stft.length], stft.basis()));
            let z = b.tape.stft(x, &stft, basis);
            vec![b.tape.spectrum(z, Spectrum::Power), z]
        })
        .step(3e-3),
    ]
}

/// By definition: every frame in full, with the window centred in the transform.
fn direct(x: &[f32], stft: &Stft) -> Vec<f32> {
    let (n, half) = (stft.points, stft.points as i64 / 2);
    let last = x.len() as i64 - 1;
    let mut out = Vec::new();
    for frame in 0..=x.len() / stft.hop {
        let mut parts = [Vec::new(), Vec::new()];
        for bin in 0..stft.bins() {
            let (mut re, mut im) = (0.0, 0.0);
            for j in 0..n {
                let within = j as f64 - ((n - stft.length) / 2) as f64;
                if within < 0.0 || within >= stft.length as f64 {
                    continue;
                }
                let turn = std::f64::consts::TAU;
                let window = 0.5 - 0.5 * (turn * within / stft.length as f64).cos();
                let at = (frame * stft.hop) as i64 + j as i64 - half;
                let at = if at < 0 { -at } else { at };
                let at = if at > last { 2 * last - at } else { at };
                let value = window * f64::from(x[at as usize]);
                let angle = turn * (bin * j) as f64 / n as f64;
                re += value * angle.cos();
                im -= value * angle.sin();
            }
            parts[0].push(re as f32);
            parts[1].push(im as f32);
        }
        out.extend(parts.concat());
    }
    out
}

#[test]
fn the_transform_matches_its_definition() {
    for (points, length, hop, samples) in [(64, 64, 16, 200), (64, 40, 10, 131), (16, 16, 20, 33)] {
        let stft = Stft { points, length, window: Window::Hann, hop };
        let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
        let x = tape.input([1, samples], DType::F32);
        let basis = tape.input([2 * stft.bins(), length], DType::F32);
        let z = tape.stft(x, &stft, basis);
        tape.keep(z);
        let mut engine =
            Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
                .unwrap();
        let mut program = engine.load(tape).unwrap();
        let wave = Stream::new(3).normals(samples);
        engine.write(&program, x, &wave).unwrap();
        engine.write(&program, basis, &stft.basis()).unwrap();
        engine.run(&mut program, &Control::default()).unwrap();
        let (ours, truth) = (engine.read(&program, z).unwrap(), direct(&wave, &stft));
        assert_eq!(ours.len(), truth.len(), "{stft:?}");
        let worst = ours.iter().zip(&truth).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{stft:?}: off by {worst:.1e}");
    }
}

use crate::suite::Case;
use myxtts_tensor::ops::mel::{Log, Mel, Scale};
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("mel", |b| {
            let stft = Stft { points: 64, length: 48, window: Window::Hann, hop: 16 };
            let mel = Mel {
                stft,
                spectrum: [Spectrum::Power, Spectrum::Magnitude { epsilon: 1e-6 }][b.random.below(2)],
                rate: 16_000.0,
                channels: b.size(1, 8),
                range: (100.0, 8000.0),
                scale: [Scale::Htk, Scale::Slaney][b.random.below(2)],
                area: false,
                log: [Log::Floor(1e-5), Log::Plus(1e-6)][b.random.below(2)],
            };
            let (items, samples) = (b.size(1, 2), b.size(64, 200));
            let x = b.master([items, samples]);
            let basis = b.constant([2 * stft.bins(), stft.length], stft.basis());
            let filters = b.constant([mel.channels, stft.bins()], mel.filters());
            vec![b.tape.mel(x, &mel, basis, filters)]
        })
        .rounds(8)
        .step(3e-3),
        Case::new("mel_log, some below the floor", |b| {
            let n = b.size(1, 300);
            // Away from the kink.
            let data =
                (0..n).map(|_| b.random.uniform()).map(|x| if x < 0.3 { x } else { x + 0.1 }).collect();
            let ones = b.constant([1, 1], vec![1.0]);
            let x = b.variable_of([n, 1], data);
            let x = b.tape.cast(x, DType::F32);
            let x = b.tape.transform(x, ones);
            vec![b.tape.mel_log(x, Log::Floor(0.35)), b.tape.mel_log(x, Log::Plus(0.1))]
        })
        .step(3e-3),
    ]
}

fn goldens() -> PathBuf {
    let copy = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    std::env::var_os("MYXTTS_GOLDENS").map_or_else(copy, PathBuf::from).join("mel")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The f32 values of a `.npy` file.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = read(path);
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The samples of a 16-bit mono `.wav` file.
fn wav(path: &Path) -> Vec<f32> {
    let bytes = read(path);
    let data = bytes.windows(4).position(|w| w == b"data").unwrap() + 8;
    bytes[data..].chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0).collect()
}

fn computed(mel: &Mel, wave: &[f32]) -> Vec<f32> {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let x = tape.input([1, wave.len()], DType::F32);
    let basis = tape.input([2 * mel.stft.bins(), mel.stft.length], DType::F32);
    let filters = tape.input([mel.channels, mel.stft.bins()], DType::F32);
    let y = tape.mel(x, mel, basis, filters);
    tape.keep(y);
    let mut engine =
        Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
            .unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, wave).unwrap();
    engine.write(&program, basis, &mel.stft.basis()).unwrap();
    engine.write(&program, filters, &mel.filters()).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    engine.read(&program, y).unwrap()
}

/// The three front-ends of XTTS as torchaudio computes them, which itself is off by up to 2.5e-4 near silence.
#[test]
fn the_front_ends_of_xtts_agree_with_the_reference() {
    let at_22050 = |points| Mel {
        stft: Stft { points, length: 1024, window: Window::Hann, hop: 256 },
        spectrum: Spectrum::Power,
        rate: 22_050.0,
        channels: 80,
        range: (0.0, 8000.0),
        scale: Scale::Htk,
        area: true,
        log: Log::Floor(1e-5),
    };
    let speaker = Mel {
        stft: Stft { points: 512, length: 400, window: Window::Hamming, hop: 160 },
        rate: 16_000.0,
        channels: 64,
        area: false,
        log: Log::Plus(1e-6),
        ..at_22050(512)
    };
    for clip in ["LJ001-0002", "LJ001-0008"] {
        let file = |name: &str| goldens().join(clip).join(name);
        let wave = wav(&file(&format!("{clip}.wav")));
        let wave16 = npy(&file("wav16k.npy"));
        let emphasised: Vec<f32> =
            (0..wave16.len()).map(|i| wave16[i] - 0.97 * wave16[i.abs_diff(1)]).collect();
        for (mel, wave, name) in [
            (at_22050(2048), &wave, "cond_mel_raw.npy"),
            (at_22050(1024), &wave, "dvae_mel_raw.npy"),
            (speaker, &emphasised, "speaker_features_raw.npy"),
        ] {
            let (ours, golden) = (computed(&mel, wave), npy(&file(name)));
            assert_eq!(ours.len(), golden.len(), "{clip} {name}");
            let frames = ours.len() / mel.channels;
            let (mut worst, mut sum) = (0f32, 0f64);
            for (i, value) in ours.iter().enumerate() {
                let distance = (value - golden[i % mel.channels * frames + i / mel.channels]).abs();
                worst = worst.max(distance);
                sum += f64::from(distance);
            }
            let mean = sum / ours.len() as f64;
            println!("{clip} {name}: worst {worst:.1e}, mean {mean:.1e}");
            assert!(worst < 5e-4 && mean < 1e-5, "{clip} {name}: worst {worst:.1e}, mean {mean:.1e}");
        }
    }
}

#[test]
fn filters_peak_at_the_centres_of_their_scale() {
    let mel = |scale, channels| {
        let stft = Stft { points: 16_000, length: 2, window: Window::Hann, hop: 1 };
        let mel = Mel {
            stft,
            spectrum: Spectrum::Power,
            rate: 16_000.0,
            channels,
            range: (0.0, 4000.0),
            scale,
            area: false,
            log: Log::Plus(1.0),
        };
        let filters = mel.filters();
        // Bins are one hertz wide: the bin of a filter's peak is its centre in hertz.
        let peak =
            |filter: &[f32]| (0..filter.len()).max_by(|&a, &b| filter[a].total_cmp(&filter[b])).unwrap();
        filters.chunks(stft.bins()).map(peak).collect::<Vec<usize>>()
    };
    // 4 kHz is 15 + 27 ln 4 / ln 6.4 = 35.164 mels; a seventh of that is 334.9 Hz, six sevenths 2831.8 Hz.
    let slaney = mel(Scale::Slaney, 6);
    assert_eq!((slaney[0], slaney[5]), (335, 2832));
    // Halfway to 4 kHz by HTK is 700 (sqrt(47 / 7) - 1) = 1113.8 Hz.
    assert_eq!(mel(Scale::Htk, 1), [1114]);
}

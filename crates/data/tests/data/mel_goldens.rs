//! Compares with the mels of the reference implementation. The folder comes from `MYXTTS_GOLDENS`, the clips from
//! its `mel/meta.json`, all sizes from the files, so other goldens of the same format work unchanged.

use std::path::{Path, PathBuf};

use myxtts_data::audio::{Resampler, decode};
use myxtts_data::mel::{FrontEnd, MelExtractor, divide_by_stats, instance_normalize};
use myxtts_data::npy;

/// The reference computes in f32 and is itself off by up to 2.5e-4 in bins near silence.
const TOLERANCE: f32 = 5e-4;

/// Resampled samples are sums of about twenty products.
const WAVE_TOLERANCE: f32 = 1e-5;

fn goldens() -> PathBuf {
    let copy = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    std::env::var_os("MYXTTS_GOLDENS").map_or_else(copy, PathBuf::from).join("mel")
}

fn read(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    npy::read_f32(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The largest difference between `[frames, channels]` of ours and `[channels, frames]` of a file.
fn difference(ours: &[f32], path: &Path) -> f32 {
    let (shape, golden) = read(path);
    let [channels, frames] = shape[..] else { panic!("{}: shape {shape:?}", path.display()) };
    assert_eq!(ours.len(), channels * frames, "{}: shape {shape:?}", path.display());
    let mut worst = 0f32;
    for (frame, values) in ours.chunks_exact(channels).enumerate() {
        for (channel, value) in values.iter().enumerate() {
            let distance = (value - golden[channel * frames + frame]).abs();
            assert!(distance.is_finite(), "{}: {value} in frame {frame}", path.display());
            worst = worst.max(distance);
        }
    }
    worst
}

#[test]
fn front_ends_and_resampler_match_the_reference() {
    let folder = goldens();
    let meta = std::fs::read(folder.join("meta.json")).unwrap_or_else(|error| {
        panic!("{}: {error}; set MYXTTS_GOLDENS to a folder of goldens", folder.display())
    });
    let meta: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&meta).unwrap();
    assert!(!meta.is_empty(), "meta.json names no clips");
    let (_, stats) = read(&folder.join("mel_stats.npy"));

    let mut worst = 0f32;
    for clip in meta.keys() {
        let file = |name: &str| folder.join(clip).join(name);
        let check = |ours: &[f32], name: &str, worst: &mut f32| {
            let found = difference(ours, &file(name));
            println!("{clip} {name}: {found:.1e}");
            assert!(found < TOLERANCE, "{clip} {name}: off by {found:.1e}");
            *worst = worst.max(found);
        };
        let clip_audio = decode(&file(&format!("{clip}.wav"))).unwrap().clip;
        assert_eq!(clip_audio.sample_rate, FrontEnd::Dvae.sample_rate());

        let mut mel = Vec::new();
        for (front_end, name) in [(FrontEnd::Conditioning, "cond_mel"), (FrontEnd::Dvae, "dvae_mel")] {
            MelExtractor::new(front_end).compute(&clip_audio.samples, &mut mel);
            check(&mel, &format!("{name}_raw.npy"), &mut worst);
            divide_by_stats(&mut mel, &stats);
            check(&mel, &format!("{name}.npy"), &mut worst);
        }

        let (_, golden) = read(&file("wav16k.npy"));
        let ours = Resampler::new(clip_audio.sample_rate, 16_000).resample(&clip_audio.samples);
        assert_eq!(ours.len(), golden.len());
        let found = ours.iter().zip(&golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{clip} wav16k.npy: {found:.1e}");
        assert!(found < WAVE_TOLERANCE, "{clip} wav16k.npy: off by {found:.1e}");

        MelExtractor::new(FrontEnd::Speaker).compute(&golden, &mut mel);
        check(&mel, "speaker_features_raw.npy", &mut worst);
        instance_normalize(&mut mel, FrontEnd::Speaker.channels());
        check(&mel, "speaker_features.npy", &mut worst);

        // End to end from the file. Near silence the last bit of a resampled sample matters.
        MelExtractor::new(FrontEnd::Speaker).compute(&ours, &mut mel);
        let found = difference(&mel, &file("speaker_features_raw.npy"));
        println!("{clip} speaker_features_raw.npy from the file: {found:.1e}");
        assert!(found < 4.0 * TOLERANCE, "{clip} speaker features from the file: off by {found:.1e}");
    }
    println!("{} clips, worst difference {worst:.1e}", meta.len());
}

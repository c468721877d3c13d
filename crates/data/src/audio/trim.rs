//! Silence at both ends of a clip.

use std::ops::Range;

/// Loudness is measured over this long...
const WINDOW_MS: u64 = 25;
/// ...in steps of this much.
const STEPS: usize = 5;

/// The part of a clip between its silent ends.
///
/// An end is silent where a window of 25 ms is more than `below_peak_db` quieter than the loudest
/// window. `keep_ms` of what is silent stays on each side, so that soft beginnings are not cut. The mean
/// of the clip is taken out first: a constant offset is not sound. Nothing is left of a clip that is
/// all zeros (or all one value).
pub fn trim_silence(samples: &[f32], sample_rate: u32, below_peak_db: f32, keep_ms: f32) -> Range<usize> {
    let step = ((u64::from(sample_rate) * WINDOW_MS / 1000) as usize / STEPS).max(1);
    let mean = mean(samples);
    let steps: Vec<f64> = samples.chunks(step).map(|chunk| energy(chunk, mean)).collect();
    // Windows overlap: each starts a step after the one before.
    let windows: Vec<f64> = match steps.len() {
        0 => return 0..0,
        few if few <= STEPS => vec![steps.iter().sum()],
        _ => steps.windows(STEPS).map(|window| window.iter().sum()).collect(),
    };
    let loudest = windows.iter().copied().fold(0.0, f64::max);
    // Rounding leaves a trace of the mean behind: 120 dB below full scale is nothing.
    if loudest <= 1e-12 * (step * STEPS) as f64 {
        return 0..0;
    }
    let threshold = loudest * 10f64.powf(-f64::from(below_peak_db) / 10.0);
    let heard = |energy: &f64| *energy >= threshold;
    let (Some(first), Some(last)) = (windows.iter().position(heard), windows.iter().rposition(heard)) else {
        return 0..samples.len();
    };
    let keep = (f64::from(sample_rate) * f64::from(keep_ms.max(0.0)) / 1000.0) as usize;
    let start = (first * step).saturating_sub(keep);
    let end = ((last + STEPS) * step).saturating_add(keep).min(samples.len());
    start..end
}

fn mean(samples: &[f32]) -> f32 {
    let sum: f64 = samples.chunks(4096).map(|chunk| f64::from(sum(chunk, |sample| sample))).sum();
    if samples.is_empty() { 0.0 } else { (sum / samples.len() as f64) as f32 }
}

fn energy(chunk: &[f32], mean: f32) -> f64 {
    f64::from(sum(chunk, |sample| (sample - mean) * (sample - mean)))
}

/// In lanes: a plain sum of floats must be done one by one.
fn sum(chunk: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let (whole, rest) = chunk.as_chunks::<16>();
    for values in whole {
        for (lane, &value) in lanes.iter_mut().zip(values) {
            *lane += of(value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| of(value)).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 22_050;

    /// Half a second of soft noise, a second of tone, half a second of soft noise.
    fn clip(offset: f32) -> Vec<f32> {
        let noise = |n: usize| ((n * 7919 % 200) as f32 / 100.0 - 1.0) * 1e-4;
        let tone = |n: usize| (n as f32 * 0.1).sin() * 0.3;
        (0..2 * RATE as usize)
            .map(|n| offset + noise(n) + if (11_025..33_075).contains(&n) { tone(n) } else { 0.0 })
            .collect()
    }

    #[test]
    fn the_sound_stays_and_the_silence_goes() {
        for offset in [0.0, 0.2] {
            let kept = trim_silence(&clip(offset), RATE, 40.0, 0.0);
            let window = RATE as usize * 25 / 1000;
            assert!((11_025 - window..=11_025).contains(&kept.start), "{kept:?}, offset {offset}");
            assert!((33_075..=33_075 + window).contains(&kept.end), "{kept:?}, offset {offset}");
        }
    }

    #[test]
    fn the_margin_is_kept_and_never_leaves_the_clip() {
        let clip = clip(0.0);
        let (bare, wide) = (trim_silence(&clip, RATE, 40.0, 0.0), trim_silence(&clip, RATE, 40.0, 100.0));
        assert_eq!((bare.start - wide.start, wide.end - bare.end), (2205, 2205));
        assert_eq!(trim_silence(&clip, RATE, 40.0, 1e9), 0..clip.len());
    }

    #[test]
    fn nothing_remains_of_nothing_and_all_of_speech_without_pauses() {
        assert_eq!(trim_silence(&[], RATE, 40.0, 50.0), 0..0);
        assert_eq!(trim_silence(&vec![0.0; 5000], RATE, 40.0, 50.0), 0..0);
        assert_eq!(trim_silence(&vec![0.25; 50_000], RATE, 40.0, 50.0), 0..0, "a constant is silent");
        let tone = &clip(0.0)[12_000..32_000];
        assert_eq!(trim_silence(tone, RATE, 40.0, 0.0), 0..tone.len());
        assert_eq!(trim_silence(&tone[..40], RATE, 40.0, 0.0), 0..40);
    }
}

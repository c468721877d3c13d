//! Trims silence at both ends of a clip.

use std::ops::Range;

/// Length of the window whose energy is measured.
const WINDOW_MS: u64 = 25;
/// Steps per window: windows overlap and start one step apart.
const STEPS: usize = 5;

/// Returns the range of a clip between its silent ends.
///
/// A 25 ms window is silent if it is more than `below_peak_db` quieter than the loudest window. `keep_ms` of silence is kept
/// on each side so that soft onsets are not cut. The mean of the clip is subtracted first: a constant offset is not audible.
/// The range is empty for a clip that is all zeros (or one constant value).
pub fn trim_silence(samples: &[f32], sample_rate: u32, below_peak_db: f32, keep_ms: f32) -> Range<usize> {
    let step = ((u64::from(sample_rate) * WINDOW_MS / 1000) as usize / STEPS).max(1);
    let mean = mean(samples);
    let steps: Vec<f64> = samples.chunks(step).map(|chunk| energy(chunk, mean)).collect();
    // Windows overlap: each starts one step after the previous one.
    let windows: Vec<f64> = match steps.len() {
        0 => return 0..0,
        few if few <= STEPS => vec![steps.iter().sum()],
        _ => steps.windows(STEPS).map(|window| window.iter().sum()).collect(),
    };
    let loudest = windows.iter().copied().fold(0.0, f64::max);
    // Rounding leaves a residue of the mean: 120 dB below full scale counts as zero.
    if loudest <= 1e-12 * (step * STEPS) as f64 {
        return 0..0;
    }
    let threshold = loudest * 10f64.powf(-f64::from(below_peak_db) / 10.0);
    let audible = |energy: &f64| *energy >= threshold;
    let (Some(first), Some(last)) = (windows.iter().position(audible), windows.iter().rposition(audible))
    else {
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

/// Sums in lanes: a plain sum of floats cannot be vectorised.
fn sum(chunk: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let (whole, rest) = chunk.as_chunks::<16>();
    for values in whole {
        for (lane, &value) in lanes.iter_mut().zip(values) {
            *lane += term(value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| term(value)).sum::<f32>()
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
    fn silence_is_trimmed_and_audio_is_kept() {
        for offset in [0.0, 0.2] {
            let kept = trim_silence(&clip(offset), RATE, 40.0, 0.0);
            let window = RATE as usize * 25 / 1000;
            assert!((11_025 - window..=11_025).contains(&kept.start), "{kept:?}, offset {offset}");
            assert!((33_075..=33_075 + window).contains(&kept.end), "{kept:?}, offset {offset}");
        }
    }

    #[test]
    fn the_margin_is_kept_and_stays_within_the_clip() {
        let clip = clip(0.0);
        let (bare, wide) = (trim_silence(&clip, RATE, 40.0, 0.0), trim_silence(&clip, RATE, 40.0, 100.0));
        assert_eq!((bare.start - wide.start, wide.end - bare.end), (2205, 2205));
        assert_eq!(trim_silence(&clip, RATE, 40.0, 1e9), 0..clip.len());
    }

    #[test]
    fn silence_becomes_empty_and_continuous_audio_is_untouched() {
        assert_eq!(trim_silence(&[], RATE, 40.0, 50.0), 0..0);
        assert_eq!(trim_silence(&vec![0.0; 5000], RATE, 40.0, 50.0), 0..0);
        assert_eq!(trim_silence(&vec![0.25; 50_000], RATE, 40.0, 50.0), 0..0, "a constant is silent");
        let tone = &clip(0.0)[12_000..32_000];
        assert_eq!(trim_silence(tone, RATE, 40.0, 0.0), 0..tone.len());
        assert_eq!(trim_silence(&tone[..40], RATE, 40.0, 0.0), 0..40);
    }
}

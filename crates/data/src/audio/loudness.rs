//! Integrated loudness by ITU-R BS.1770: frequency-weighted, pauses gated out.

use std::f64::consts::PI;

/// Absolute gate in LUFS: quieter blocks are silence.
const ABSOLUTE_GATE: f64 = -70.0;

/// Relative gate in LU: blocks this much quieter than the mean of the others are pauses.
const RELATIVE_GATE: f64 = -10.0;

/// Steps of 100 ms per block.
const STEPS: usize = 4;

/// Lowest supported sample rate in Hz: the weighting filter must stay below the Nyquist frequency.
const MIN_RATE: u32 = 4_000;

/// Integrated loudness of a mono clip in LUFS.
///
/// A clip shorter than one block of 400 ms is measured as one block. `None` if all of it is below -70 LUFS or the sample
/// rate is too low for the filter.
pub fn integrated_loudness(samples: &[f32], sample_rate: u32) -> Option<f64> {
    if samples.is_empty() || sample_rate < MIN_RATE {
        return None;
    }
    let step = (sample_rate / 10) as usize;
    let mut shelf = Biquad::shelf(f64::from(sample_rate));
    let mut high_pass = Biquad::high_pass(f64::from(sample_rate));
    let mut weighted_power = |sample: &f32| high_pass.next(shelf.next(f64::from(*sample))).powi(2);
    let steps: Vec<f64> =
        samples.chunks(step).map(|chunk| chunk.iter().map(&mut weighted_power).sum::<f64>()).collect();
    // An incomplete step at the end is left out.
    let whole = &steps[..samples.len() / step];
    let powers: Vec<f64> = match whole.len() {
        0..STEPS => vec![steps.iter().sum::<f64>() / samples.len() as f64],
        _ => whole.windows(STEPS).map(|block| block.iter().sum::<f64>() / (STEPS * step) as f64).collect(),
    };
    let ungated = mean_above(&powers, ABSOLUTE_GATE)?;
    mean_above(&powers, (lufs(ungated) + RELATIVE_GATE).max(ABSOLUTE_GATE)).map(lufs)
}

/// Returns the factor that brings a clip to the loudness `target` (both in LUFS), limited so that `peak` does not exceed
/// `max_peak`: normalising never clips.
pub fn gain_to(target: f64, loudness: f64, peak: f32, max_peak: f32) -> f32 {
    let wanted = 10f64.powf((target - loudness) / 20.0);
    let allowed = if peak > 0.0 { f64::from(max_peak) / f64::from(peak) } else { f64::INFINITY };
    let gain = wanted.min(allowed) as f32;
    // Rounding to f32 must not push the peak over the limit.
    if gain * peak > max_peak { gain.next_down() } else { gain }
}

fn lufs(power: f64) -> f64 {
    -0.691 + 10.0 * power.log10()
}

fn mean_above(powers: &[f64], gate: f64) -> Option<f64> {
    let (sum, count) = powers
        .iter()
        .filter(|&&power| power > 0.0 && lufs(power) > gate)
        .fold((0.0, 0usize), |(sum, count), power| (sum + power, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// A second-order filter. The standard gives coefficients for 48 kHz only; these are computed from the underlying analogue
/// filters for any rate.
struct Biquad {
    b: [f64; 3],
    a: [f64; 2],
    state: [f64; 2],
}

impl Biquad {
    /// High shelf: the acoustic effect of the head.
    fn shelf(rate: f64) -> Biquad {
        let (k, q) = ((PI * 1681.974450955533 / rate).tan(), 0.7071752369554196);
        let high = 10f64.powf(3.999843853973347 / 20.0);
        let band = high.powf(0.4996667741545416);
        let a0 = 1.0 + k / q + k * k;
        Biquad {
            b: [
                (high + band * k / q + k * k) / a0,
                2.0 * (k * k - high) / a0,
                (high - band * k / q + k * k) / a0,
            ],
            a: [2.0 * (k * k - 1.0) / a0, (1.0 - k / q + k * k) / a0],
            state: [0.0; 2],
        }
    }

    /// High pass: removes low frequencies that do not contribute to loudness.
    fn high_pass(rate: f64) -> Biquad {
        let (k, q) = ((PI * 38.13547087602444 / rate).tan(), 0.5003270373238773);
        let a0 = 1.0 + k / q + k * k;
        Biquad {
            b: [1.0, -2.0, 1.0],
            a: [2.0 * (k * k - 1.0) / a0, (1.0 - k / q + k * k) / a0],
            state: [0.0; 2],
        }
    }

    fn next(&mut self, input: f64) -> f64 {
        let output = self.b[0] * input + self.state[0];
        self.state[0] = self.b[1] * input - self.a[0] * output + self.state[1];
        self.state[1] = self.b[2] * input - self.a[1] * output;
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(rate: u32, amplitude: f64, seconds: f64) -> Vec<f32> {
        let step = 2.0 * PI * 997.0 / f64::from(rate);
        let samples = (f64::from(rate) * seconds) as usize;
        (0..samples).map(|n| (amplitude * (n as f64 * step).sin()) as f32).collect()
    }

    #[test]
    fn a_full_scale_sine_at_997_hz_measures_3_01_below_zero() {
        for rate in [16_000, 22_050, 24_000, 44_100, 48_000] {
            let loudness = integrated_loudness(&sine(rate, 1.0, 5.0), rate).unwrap();
            assert!((loudness + 3.01).abs() < 0.1, "{loudness} at {rate} Hz");
        }
        let soft = integrated_loudness(&sine(48_000, 0.1, 5.0), 48_000).unwrap();
        assert!((soft + 23.01).abs() < 0.1, "{soft}");
    }

    #[test]
    fn pauses_do_not_count() {
        let tone = sine(22_050, 0.25, 4.0);
        let whole = integrated_loudness(&tone, 22_050).unwrap();
        let with_silence = [&tone[..], &vec![0.0; 22_050 * 10]].concat();
        assert!((integrated_loudness(&with_silence, 22_050).unwrap() - whole).abs() < 0.4);
        let hiss: Vec<f32> = sine(22_050, 0.001, 10.0);
        let with_hiss = [&tone[..], &hiss].concat();
        assert!((integrated_loudness(&with_hiss, 22_050).unwrap() - whole).abs() < 0.4);
    }

    #[test]
    fn silence_has_no_loudness_and_a_short_clip_has() {
        assert_eq!(integrated_loudness(&[], 22_050), None);
        assert_eq!(integrated_loudness(&vec![0.0; 50_000], 22_050), None);
        assert_eq!(integrated_loudness(&[0.5; 100], 1_000), None);
        let short = integrated_loudness(&sine(22_050, 1.0, 0.2), 22_050).unwrap();
        assert!((short + 3.01).abs() < 0.3, "{short}");
    }

    #[test]
    fn the_gain_reaches_the_target_or_stops_at_the_peak() {
        assert!((gain_to(-23.0, -29.0, 0.1, 0.99) - 1.9953).abs() < 1e-4);
        assert!(gain_to(-23.0, -60.0, 0.1, 0.99) * 0.1 <= 0.99);
        assert!(gain_to(-23.0, -60.0, 0.3, 0.97) * 0.3 <= 0.97);
        assert_eq!(gain_to(-23.0, -23.0, 0.0, 0.99), 1.0);
    }
}

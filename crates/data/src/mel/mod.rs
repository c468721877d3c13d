//! Log-mel front-ends exactly as XTTS-v2 computes them.
//!
//! | front-end | Hz | n_fft | window | hop | channels | filters | logarithm |
//! |---|---|---|---|---|---|---|---|
//! | conditioning | 22,050 | 2048 | 1024 Hann | 256 | 80 | HTK scale, Slaney area | ln(max(x, 1e-5)) |
//! | dvae | 22,050 | 1024 | 1024 Hann | 256 | 80 | HTK scale, Slaney area | ln(max(x, 1e-5)) |
//! | speaker | 16,000 | 512 | 400 Hamming | 160 | 64 | HTK scale | pre-emphasis 0.97 before; ln(x + 1e-6) |
//!
//! All use a periodic window, centred frames, reflected ends, the power spectrum and 0 to 8000 Hz. The next step in the
//! model, division by `mel_stats` or normalisation over time, is a separate function.

mod extractor;
mod filterbank;
mod invert;
mod logarithm;
pub mod picture;
mod spectrum;

use std::ops::Range;

pub use extractor::MelExtractor;
pub use invert::MelInverter;

/// The three log-mel front-ends of XTTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrontEnd {
    /// Conditioning on a reference clip, in training and inference.
    Conditioning,
    /// The audio tokeniser (DVAE).
    Dvae,
    /// The speaker encoder.
    Speaker,
}

/// Upper end of the highest filter of every front-end, in Hz.
pub const HIGHEST_HZ: f64 = 8000.0;

/// Minimum power before the logarithm in the conditioning and DVAE front-ends.
pub const LOG_FLOOR: f32 = 1e-5;

/// Logarithm of [`LOG_FLOOR`], to the nearest f32: the value of padding in the conditioning and DVAE front-ends. The extractor's
/// faster logarithm gives the next lower number for silence.
pub const LOG_OF_FLOOR: f32 = -11.512_925;

/// One row of the table above.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// FFT size.
    pub n_fft: usize,
    /// Window length in samples, at most `n_fft`.
    pub window: usize,
    /// Samples between the centres of neighbouring frames.
    pub hop: usize,
    /// Values per frame.
    pub channels: usize,
}

impl FrontEnd {
    /// All front-ends.
    pub const ALL: [FrontEnd; 3] = [FrontEnd::Conditioning, FrontEnd::Dvae, FrontEnd::Speaker];

    /// The row of the table above.
    pub fn parameters(self) -> Parameters {
        let at_22050 =
            |n_fft| Parameters { sample_rate: 22_050, n_fft, window: 1024, hop: 256, channels: 80 };
        match self {
            FrontEnd::Conditioning => at_22050(2048),
            FrontEnd::Dvae => at_22050(1024),
            FrontEnd::Speaker => {
                Parameters { sample_rate: 16_000, n_fft: 512, window: 400, hop: 160, channels: 64 }
            }
        }
    }

    /// Expected sample rate in Hz.
    pub fn sample_rate(self) -> u32 {
        self.parameters().sample_rate
    }

    /// Values per frame.
    pub fn channels(self) -> usize {
        self.parameters().channels
    }

    /// Samples between the centres of neighbouring frames.
    pub fn hop(self) -> usize {
        self.parameters().hop
    }

    /// Duration of `frames` hops, in seconds.
    pub fn seconds(self, frames: usize) -> f64 {
        frames as f64 * self.hop() as f64 / f64::from(self.sample_rate())
    }

    /// Number of frames of a clip: whole hops plus one, zero for an empty clip.
    pub fn frames(self, samples: usize) -> usize {
        if samples == 0 { 0 } else { 1 + samples / self.hop() }
    }

    /// The samples needed to compute some frames of a clip of `whole` samples.
    pub fn samples_of(self, frames: Range<usize>, whole: usize) -> Range<usize> {
        let Parameters { window, hop, .. } = self.parameters();
        let half = window / 2;
        let (Some(last), false) = (frames.end.checked_sub(1), frames.is_empty()) else { return 0..0 };
        // A clip this short may be mirrored more than once, so all of it is needed.
        if whole <= 2 * window {
            return 0..whole;
        }
        // One sample before the window: the pre-emphasis of the speaker front-end uses the previous sample.
        let mut start = (frames.start * hop).saturating_sub(half + 1);
        let mut end = (last * hop + half).min(whole);
        // Outside the clip, the window covers the mirrored clip.
        if frames.start * hop < half {
            end = end.max(half + 1);
        }
        if last * hop + half > whole {
            start = start.min(whole - 2 - half);
        }
        start..end
    }
}

/// Normalises each channel to mean 0 and variance 1 over time (biased variance, epsilon 1e-5): the last step of the speaker
/// front-end. `mel` is `[frames, channels]`.
pub fn instance_normalize(mel: &mut [f32], channels: usize) {
    let frames = mel.len() / channels;
    if frames == 0 {
        return;
    }
    let mut mean = vec![0f64; channels];
    let mut variance = vec![0f64; channels];
    for frame in mel.chunks_exact(channels) {
        mean.iter_mut().zip(frame).for_each(|(sum, &value)| *sum += f64::from(value));
    }
    mean.iter_mut().for_each(|sum| *sum /= frames as f64);
    for frame in mel.chunks_exact(channels) {
        for ((sum, &value), mean) in variance.iter_mut().zip(frame).zip(&mean) {
            *sum += (f64::from(value) - mean).powi(2);
        }
    }
    let scale: Vec<f64> = variance.iter().map(|sum| 1.0 / (sum / frames as f64 + 1e-5).sqrt()).collect();
    for frame in mel.chunks_exact_mut(channels) {
        for ((value, mean), scale) in frame.iter_mut().zip(&mean).zip(&scale) {
            *value = ((f64::from(*value) - mean) * scale) as f32;
        }
    }
}

/// Divides each channel by its entry in the model's `mel_stats`: the last step of the conditioning and DVAE front-ends.
/// `mel` is `[frames, stats.len()]`.
pub fn divide_by_stats(mel: &mut [f32], stats: &[f32]) {
    for frame in mel.chunks_exact_mut(stats.len()) {
        frame.iter_mut().zip(stats).for_each(|(value, stat)| *value /= stat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_of_the_floor_is_the_nearest_number() {
        assert_eq!(LOG_OF_FLOOR, LOG_FLOOR.ln());
        assert_eq!(logarithm::ln(LOG_FLOOR).to_bits(), LOG_OF_FLOOR.to_bits() + 1);
    }

    #[test]
    fn normalising_centres_every_channel() {
        let mut mel: Vec<f32> = (0..60).map(|n| (n * n % 17) as f32 + (n % 3) as f32 * 100.0).collect();
        instance_normalize(&mut mel, 3);
        for channel in 0..3 {
            let values: Vec<f64> = mel.iter().skip(channel).step_by(3).map(|&v| f64::from(v)).collect();
            let mean = values.iter().sum::<f64>() / 20.0;
            let variance = values.iter().map(|v| v * v).sum::<f64>() / 20.0;
            assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-4, "{mean} {variance}");
        }
        let mut constant = [3.0f32; 8];
        instance_normalize(&mut constant, 2);
        assert_eq!(constant, [0.0; 8]);
        instance_normalize(&mut [], 2);
    }
}

//! Samples to log-mel frames: window, spectrum, filters and logarithm, frame by frame.

use std::f64::consts::PI;
use std::ops::Range;

use super::filterbank::{Filterbank, LANES};
use super::logarithm::ln;
use super::spectrum::Spectrum;
use super::{FrontEnd, HIGHEST_HZ, LOG_FLOOR, Parameters};

/// Weight of the previous sample in the speaker front-end; the reference stores it as `f32`.
const PRE_EMPHASIS: f64 = 0.97f32 as f64;

/// Computes the mels of one front-end. Reuse it: FFT plan, window and buffers are kept.
pub struct MelExtractor {
    front_end: FrontEnd,
    filters: Filterbank,
    engine: Engine,
}

/// `f32` is accurate to 1.6e-4 in the worst bin of real speech. The speaker front-end amplifies values near silence so much
/// that `f32` would be off by 6e-4 there, so it is computed in `f64`.
enum Engine {
    Single(Spectrum<f32>),
    Double { spectrum: Spectrum<f64>, emphasized: Vec<f64> },
}

impl MelExtractor {
    /// Creates an extractor for one of the front-ends.
    pub fn new(front_end: FrontEnd) -> MelExtractor {
        let Parameters { sample_rate, n_fft, window, channels, .. } = front_end.parameters();
        // Periodic window: as if one more sample followed.
        let wave = (0..window).map(|n| (2.0 * PI * n as f64 / window as f64).cos());
        let (engine, area) = match front_end {
            FrontEnd::Conditioning | FrontEnd::Dvae => {
                let hann = wave.map(|wave| 0.5 - 0.5 * wave);
                (Engine::Single(Spectrum::new(hann, n_fft, LANES)), true)
            }
            FrontEnd::Speaker => {
                let hamming = wave.map(|wave| 0.54 - 0.46 * wave);
                (
                    Engine::Double { spectrum: Spectrum::new(hamming, n_fft, LANES), emphasized: Vec::new() },
                    false,
                )
            }
        };
        let filters = Filterbank::new(sample_rate, n_fft, channels, HIGHEST_HZ, area);
        MelExtractor { front_end, filters, engine }
    }

    /// The front-end this extractor computes.
    pub fn front_end(&self) -> FrontEnd {
        self.front_end
    }

    /// Replaces `out` with the natural log-mel of a clip, `[frames, channels]`, and returns the number of frames.
    ///
    /// The samples are at [`FrontEnd::sample_rate`]. Frame `t` is centred on sample `t * hop`. Outside the clip, a frame
    /// covers the clip mirrored at its first and last sample, repeatedly if the clip is shorter than the window (the
    /// reference rejects such clips).
    pub fn compute(&mut self, samples: &[f32], out: &mut Vec<f32>) -> usize {
        let frames = self.front_end.frames(samples.len());
        self.compute_frames(samples, (0, samples.len()), 0..frames, out);
        frames
    }

    /// Replaces `out` with some frames of a clip of `whole` samples. `piece` contains the samples from `first` on, at least
    /// those returned by [`FrontEnd::samples_of`]. The frames are bit-identical to those of the whole clip.
    pub(crate) fn compute_frames(
        &mut self,
        piece: &[f32],
        (first, whole): (usize, usize),
        frames: Range<usize>,
        out: &mut Vec<f32>,
    ) {
        let Parameters { hop, channels, .. } = self.front_end.parameters();
        if let Engine::Double { emphasized, .. } = &mut self.engine {
            emphasize(piece, emphasized);
        }
        out.clear();
        out.resize(frames.len() * channels, 0.0);
        for (number, mel) in frames.zip(out.chunks_exact_mut(channels)) {
            let power = match &mut self.engine {
                Engine::Single(spectrum) => spectrum.power(piece, (first, whole), number * hop),
                Engine::Double { spectrum, emphasized } => {
                    spectrum.power(emphasized, (first, whole), number * hop)
                }
            };
            self.filters.apply(power, mel);
            match self.front_end {
                FrontEnd::Conditioning | FrontEnd::Dvae => {
                    mel.iter_mut().for_each(|value| *value = ln(value.max(LOG_FLOOR)));
                }
                FrontEnd::Speaker => mel.iter_mut().for_each(|value| *value = ln(*value + 1e-6)),
            }
        }
    }
}

/// `x[t] - 0.97 x[t-1]`, the clip mirrored at its first sample.
fn emphasize(samples: &[f32], out: &mut Vec<f64>) {
    out.clear();
    let Some(&first) = samples.first() else { return };
    let emphasized = |before: f32, now: f32| f64::from(now) - PRE_EMPHASIS * f64::from(before);
    out.push(emphasized(*samples.get(1).unwrap_or(&first), first));
    out.extend(samples.windows(2).map(|pair| emphasized(pair[0], pair[1])));
}

#[cfg(test)]
mod tests {
    use super::super::spectrum::mirrored;
    use super::*;

    /// The definition in f64: a plain Fourier sum over the padded frame, a dense triangle per channel.
    fn reference(front_end: FrontEnd, samples: &[f32]) -> Vec<f64> {
        let Parameters { sample_rate, n_fft, window, hop, channels } = front_end.parameters();
        let speaker = front_end == FrontEnd::Speaker;
        let at = |signal: &[f64], position: i64| signal[mirrored(position, signal.len())];
        let mut signal: Vec<f64> = samples.iter().map(|&sample| f64::from(sample)).collect();
        if speaker {
            let plain = signal.clone();
            signal = (0..plain.len() as i64).map(|n| at(&plain, n) - 0.97 * at(&plain, n - 1)).collect();
        }
        let taper = |n: usize| {
            let wave = (2.0 * PI * n as f64 / window as f64).cos();
            if speaker { 0.54 - 0.46 * wave } else { 0.5 - 0.5 * wave }
        };
        let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
        let hertz = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
        let corner = |n: usize| hertz(mel(8_000.0) * n as f64 / (channels + 1) as f64);
        let mut out = Vec::new();
        for number in 0..=samples.len() / hop {
            let frame: Vec<f64> = (0..window)
                .map(|n| taper(n) * at(&signal, (number * hop + n) as i64 - (window / 2) as i64))
                .collect();
            let power: Vec<f64> = (0..=n_fft / 2)
                .map(|bin| {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (n, value) in frame.iter().enumerate() {
                        let angle = 2.0 * PI * (n * bin % n_fft) as f64 / n_fft as f64;
                        re += value * angle.cos();
                        im += value * angle.sin();
                    }
                    re * re + im * im
                })
                .collect();
            for channel in 0..channels {
                let [low, centre, high] = [0, 1, 2].map(|offset| corner(channel + offset));
                let sum: f64 = power
                    .iter()
                    .enumerate()
                    .map(|(bin, power)| {
                        let f = bin as f64 * f64::from(sample_rate) / n_fft as f64;
                        power * ((f - low) / (centre - low)).min((high - f) / (high - centre)).max(0.0)
                    })
                    .sum();
                out.push(if speaker { (sum + 1e-6).ln() } else { (sum * 2.0 / (high - low)).max(1e-5).ln() });
            }
        }
        out
    }

    fn noise(samples: usize) -> Vec<f32> {
        let mut state = 9u64;
        (0..samples)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
            })
            .collect()
    }

    #[test]
    fn every_front_end_matches_its_definition_even_for_the_shortest_clips() {
        for front_end in FrontEnd::ALL {
            let mut extractor = MelExtractor::new(front_end);
            let mut mel = Vec::new();
            for length in [1, 2, 5, 300, 700, 2100] {
                let samples = noise(length);
                let frames = extractor.compute(&samples, &mut mel);
                assert_eq!(frames, front_end.frames(length));
                assert_eq!(mel.len(), frames * front_end.channels());
                for (at, (ours, exact)) in mel.iter().zip(reference(front_end, &samples)).enumerate() {
                    let difference = (f64::from(*ours) - exact).abs();
                    assert!(difference < 5e-5, "{front_end:?}, {length} samples, {at}: {ours} for {exact}");
                }
            }
        }
    }

    /// At both ends and in the middle, one frame and all of them, for clips shorter and longer than a window.
    #[test]
    fn frames_of_a_part_are_bit_identical_to_those_of_the_whole_clip() {
        for front_end in FrontEnd::ALL {
            let mut extractor = MelExtractor::new(front_end);
            let (mut whole, mut some) = (Vec::new(), Vec::new());
            for length in [1, 700, 2100, 9000, 9216, 9280] {
                let samples = noise(length);
                let frames = extractor.compute(&samples, &mut whole);
                for (first, last) in (0..frames).flat_map(|first| [(first, first + 1), (first, frames)]) {
                    let last = last.max(first + 1);
                    let needed = front_end.samples_of(first..last, length);
                    let position = (needed.start, length);
                    extractor.compute_frames(&samples[needed.clone()], position, first..last, &mut some);
                    let bits = |mel: &[f32]| mel.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    let expected = &whole[first * front_end.channels()..last * front_end.channels()];
                    assert!(
                        bits(&some) == bits(expected),
                        "{front_end:?}: {first}..{last} of {length} samples, from {needed:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_empty_clip_has_no_frames_and_silence_gives_the_floor() {
        for (front_end, floor) in FrontEnd::ALL.into_iter().zip([1e-5f32.ln(), 1e-5f32.ln(), 1e-6f32.ln()]) {
            let mut extractor = MelExtractor::new(front_end);
            let mut mel = vec![1.0];
            assert_eq!(extractor.compute(&[], &mut mel), 0);
            assert!(mel.is_empty());
            extractor.compute(&[0.0; 3000], &mut mel);
            assert!(mel.iter().all(|value| (value - floor).abs() < 2e-6), "{front_end:?}");
        }
    }
}

//! Log-mel frames to audio without a network, for listening to the DVAE's mels before a decoder exists. The quality is poor,
//! but enough to tell whether the words are right.
//!
//! A mel contains neither phases nor single bins. The bins are found as the non-negative powers whose mel is nearest; the
//! phases by the Griffin-Lim iteration with momentum: audio from the phases, phases from the audio.

use std::f64::consts::PI;
use std::sync::Arc;

use myxtts_run::seed::Seed;
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::filterbank::{Filterbank, LANES};
use super::spectrum::mirrored;
use super::{FrontEnd, HIGHEST_HZ, Parameters};

/// Iterations of the phase search.
const ITERATIONS: usize = 32;

/// Momentum of the phase search (fast Griffin-Lim).
const MOMENTUM: f32 = 0.99;

/// Iterations of the search for bins.
const BIN_ITERATIONS: usize = 40;

/// Converts log-mels of the DVAE front-end, as computed by [`super::MelExtractor`], to audio. Reuse it: tables and FFT plans
/// are kept.
pub struct MelInverter {
    filters: Filterbank,
    window: Vec<f32>,
    forward: Arc<dyn RealToComplex<f32>>,
    back: Arc<dyn ComplexToReal<f32>>,
}

impl Default for MelInverter {
    fn default() -> Self {
        MelInverter::new()
    }
}

impl MelInverter {
    /// Creates an inverter for the DVAE's mels.
    pub fn new() -> MelInverter {
        let Parameters { sample_rate, n_fft, window, channels, .. } = FrontEnd::Dvae.parameters();
        let hann = |n: usize| (0.5 - 0.5 * (2.0 * PI * n as f64 / window as f64).cos()) as f32;
        let mut planner = RealFftPlanner::new();
        MelInverter {
            filters: Filterbank::new(sample_rate, n_fft, channels, HIGHEST_HZ, true),
            window: (0..window).map(hann).collect(),
            forward: planner.plan_fft_forward(n_fft),
            back: planner.plan_fft_inverse(n_fft),
        }
    }

    /// Number of samples for `frames` frames: whole hops, so that the audio has the same number of frames. Zero for a single
    /// frame.
    pub fn samples(frames: usize) -> usize {
        frames.saturating_sub(1) * FrontEnd::Dvae.hop()
    }

    /// Converts natural log-mels `[frames, channels]` to audio at [`FrontEnd::sample_rate`]. The result is bit-identical for
    /// the same mel with any number of threads.
    pub fn invert(&self, mel: &[f32]) -> Vec<f32> {
        let Parameters { n_fft, channels, .. } = FrontEnd::Dvae.parameters();
        let (frames, bins) = (mel.len() / channels, n_fft / 2 + 1);
        let mut samples = vec![0.0; MelInverter::samples(frames)];
        if samples.is_empty() {
            return samples;
        }
        let mut sizes = vec![0f32; frames * bins];
        let each = sizes.par_chunks_mut(bins).zip(mel.par_chunks_exact(channels));
        each.for_each(|(sizes, mel)| self.magnitudes(mel, sizes));

        // Random initial phases: equal phases would give a sequence of clicks.
        let seed = Seed::new(0).derive("phases");
        let mut guess: Vec<Complex<f32>> = (0..frames * bins)
            .into_par_iter()
            .map(|i| {
                let angle = 2.0 * PI * seed.unit(i as u64);
                Complex::new(angle.cos() as f32, angle.sin() as f32)
            })
            .collect();
        let mut previous = vec![Complex::new(0.0, 0.0); frames * bins];
        for round in 0..=ITERATIONS {
            guess.par_iter_mut().zip(&sizes).for_each(|(bin, size)| *bin = with_magnitude(*bin, *size));
            self.synthesise(&mut guess, &mut samples);
            if round < ITERATIONS {
                self.spectra(&samples, &mut guess);
                guess.par_iter_mut().zip(&mut previous).for_each(|(bin, previous)| {
                    let here = *bin;
                    *bin = here - *previous * (MOMENTUM / (1.0 + MOMENTUM));
                    *previous = here;
                });
            }
        }
        samples
    }

    /// Computes the magnitude of each bin: the square roots of the non-negative powers whose mel is nearest, found by
    /// multiplicative updates with the ratio of wanted to current filter values.
    fn magnitudes(&self, mel: &[f32], out: &mut [f32]) {
        let wanted: Vec<f32> = mel.iter().map(|&value| value.min(MAX_LOG_MEL).exp()).collect();
        let mut current = vec![0f32; mel.len()];
        let [mut power, mut numerator, mut denominator] = [(); 3].map(|()| vec![0f32; out.len() + LANES]);
        self.filters.spread(&wanted, &mut numerator);
        power.copy_from_slice(&numerator);
        for _ in 0..BIN_ITERATIONS {
            self.filters.apply(&power, &mut current);
            self.filters.spread(&current, &mut denominator);
            for ((power, up), down) in power.iter_mut().zip(&numerator).zip(&denominator) {
                *power = if *down > 0.0 { *power * up / down } else { 0.0 };
            }
        }
        out.iter_mut().zip(&power).for_each(|(size, power)| *size = power.sqrt());
    }

    /// Computes the spectrum of the frame around each hop.
    fn spectra(&self, samples: &[f32], out: &mut [Complex<f32>]) {
        let (hop, half) = (FrontEnd::Dvae.hop(), self.window.len() / 2);
        let buffers = || (self.forward.make_input_vec(), self.forward.make_scratch_vec());
        let frames = out.par_chunks_mut(half + 1).enumerate();
        frames.for_each_init(buffers, |(frame, scratch), (number, out)| {
            let start = (number * hop) as i64 - half as i64;
            for (n, (value, weight)) in (0..).zip(frame.iter_mut().zip(&self.window)) {
                let at = start + n;
                let inside = usize::try_from(at).ok().and_then(|at| samples.get(at));
                *value = weight * inside.unwrap_or_else(|| &samples[mirrored(at, samples.len())]);
            }
            let done = self.forward.process_with_scratch(frame, out, scratch);
            done.expect("the buffers were made by the plan");
        });
    }

    /// Computes the audio whose spectra are nearest to `spectra`, which are overwritten.
    fn synthesise(&self, spectra: &mut [Complex<f32>], samples: &mut [f32]) {
        let (hop, n) = (FrontEnd::Dvae.hop(), self.window.len());
        let frames: Vec<Vec<f32>> = spectra
            .par_chunks_mut(n / 2 + 1)
            .map_init(
                || self.back.make_scratch_vec(),
                |scratch, bins| {
                    // The first and the last bin of a real signal are real.
                    bins[0].im = 0.0;
                    bins[n / 2].im = 0.0;
                    let mut frame = self.back.make_output_vec();
                    let done = self.back.process_with_scratch(bins, &mut frame, scratch);
                    done.expect("the buffers were made by the plan");
                    frame
                },
            )
            .collect();
        // The samples of each hop are the sum of the frames that cover them, in a fixed order.
        samples.par_chunks_mut(hop).enumerate().for_each(|(stretch, samples)| {
            let middle = stretch * hop + n / 2;
            let first = (middle + hop).saturating_sub(n) / hop;
            let covering = first..frames.len().min(middle / hop + 1);
            for (i, sample) in samples.iter_mut().enumerate() {
                let (mut sum, mut weights) = (0f32, 0f32);
                for number in covering.clone() {
                    let at = middle + i - number * hop;
                    if let Some(weight) = self.window.get(at) {
                        sum += weight * frames[number][at];
                        weights += weight * weight;
                    }
                }
                // The unnormalised forward and inverse FFT multiply by the length.
                *sample = sum / (weights.max(1e-6) * n as f32);
            }
        });
    }
}

/// Maximum log-mel: full scale is near 9, larger values are not audio.
const MAX_LOG_MEL: f32 = 15.0;

/// Scales `bin` to the magnitude `size`, keeping its phase.
fn with_magnitude(bin: Complex<f32>, size: f32) -> Complex<f32> {
    let length = (bin.re * bin.re + bin.im * bin.im).sqrt();
    if length > 1e-20 { bin * (size / length) } else { Complex::new(size, 0.0) }
}

#[cfg(test)]
mod tests {
    use myxtts_demo as demo;

    use super::*;
    use crate::audio::Resampler;
    use crate::mel::MelExtractor;

    #[test]
    fn inverted_speech_has_the_same_mel_and_is_deterministic() {
        let text = "The quick brown fox jumps over the lazy dog.";
        let mut resampler = Resampler::new(demo::SAMPLE_RATE, FrontEnd::Dvae.sample_rate());
        let mut extractor = MelExtractor::new(FrontEnd::Dvae);
        for voice in &demo::VOICES[..2] {
            let speech = resampler.resample(&demo::speak(text, demo::Language::English, voice));
            let (mut mel, mut again) = (Vec::new(), Vec::new());
            extractor.compute(&speech, &mut mel);
            let audio = MelInverter::new().invert(&mel);
            assert!(audio.len().abs_diff(speech.len()) < 256, "{} for {}", audio.len(), speech.len());
            assert!(audio.iter().all(|sample| sample.abs() < 2.0), "the audio is too loud");
            extractor.compute(&audio, &mut again);
            assert_eq!(mel.len(), again.len());
            let apart: f32 =
                mel.iter().zip(&again).map(|(a, b)| (a - b).abs()).sum::<f32>() / mel.len() as f32;
            println!("{}: {apart:.3}", voice.name);
            assert!(apart < 0.35, "mels are {apart} apart on average");
            assert_eq!(audio, MelInverter::new().invert(&mel), "the same mel gives the same audio");
        }
    }

    #[test]
    fn silence_empty_and_extreme_mels_are_handled() {
        let inverter = MelInverter::new();
        assert!(inverter.invert(&[]).is_empty());
        assert!(inverter.invert(&[0.0; 80]).is_empty());
        let silence = inverter.invert(&[1e-5f32.ln(); 5 * 80]);
        assert_eq!(silence.len(), MelInverter::samples(5));
        // The floor of a log-mel is an inaudible hiss at -64 dB.
        let power = silence.iter().map(|sample| sample * sample).sum::<f32>() / silence.len() as f32;
        assert!(power < 1e-6, "{power}");
        let loud = inverter.invert(&[1e9; 3 * 80]);
        assert!(loud.iter().all(|sample| sample.is_finite()));
    }
}

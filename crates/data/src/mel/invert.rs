//! From log-mel frames back to sound, without a network: how an audio tokeniser's mels are listened to while there is no
//! decoder yet. It sounds like speech from a tin, and says whether the words are right.
//!
//! A mel has neither phases nor single bins. The bins are those that are never negative and nearest to the mel; the
//! phases are found by Griffin and Lim's iteration, hurried by momentum: sound from the phases, phases from the sound.

use std::f64::consts::PI;
use std::sync::Arc;

use myxtts_run::seed::Seed;
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::filterbank::{Filterbank, LANES};
use super::spectrum::mirrored;
use super::{FrontEnd, HIGHEST_HZ, Parameters};

/// Rounds of the search for phases.
const ROUNDS: usize = 32;

/// How far each round of it goes beyond where the last one led.
const MOMENTUM: f32 = 0.99;

/// Rounds of the search for bins.
const BIN_ROUNDS: usize = 40;

/// Turns log-mels of the DVAE's front-end, as [`super::MelExtractor`] makes them, into sound. Keep it: tables and plans
/// are reused.
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
    /// Ready for the DVAE's mels.
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

    /// Samples that so many frames become: whole hops, so that they have as many frames again. One frame is no sound.
    pub fn samples(frames: usize) -> usize {
        frames.saturating_sub(1) * FrontEnd::Dvae.hop()
    }

    /// The sound of natural log-mels `[frames, channels]`, at [`FrontEnd::sample_rate`]. The same mel gives the same bits,
    /// on however many threads.
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

        // Phases of chance to begin with: with equal ones the first sound would be a row of clicks.
        let seed = Seed::new(0).derive("phases");
        let mut guess: Vec<Complex<f32>> = (0..frames * bins)
            .into_par_iter()
            .map(|i| {
                let angle = 2.0 * PI * seed.unit(i as u64);
                Complex::new(angle.cos() as f32, angle.sin() as f32)
            })
            .collect();
        let mut before = vec![Complex::new(0.0, 0.0); frames * bins];
        for round in 0..=ROUNDS {
            guess.par_iter_mut().zip(&sizes).for_each(|(bin, size)| *bin = at_length(*bin, *size));
            self.sound(&mut guess, &mut samples);
            if round < ROUNDS {
                self.spectra(&samples, &mut guess);
                guess.par_iter_mut().zip(&mut before).for_each(|(bin, before)| {
                    let here = *bin;
                    *bin = here - *before * (MOMENTUM / (1.0 + MOMENTUM));
                    *before = here;
                });
            }
        }
        samples
    }

    /// The magnitude of each bin: the square roots of powers that are not negative and whose mel is nearest, found by
    /// multiplying each with the share by which its filters fall short.
    fn magnitudes(&self, mel: &[f32], out: &mut [f32]) {
        let wanted: Vec<f32> = mel.iter().map(|&value| value.min(MOST).exp()).collect();
        let mut made = vec![0f32; mel.len()];
        let [mut power, mut up, mut down] = [(); 3].map(|()| vec![0f32; out.len() + LANES]);
        self.filters.spread(&wanted, &mut up);
        power.copy_from_slice(&up);
        for _ in 0..BIN_ROUNDS {
            self.filters.apply(&power, &mut made);
            self.filters.spread(&made, &mut down);
            for ((power, up), down) in power.iter_mut().zip(&up).zip(&down) {
                *power = if *down > 0.0 { *power * up / down } else { 0.0 };
            }
        }
        out.iter_mut().zip(&power).for_each(|(size, power)| *size = power.sqrt());
    }

    /// The spectrum of the frame around each hop.
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
            done.expect("the buffers are the plan's own");
        });
    }

    /// The sound whose spectra are nearest to these, which are used up.
    fn sound(&self, spectra: &mut [Complex<f32>], samples: &mut [f32]) {
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
                    done.expect("the buffers are the plan's own");
                    frame
                },
            )
            .collect();
        // Each stretch of a hop is the sum of the frames that cover it, in order.
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
                // The transform there and back multiplies by its length.
                *sample = sum / (weights.max(1e-6) * n as f32);
            }
        });
    }
}

/// Log-mels above this are no sound: full scale is near 9.
const MOST: f32 = 15.0;

/// A number of the direction of `bin` and the magnitude `size`.
fn at_length(bin: Complex<f32>, size: f32) -> Complex<f32> {
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
    fn speech_is_heard_again_and_always_the_same() {
        let text = "The quick brown fox jumps over the lazy dog.";
        let mut resampler = Resampler::new(demo::SAMPLE_RATE, FrontEnd::Dvae.sample_rate());
        let mut extractor = MelExtractor::new(FrontEnd::Dvae);
        for voice in &demo::VOICES[..2] {
            let speech = resampler.resample(&demo::speak(text, demo::Language::English, voice));
            let (mut mel, mut again) = (Vec::new(), Vec::new());
            extractor.compute(&speech, &mut mel);
            let sound = MelInverter::new().invert(&mel);
            assert!(sound.len().abs_diff(speech.len()) < 256, "{} for {}", sound.len(), speech.len());
            assert!(sound.iter().all(|sample| sample.abs() < 2.0), "louder than any speech");
            extractor.compute(&sound, &mut again);
            assert_eq!(mel.len(), again.len());
            let apart: f32 =
                mel.iter().zip(&again).map(|(a, b)| (a - b).abs()).sum::<f32>() / mel.len() as f32;
            println!("{}: {apart:.3}", voice.name);
            assert!(apart < 0.35, "mels are {apart} apart on average");
            assert_eq!(sound, MelInverter::new().invert(&mel), "the same mel gives the same sound");
        }
    }

    #[test]
    fn silence_nothing_and_nonsense_are_no_trouble() {
        let inverter = MelInverter::new();
        assert!(inverter.invert(&[]).is_empty());
        assert!(inverter.invert(&[0.0; 80]).is_empty());
        let silence = inverter.invert(&[1e-5f32.ln(); 5 * 80]);
        assert_eq!(silence.len(), MelInverter::samples(5));
        // The floor of a log-mel is a hiss at -64 dB: nobody hears it.
        let power = silence.iter().map(|sample| sample * sample).sum::<f32>() / silence.len() as f32;
        assert!(power < 1e-6, "{power}");
        let loud = inverter.invert(&[1e9; 3 * 80]);
        assert!(loud.iter().all(|sample| sample.is_finite()));
    }
}

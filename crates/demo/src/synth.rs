//! The synthesiser: glottal pulses, breath and friction through resonators, after Klatt (1980).
//!
//! Voice and breath pass a cascade of formants with a nasal pole and zero; friction passes two parallel bands. Only
//! `+ - * /` and square roots are used (see `portable`), in a fixed order, so that a seed gives the same samples on every machine.

use myxtts_run::seed::Seed;

use super::channel;
use super::portable::{cosine, decibels, exp};
use super::tracks::{FRAME, Frame, NASAL_POLE, SAMPLE_RATE};
use super::voice::Voice;

/// Centres and bandwidths in Hz of the formants above the third: they colour a voice but do not distinguish words.
const UPPER_FORMANTS: [(f64, f64); 5] =
    [(3500.0, 200.0), (4400.0, 260.0), (5400.0, 350.0), (6400.0, 450.0), (7400.0, 550.0)];
/// Gains that bring a vowel to an RMS near 1, and breath and hum to a comparable level.
const VOICE_GAIN: f64 = 1.42;
const BREATH_GAIN: f64 = 0.85;
const HUM_GAIN: f64 = 2.3;
/// RMS of the speech in an utterance without pauses, in dB below full scale.
const LOUDNESS: f64 = -21.0;
/// Maximum magnitude of a sample.
const CEILING: f64 = 0.89;
/// RMS of the noise for voices without a channel, in dB below full scale.
const STUDIO_NOISE: f64 = -72.0;

/// A pair of poles with gain 1 at 0 Hz.
#[derive(Clone, Copy, Default)]
struct Resonator {
    a: f64,
    b: f64,
    c: f64,
    last: f64,
    older: f64,
}

impl Resonator {
    fn tune(&mut self, centre: f64, width: f64) {
        let rate = f64::from(SAMPLE_RATE);
        let radius = exp(-std::f64::consts::PI * width / rate);
        self.c = -radius * radius;
        self.b = 2.0 * radius * cosine(centre / rate);
        self.a = 1.0 - self.b - self.c;
    }

    fn pass(&mut self, input: f64) -> f64 {
        let output = self.a * input + self.b * self.last + self.c * self.older;
        self.older = self.last;
        self.last = output;
        output
    }

    /// The inverse filter: a pair of zeros with gain 1 at 0 Hz. `last` and `older` hold inputs.
    fn pass_inverse(&mut self, input: f64) -> f64 {
        let output = (input - self.b * self.last - self.c * self.older) / self.a;
        self.older = self.last;
        self.last = input;
        output
    }
}

/// A band-pass that turns white noise of RMS 1 into band noise of RMS 1.
#[derive(Clone, Copy, Default)]
struct BandPass {
    gain: f64,
    b: f64,
    c: f64,
    last: f64,
    older: f64,
}

impl BandPass {
    fn tune(&mut self, centre: f64, width: f64) {
        let rate = f64::from(SAMPLE_RATE);
        let radius = exp(-std::f64::consts::PI * width / rate);
        self.c = -radius * radius;
        self.b = 2.0 * radius * cosine((centre / rate).min(0.47));
        // (1 - r^2)/2 normalises the peak to 1; the root compensates the loss of power by the narrower band.
        self.gain = 0.5 * (1.0 - radius * radius) * (rate / (std::f64::consts::PI * width)).sqrt();
    }

    fn pass(&mut self, input: f64, older_input: f64) -> f64 {
        let output = self.gain * (input - older_input) + self.b * self.last + self.c * self.older;
        self.older = self.last;
        self.last = output;
        output
    }
}

/// White noise of RMS 1, read from a seed by position.
struct WhiteNoise {
    seed: Seed,
    at: u64,
}

impl WhiteNoise {
    fn next(&mut self) -> f64 {
        self.at += 1;
        (self.seed.unit(self.at) - 0.5) * 12.0_f64.sqrt()
    }
}

/// The vocal folds: pulses as the derivative of the flow, which is what the lips radiate.
struct Glottis {
    phase: f64,
    open: f64,
    period_scale: f64,
    strength: f64,
    jitter: f64,
    shimmer: f64,
    seed: Seed,
    period: u64,
    soft: f64,
    softness: f64,
}

impl Glottis {
    fn new(voice: &Voice, seed: Seed) -> Self {
        let softness = 1.0 - exp(-std::f64::consts::TAU * voice.edge / f64::from(SAMPLE_RATE));
        Glottis {
            phase: 0.0,
            open: voice.open,
            period_scale: 1.0,
            strength: 1.0,
            jitter: voice.jitter,
            shimmer: voice.shimmer,
            seed,
            period: 0,
            soft: 0.0,
            softness,
        }
    }

    /// Returns the next sample, and whether the folds are open.
    fn next(&mut self, pitch: f64) -> (f64, bool) {
        let step = pitch * self.period_scale / f64::from(SAMPLE_RATE);
        self.phase += step;
        if self.phase >= 1.0 {
            self.phase -= 1.0;
            self.period += 1;
            // Periods of a human voice vary in length and strength.
            self.period_scale = 1.0 + self.jitter * (2.0 * self.seed.unit(2 * self.period) - 1.0);
            self.strength = 1.0 + self.shimmer * (2.0 * self.seed.unit(2 * self.period + 1) - 1.0);
        }
        let is_open = self.phase < self.open;
        let mut flow = 0.0;
        if is_open {
            let t = self.phase / self.open;
            flow = 2.0 * t - 3.0 * t * t; // ends at -1: the folds close abruptly
        }
        // Spread that jump over two samples, so that it does not alias into the audible band.
        let from_jump = (self.phase - self.open) / step;
        if (0.0..1.0).contains(&from_jump) {
            flow -= 0.5 * (1.0 - from_jump) * (1.0 - from_jump);
        } else if (-1.0..0.0).contains(&from_jump) {
            flow += 0.5 * (1.0 + from_jump) * (1.0 + from_jump);
        }
        self.soft += self.softness * (self.strength * flow - self.soft);
        (self.soft, is_open)
    }
}

/// Renders the frames as mono samples at [`SAMPLE_RATE`] with normalised loudness.
pub(crate) fn render(frames: &[Frame], voice: &Voice, seed: Seed) -> Vec<f32> {
    let mut samples = waveform(frames, voice, seed);
    if let Some(channel) = &voice.channel {
        channel::apply(&mut samples, channel);
    }
    level(&mut samples, frames);
    let mut room = WhiteNoise { seed: seed.derive("room"), at: 0 };
    let floor = decibels(voice.channel.map_or(STUDIO_NOISE, |channel| channel.noise));
    samples.iter().map(|sample| (sample + floor * room.next()) as f32).collect()
}

fn waveform(frames: &[Frame], voice: &Voice, seed: Seed) -> Vec<f64> {
    let mut glottis = Glottis::new(voice, seed.derive("glottis"));
    let mut breath = WhiteNoise { seed: seed.derive("breath"), at: 0 };
    let mut friction = WhiteNoise { seed: seed.derive("friction"), at: 0 };
    let mut lower = [Resonator::default(); 3];
    let mut upper = [Resonator::default(); UPPER_FORMANTS.len()];
    for (resonator, (centre, width)) in upper.iter_mut().zip(UPPER_FORMANTS) {
        resonator.tune((voice.tract * centre).min(10_400.0), voice.tract * width);
    }
    let (mut pole, mut zero, mut hum) = (Resonator::default(), Resonator::default(), Resonator::default());
    pole.tune(NASAL_POLE, 100.0);
    // The walls of a closed mouth pass little but the fundamental.
    hum.tune(1.05 * voice.pitch, 90.0);
    let mut bands = [BandPass::default(); 2];
    let mut hiss = [0.0; 3];
    let mut last_breath = 0.0;

    let mut samples = Vec::with_capacity(frames.len() * FRAME);
    let mut levels = [0.0; 5];
    for frame in frames {
        for (n, resonator) in lower.iter_mut().enumerate() {
            resonator.tune(frame.formants[n], frame.widths[n]);
        }
        zero.tune(frame.zero, 100.0);
        for (n, band) in bands.iter_mut().enumerate() {
            band.tune(frame.noise_centre[n].max(200.0), frame.noise_width[n].max(100.0));
        }
        // Levels change linearly within the frame: a step would be audible as a click.
        let target = [frame.voice, frame.hum, frame.breath, frame.noise[0], frame.noise[1]];
        let slope: [f64; 5] = std::array::from_fn(|n| (target[n] - levels[n]) / FRAME as f64);
        for _ in 0..FRAME {
            for n in 0..5 {
                levels[n] += slope[n];
            }
            let (pulse, open) = glottis.next(frame.pitch);
            let white = breath.next();
            // Breath passes while the folds are open; radiation emphasises high frequencies.
            let breath_noise = (white - 0.6 * last_breath) * if open || levels[0] == 0.0 { 1.0 } else { 0.4 };
            last_breath = white;
            let source = VOICE_GAIN * levels[0] * pulse + BREATH_GAIN * levels[2] * breath_noise;
            let mut tract = pole.pass(zero.pass_inverse(source));
            for resonator in &mut lower {
                tract = resonator.pass(tract);
            }
            for resonator in &mut upper {
                tract = resonator.pass(tract);
            }
            hiss[2] = hiss[1];
            hiss[1] = hiss[0];
            // The voice modulates the friction of z and v.
            hiss[0] = friction.next() * if open || levels[0] + levels[1] < 0.02 { 1.0 } else { 0.45 };
            let friction_noise =
                levels[3] * bands[0].pass(hiss[0], hiss[2]) + levels[4] * bands[1].pass(hiss[0], hiss[2]);
            samples.push(tract + HUM_GAIN * hum.pass(levels[1] * pulse) + friction_noise);
        }
        levels = target;
    }
    samples
}

/// Scales speech to [`LOUDNESS`], or less if its peaks would exceed [`CEILING`].
fn level(samples: &mut [f64], frames: &[Frame]) {
    let is_speech =
        |frame: &Frame| frame.voice + frame.hum + frame.breath + frame.noise[0] + frame.noise[1] > 0.1;
    let (mut power, mut count, mut peak) = (0.0, 0.0, 0.0_f64);
    for (frame, samples) in frames.iter().zip(samples.chunks(FRAME)) {
        for sample in samples {
            peak = peak.max(sample.abs());
            if is_speech(frame) {
                power += sample * sample;
                count += 1.0;
            }
        }
    }
    if count == 0.0 || power == 0.0 {
        return;
    }
    let gain = (decibels(LOUDNESS) / (power / count).sqrt()).min(CEILING / peak);
    for sample in samples {
        *sample *= gain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::sine;

    #[test]
    fn band_noise_keeps_its_power() {
        for (centre, width) in [(1000.0, 300.0), (5600.0, 900.0), (7600.0, 1800.0)] {
            let mut band = BandPass::default();
            band.tune(centre, width);
            let mut white = WhiteNoise { seed: Seed::new(3), at: 0 };
            let (mut one, mut two, mut power) = (0.0, 0.0, 0.0);
            for _ in 0..40_000 {
                let input = white.next();
                let output = band.pass(input, two);
                (two, one) = (one, input);
                power += output * output / 40_000.0;
            }
            assert!((0.6..1.5).contains(&power), "{centre} Hz: {power}");
        }
    }

    #[test]
    fn a_zero_on_the_pole_cancels_it() {
        let (mut pole, mut zero) = (Resonator::default(), Resonator::default());
        pole.tune(270.0, 100.0);
        zero.tune(270.0, 100.0);
        for i in 0..500 {
            let input = sine(f64::from(i) * 0.013);
            assert!((pole.pass(zero.pass_inverse(input)) - input).abs() < 1e-9);
        }
    }

    /// Levels in the inventory are relative to a vowel's, which requires that a vowel has an RMS near 1.
    #[test]
    fn vowel_breath_and_hum_have_unit_level() {
        let still = Frame {
            pitch: 0.0,
            formants: [0.0; 3],
            widths: [75.0, 90.0, 150.0],
            voice: 0.0,
            hum: 0.0,
            breath: 0.0,
            zero: NASAL_POLE,
            noise: [0.0; 2],
            noise_centre: [3000.0; 2],
            noise_width: [1000.0; 2],
        };
        let rms = |frame: Frame, voice: &Voice| {
            let samples = waveform(&[frame; 160], voice, Seed::new(2));
            let steady = &samples[2000..];
            (steady.iter().map(|sample| sample * sample).sum::<f64>() / steady.len() as f64).sqrt()
        };
        let mut product = [1.0, 1.0, 1.0];
        let mut count = 0.0;
        for voice in &crate::VOICES {
            for name in ["AA", "IY", "UW", "EH", "a", "A"] {
                let traits = crate::Phoneme::from_name(name).unwrap().traits();
                let formants = traits.formants.map(|formant| voice.tract * formant);
                let still = Frame { pitch: voice.pitch, formants, ..still };
                let levels = [
                    rms(Frame { voice: 1.0, ..still }, voice),
                    rms(Frame { breath: 1.0, ..still }, voice),
                    rms(Frame { hum: 1.0, ..still }, voice),
                ];
                println!(
                    "{} {name}: voice {:.2} breath {:.2} hum {:.2}",
                    voice.name, levels[0], levels[1], levels[2]
                );
                assert!((0.35..2.5).contains(&levels[0]), "{} {name}: {levels:?}", voice.name);
                for n in 0..3 {
                    product[n] *= levels[n];
                }
                count += 1.0;
            }
        }
        // The geometric mean over voices and vowels.
        let mean = product.map(|product: f64| product.powf(1.0 / count));
        println!("{mean:?}");
        assert!(mean.iter().all(|mean| (0.8..1.25).contains(mean)), "voice, breath, hum: {mean:?}");
    }
}

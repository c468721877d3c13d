//! The synthesiser: a glottis, breath and friction through resonators, after Klatt (1980).
//!
//! The voice and the breath pass a cascade of formants with a nasal pole and zero; friction passes
//! two bands of its own beside it. Only `+ - * /` and square roots are used (see `portable`), each
//! in a fixed order, so that a seed gives the same samples on every machine.

use myxtts_run::seed::Seed;

use super::channel::record;
use super::portable::{cosine, decibels, exp};
use super::tracks::{FRAME, Frame, NASAL_POLE, SAMPLE_RATE};
use super::voice::Voice;

/// Resonances above the third: they colour a voice, they do not tell words apart.
const UPPER: [(f64, f64); 5] =
    [(3500.0, 200.0), (4400.0, 260.0), (5400.0, 350.0), (6400.0, 450.0), (7400.0, 550.0)];
/// Brings a vowel to an RMS near 1, breath and hum to a like measure.
const VOICE_GAIN: f64 = 1.42;
const BREATH_GAIN: f64 = 0.85;
const HUM_GAIN: f64 = 2.3;
/// Loudness of the speech within an utterance: RMS of what is not a pause, in dB below full scale.
const LOUDNESS: f64 = -21.0;
/// No sample comes nearer to full scale.
const CEILING: f64 = 0.89;
/// RMS of the noise in the studio of voices without a channel, in dB below full scale.
const ROOM: f64 = -72.0;

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

/// A band that turns white noise of RMS 1 into band noise of RMS 1.
#[derive(Clone, Copy, Default)]
struct Band {
    gain: f64,
    b: f64,
    c: f64,
    last: f64,
    older: f64,
}

impl Band {
    fn tune(&mut self, centre: f64, width: f64) {
        let rate = f64::from(SAMPLE_RATE);
        let radius = exp(-std::f64::consts::PI * width / rate);
        self.c = -radius * radius;
        self.b = 2.0 * radius * cosine((centre / rate).min(0.47));
        // (1 - r^2)/2 makes the peak 1; the root undoes the narrowing to the band's share of power.
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
struct White {
    seed: Seed,
    at: u64,
}

impl White {
    fn next(&mut self) -> f64 {
        self.at += 1;
        (self.seed.unit(self.at) - 0.5) * 12.0_f64.sqrt()
    }
}

/// The vocal folds: pulses of flow, as its derivative (what radiates from lips).
struct Glottis {
    phase: f64,
    open: f64,
    wobble: f64,
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
            wobble: 1.0,
            strength: 1.0,
            jitter: voice.jitter,
            shimmer: voice.shimmer,
            seed,
            period: 0,
            soft: 0.0,
            softness,
        }
    }

    /// The next sample, and whether the folds are open.
    fn next(&mut self, pitch: f64) -> (f64, bool) {
        let step = pitch * self.wobble / f64::from(SAMPLE_RATE);
        self.phase += step;
        if self.phase >= 1.0 {
            self.phase -= 1.0;
            self.period += 1;
            // No two periods of a throat are equal, neither in time nor in strength.
            self.wobble = 1.0 + self.jitter * (2.0 * self.seed.unit(2 * self.period) - 1.0);
            self.strength = 1.0 + self.shimmer * (2.0 * self.seed.unit(2 * self.period + 1) - 1.0);
        }
        let is_open = self.phase < self.open;
        let mut flow = 0.0;
        if is_open {
            let t = self.phase / self.open;
            flow = 2.0 * t - 3.0 * t * t; // ends at -1: the folds slap shut
        }
        // That jump, spread over two samples, so that it does not alias into the audible band.
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

/// Renders the frames: mono, at [`SAMPLE_RATE`], levelled.
pub(crate) fn render(frames: &[Frame], voice: &Voice, seed: Seed) -> Vec<f32> {
    let mut sound = waveform(frames, voice, seed);
    if let Some(channel) = &voice.channel {
        record(&mut sound, channel);
    }
    level(&mut sound, frames);
    let mut room = White { seed: seed.derive("room"), at: 0 };
    let floor = decibels(voice.channel.map_or(ROOM, |channel| channel.noise));
    sound.iter().map(|sample| (sample + floor * room.next()) as f32).collect()
}

fn waveform(frames: &[Frame], voice: &Voice, seed: Seed) -> Vec<f64> {
    let mut glottis = Glottis::new(voice, seed.derive("glottis"));
    let mut breath = White { seed: seed.derive("breath"), at: 0 };
    let mut friction = White { seed: seed.derive("friction"), at: 0 };
    let mut lower = [Resonator::default(); 3];
    let mut upper = [Resonator::default(); UPPER.len()];
    for (resonator, (centre, width)) in upper.iter_mut().zip(UPPER) {
        resonator.tune((voice.tract * centre).min(10_400.0), voice.tract * width);
    }
    let (mut pole, mut zero, mut hum) = (Resonator::default(), Resonator::default(), Resonator::default());
    pole.tune(NASAL_POLE, 100.0);
    // The walls of a closed mouth pass little but the fundamental.
    hum.tune(1.05 * voice.pitch, 90.0);
    let mut bands = [Band::default(); 2];
    let mut hiss = [0.0; 3];
    let mut last_breath = 0.0;

    let mut sound = Vec::with_capacity(frames.len() * FRAME);
    let mut levels = [0.0; 5];
    for frame in frames {
        for (n, resonator) in lower.iter_mut().enumerate() {
            resonator.tune(frame.formants[n], frame.widths[n]);
        }
        zero.tune(frame.zero, 100.0);
        for (n, band) in bands.iter_mut().enumerate() {
            band.tune(frame.noise_centre[n].max(200.0), frame.noise_width[n].max(100.0));
        }
        // Levels move evenly through the frame: a step would be heard as a click.
        let aim = [frame.voice, frame.hum, frame.breath, frame.noise[0], frame.noise[1]];
        let slope: [f64; 5] = std::array::from_fn(|n| (aim[n] - levels[n]) / FRAME as f64);
        for _ in 0..FRAME {
            for n in 0..5 {
                levels[n] += slope[n];
            }
            let (pulse, open) = glottis.next(frame.pitch);
            let white = breath.next();
            // Breath passes where the folds are open; radiation favours its high end.
            let blown = (white - 0.6 * last_breath) * if open || levels[0] == 0.0 { 1.0 } else { 0.4 };
            last_breath = white;
            let source = VOICE_GAIN * levels[0] * pulse + BREATH_GAIN * levels[2] * blown;
            let mut tract = pole.pass(zero.pass_inverse(source));
            for resonator in &mut lower {
                tract = resonator.pass(tract);
            }
            for resonator in &mut upper {
                tract = resonator.pass(tract);
            }
            hiss[2] = hiss[1];
            hiss[1] = hiss[0];
            // The voice chops the friction of z and v.
            hiss[0] = friction.next() * if open || levels[0] + levels[1] < 0.02 { 1.0 } else { 0.45 };
            let rustle =
                levels[3] * bands[0].pass(hiss[0], hiss[2]) + levels[4] * bands[1].pass(hiss[0], hiss[2]);
            sound.push(tract + HUM_GAIN * hum.pass(levels[1] * pulse) + rustle);
        }
        levels = aim;
    }
    sound
}

/// Brings speech to [`LOUDNESS`], and lower where its peaks would pass [`CEILING`].
fn level(sound: &mut [f64], frames: &[Frame]) {
    let spoken =
        |frame: &Frame| frame.voice + frame.hum + frame.breath + frame.noise[0] + frame.noise[1] > 0.1;
    let (mut power, mut count, mut peak) = (0.0, 0.0, 0.0_f64);
    for (frame, samples) in frames.iter().zip(sound.chunks(FRAME)) {
        for sample in samples {
            peak = peak.max(sample.abs());
            if spoken(frame) {
                power += sample * sample;
                count += 1.0;
            }
        }
    }
    if count == 0.0 || power == 0.0 {
        return;
    }
    let gain = (decibels(LOUDNESS) / (power / count).sqrt()).min(CEILING / peak);
    for sample in sound {
        *sample *= gain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::sine;

    #[test]
    fn a_band_of_noise_keeps_its_power() {
        for (centre, width) in [(1000.0, 300.0), (5600.0, 900.0), (7600.0, 1800.0)] {
            let mut band = Band::default();
            band.tune(centre, width);
            let mut white = White { seed: Seed::new(3), at: 0 };
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
    fn zero_on_the_pole_cancels_it() {
        let (mut pole, mut zero) = (Resonator::default(), Resonator::default());
        pole.tune(270.0, 100.0);
        zero.tune(270.0, 100.0);
        for i in 0..500 {
            let input = sine(f64::from(i) * 0.013);
            assert!((pole.pass(zero.pass_inverse(input)) - input).abs() < 1e-9);
        }
    }

    /// Levels in the inventory are relative to a vowel's: that holds only if a vowel has an RMS near 1.
    #[test]
    fn a_vowel_a_breath_and_a_hum_have_the_level_they_claim() {
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
            let sound = waveform(&[frame; 160], voice, Seed::new(2));
            let steady = &sound[2000..];
            (steady.iter().map(|sample| sample * sample).sum::<f64>() / steady.len() as f64).sqrt()
        };
        let mut product = [1.0, 1.0, 1.0];
        let mut count = 0.0;
        for voice in &crate::VOICES {
            for name in ["AA", "IY", "UW", "EH", "a", "A"] {
                let traits = crate::Phoneme::named(name).unwrap().traits();
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

//! The recording channel of a voice: room echoes, then the frequency response of a microphone. First-order filters and
//! delays, in a fixed order (see `portable`).

use super::portable::{decibels, exp};
use super::tracks::SAMPLE_RATE;
use super::voice::Channel;

/// Frequency around which the tilt turns, in Hz.
const TILT_FREQUENCY: f64 = 1000.0;
/// Delays of the echoes relative to the first; the ratios have no audible common divisor.
const DELAY_RATIOS: [f64; 3] = [1.0, 1.37, 1.83];
/// Cutoff of the low-pass in the echoes in Hz: walls absorb high frequencies first.
const ECHO_CUTOFF: f64 = 3000.0;

/// A first-order low-pass; the input minus its output is the high-pass.
struct LowPass {
    share: f64,
    state: f64,
}

impl LowPass {
    fn new(edge: f64) -> Self {
        LowPass { share: 1.0 - exp(-std::f64::consts::TAU * edge / f64::from(SAMPLE_RATE)), state: 0.0 }
    }

    fn pass(&mut self, input: f64) -> f64 {
        self.state += self.share * (input - self.state);
        self.state
    }
}

/// A delay line with feedback.
struct Echo {
    line: Vec<f64>,
    at: usize,
    damping: LowPass,
}

impl Echo {
    fn new(seconds: f64) -> Self {
        let samples = ((seconds * f64::from(SAMPLE_RATE)) as usize).max(1);
        Echo { line: vec![0.0; samples], at: 0, damping: LowPass::new(ECHO_CUTOFF) }
    }

    fn pass(&mut self, input: f64, level: f64) -> f64 {
        let delayed = self.line[self.at];
        self.line[self.at] = input + level * self.damping.pass(delayed);
        self.at = if self.at + 1 == self.line.len() { 0 } else { self.at + 1 };
        delayed
    }
}

/// Applies the channel to `samples`, except for the noise, which the caller adds.
pub(crate) fn apply(samples: &mut [f64], channel: &Channel) {
    let mut echoes = DELAY_RATIOS.map(|delay| Echo::new(delay * channel.room));
    // The stronger the echo, the longer the room rings.
    let (level, ringing) = (channel.echo, (0.5 + channel.echo).min(0.85));
    let (mut rumble, mut tilt) = (LowPass::new(channel.low), LowPass::new(TILT_FREQUENCY));
    let mut tops = [LowPass::new(channel.high), LowPass::new(channel.high)];
    let gain = decibels(channel.tilt);
    for sample in samples {
        let direct = *sample;
        let mut output = direct;
        for echo in &mut echoes {
            output += level / 3.0 * echo.pass(direct, ringing);
        }
        output -= rumble.pass(output);
        let below = tilt.pass(output);
        output = below + gain * (output - below);
        for top in &mut tops {
            output = top.pass(output);
        }
        *sample = output;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::sine;

    const PLAIN: Channel =
        Channel { noise: -60.0, low: 50.0, high: 12_000.0, tilt: 0.0, echo: 0.0, room: 0.02 };

    /// Power of a tone after the channel, in dB.
    fn response(channel: &Channel, frequency: f64) -> f64 {
        let mut tone: Vec<f64> =
            (0..22_050).map(|i| sine(f64::from(i) * frequency / f64::from(SAMPLE_RATE))).collect();
        apply(&mut tone, channel);
        let steady = &tone[11_025..];
        10.0 * (2.0 * steady.iter().map(|x| x * x).sum::<f64>() / steady.len() as f64).log10()
    }

    #[test]
    fn the_microphone_follows_its_settings() {
        assert!(response(&PLAIN, 20.0) < -6.0 && response(&PLAIN, 400.0).abs() < 1.0);
        let bright = Channel { tilt: 6.0, ..PLAIN };
        assert!((response(&bright, 5000.0) - response(&PLAIN, 5000.0) - 6.0).abs() < 1.0);
        let dull = Channel { high: 6000.0, ..PLAIN };
        assert!(response(&dull, 8000.0) < response(&PLAIN, 8000.0) - 2.0);
    }

    #[test]
    fn an_echo_decays() {
        let mut click = vec![0.0; 44_100];
        click[0] = 1.0;
        apply(&mut click, &Channel { echo: 0.35, room: 0.03, ..PLAIN });
        let power = |part: &[f64]| part.iter().map(|x| x * x).sum::<f64>();
        assert!(power(&click[600..4000]) > 1e-4);
        assert!(power(&click[33_000..]) < 1e-6, "{}", power(&click[33_000..]));
    }
}

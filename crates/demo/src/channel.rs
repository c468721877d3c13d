//! The way of a voice into its file: echoes of a room, then what a microphone makes of low and high.
//! First-order filters and delays, in a fixed order (see `portable`).

use super::portable::{decibels, exp};
use super::tracks::SAMPLE_RATE;
use super::voice::Channel;

/// Where the tilt turns, in Hz.
const HINGE: f64 = 1000.0;
/// Delays of the echoes over the first one's: no two have a common divisor worth hearing.
const DELAYS: [f64; 3] = [1.0, 1.37, 1.83];
/// Walls take the high end of an echo first, in Hz.
const WALLS: f64 = 3000.0;

/// A first-order low-pass; what it leaves out is the high-pass.
struct Low {
    share: f64,
    state: f64,
}

impl Low {
    fn new(edge: f64) -> Self {
        Low { share: 1.0 - exp(-std::f64::consts::TAU * edge / f64::from(SAMPLE_RATE)), state: 0.0 }
    }

    fn pass(&mut self, input: f64) -> f64 {
        self.state += self.share * (input - self.state);
        self.state
    }
}

/// A delay that feeds itself.
struct Echo {
    line: Vec<f64>,
    at: usize,
    walls: Low,
}

impl Echo {
    fn new(seconds: f64) -> Self {
        let samples = ((seconds * f64::from(SAMPLE_RATE)) as usize).max(1);
        Echo { line: vec![0.0; samples], at: 0, walls: Low::new(WALLS) }
    }

    fn pass(&mut self, input: f64, level: f64) -> f64 {
        let heard = self.line[self.at];
        self.line[self.at] = input + level * self.walls.pass(heard);
        self.at = if self.at + 1 == self.line.len() { 0 } else { self.at + 1 };
        heard
    }
}

/// Changes `sound` to what is recorded of it; noise is the caller's.
pub(crate) fn record(sound: &mut [f64], channel: &Channel) {
    let mut echoes = DELAYS.map(|delay| Echo::new(delay * channel.room));
    // The more is heard of a room, the longer it rings.
    let (level, ringing) = (channel.echo, (0.5 + channel.echo).min(0.85));
    let (mut rumble, mut hinge) = (Low::new(channel.low), Low::new(HINGE));
    let mut tops = [Low::new(channel.high), Low::new(channel.high)];
    let lift = decibels(channel.tilt);
    for sample in sound {
        let direct = *sample;
        let mut heard = direct;
        for echo in &mut echoes {
            heard += level / 3.0 * echo.pass(direct, ringing);
        }
        heard -= rumble.pass(heard);
        let below = hinge.pass(heard);
        heard = below + lift * (heard - below);
        for top in &mut tops {
            heard = top.pass(heard);
        }
        *sample = heard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::sine;

    const PLAIN: Channel =
        Channel { noise: -60.0, low: 50.0, high: 12_000.0, tilt: 0.0, echo: 0.0, room: 0.02 };

    /// Power of what is left of a tone, in dB.
    fn response(channel: &Channel, frequency: f64) -> f64 {
        let mut tone: Vec<f64> =
            (0..22_050).map(|i| sine(f64::from(i) * frequency / f64::from(SAMPLE_RATE))).collect();
        record(&mut tone, channel);
        let steady = &tone[11_025..];
        10.0 * (2.0 * steady.iter().map(|x| x * x).sum::<f64>() / steady.len() as f64).log10()
    }

    #[test]
    fn a_microphone_hears_what_its_settings_say() {
        assert!(response(&PLAIN, 20.0) < -6.0 && response(&PLAIN, 400.0).abs() < 1.0);
        let bright = Channel { tilt: 6.0, ..PLAIN };
        assert!((response(&bright, 5000.0) - response(&PLAIN, 5000.0) - 6.0).abs() < 1.0);
        let dull = Channel { high: 6000.0, ..PLAIN };
        assert!(response(&dull, 8000.0) < response(&PLAIN, 8000.0) - 2.0);
    }

    #[test]
    fn an_echo_dies_away() {
        let mut click = vec![0.0; 44_100];
        click[0] = 1.0;
        record(&mut click, &Channel { echo: 0.35, room: 0.03, ..PLAIN });
        let power = |part: &[f64]| part.iter().map(|x| x * x).sum::<f64>();
        assert!(power(&click[600..4000]) > 1e-4);
        assert!(power(&click[33_000..]) < 1e-6, "{}", power(&click[33_000..]));
    }
}

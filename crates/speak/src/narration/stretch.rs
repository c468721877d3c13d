//! Faster or slower speech with the pitch it had: overlapping windows, each moved to where it fits what came before (WSOLA).
//!
//! The other way, that of XTTS's own code, stretches the states before the decoder: it was not chosen because it blurs short
//! sounds, and models without a decoder do not have it.

use std::ops::RangeInclusive;

/// Speeds that still sound like speech.
pub const SPEEDS: RangeInclusive<f64> = 0.5..=2.0;

/// Windows of 30 ms hold two periods of the deepest voices.
const WINDOW_MS: usize = 30;

/// How far a window is moved to fit, in each direction: a period of such a voice.
const SEARCH_MS: usize = 10;

/// Changes the speed of samples that come in any portions.
#[derive(Debug)]
pub struct Stretch {
    speed: f64,
    /// Half a window: what every window adds.
    hop: usize,
    search: usize,
    /// The rising half of a window.
    rise: Vec<f32>,
    /// Input from sample `first` on.
    input: Vec<f32>,
    first: usize,
    /// Windows written.
    windows: usize,
    /// Where the last window began in the input.
    last: usize,
    given: usize,
}

impl Stretch {
    /// `speed` 2 halves the length. What is outside [`SPEEDS`] is taken for the nearest that is inside.
    pub fn new(speed: f64, rate: u32) -> Stretch {
        let hop = (rate as usize * WINDOW_MS / 2000).max(1);
        let angle = |i: usize| (i as f64 + 0.5) / hop as f64 * std::f64::consts::FRAC_PI_2;
        Stretch {
            speed: if speed.is_finite() { speed.clamp(*SPEEDS.start(), *SPEEDS.end()) } else { 1.0 },
            hop,
            search: rate as usize * SEARCH_MS / 1000,
            rise: (0..hop).map(|i| angle(i).sin().powi(2) as f32).collect(),
            input: Vec::new(),
            first: 0,
            windows: 0,
            last: 0,
            given: 0,
        }
    }

    /// Adds samples; what is certain goes to `out`.
    pub fn add(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        if self.speed == 1.0 {
            out.extend_from_slice(samples);
            return;
        }
        self.input.extend_from_slice(samples);
        let end = self.first + self.input.len();
        while self.needs() <= end {
            self.window(out);
        }
        self.forget();
    }

    /// Gives what is left; what follows is a new sound.
    pub fn end(&mut self, out: &mut Vec<f32>) {
        if self.speed == 1.0 {
            return;
        }
        let length = self.first + self.input.len();
        let wanted = (length as f64 / self.speed).round() as usize;
        let start = out.len();
        let before = self.given;
        // Behind the end there is silence.
        while self.given < wanted {
            self.input.resize(self.needs().max(length) - self.first, 0.0);
            self.window(out);
        }
        out.truncate(start + (wanted - before));
        *self = Stretch {
            input: Vec::new(),
            first: 0,
            windows: 0,
            last: 0,
            given: 0,
            rise: std::mem::take(&mut self.rise),
            ..*self
        };
    }

    /// Where the next window stands in the input before it is moved.
    fn wanted(&self) -> usize {
        ((self.windows * self.hop) as f64 * self.speed).round() as usize
    }

    /// The end of the input that the next window needs.
    fn needs(&self) -> usize {
        (self.wanted() + self.search).max(self.last + self.hop) + 2 * self.hop
    }

    /// Adds half a window of output: the end of the last window into the start of the next.
    fn window(&mut self, out: &mut Vec<f32>) {
        if self.windows == 0 {
            // The first begins at full volume.
            out.extend_from_slice(&self.input[..self.hop]);
        } else {
            let place = self.best();
            let falling = &self.input[self.last + self.hop - self.first..][..self.hop];
            let rising = &self.input[place - self.first..][..self.hop];
            let both = falling.iter().zip(rising).zip(&self.rise);
            out.extend(both.map(|((&old, &new), &rise)| old * (1.0 - rise) + new * rise));
            self.last = place;
        }
        self.windows += 1;
        self.given += self.hop;
    }

    /// Where, near the wanted place, the input is most like what would follow the last window.
    fn best(&self) -> usize {
        let wanted = self.wanted();
        let follows = &self.input[self.last + self.hop - self.first..][..self.hop];
        let from = wanted.saturating_sub(self.search).max(self.first);
        let places = from..=wanted + self.search;
        let likeness = |place: usize| {
            let there = &self.input[place - self.first..][..self.hop];
            let (mut product, mut energy) = (0.0f32, 1e-9f32);
            for (a, b) in follows.iter().zip(there) {
                product += a * b;
                energy += b * b;
            }
            product / energy.sqrt()
        };
        // The nearest of equals: silence stays where it is.
        let score = |place: usize| (likeness(place), usize::MAX - place.abs_diff(wanted));
        let better = |a: &usize, b: &usize| {
            let (a, b) = (score(*a), score(*b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        places.max_by(better).unwrap_or(wanted)
    }

    /// Lets go of input that no window reaches back to.
    fn forget(&mut self) {
        let needed = self.wanted().saturating_sub(self.search).min(self.last + self.hop);
        let gone = needed.saturating_sub(self.first).min(self.input.len());
        self.input.drain(..gone);
        self.first += gone;
    }
}

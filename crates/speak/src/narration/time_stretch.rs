//! Changes the speed of speech without changing its pitch: overlapping windows, each shifted to match the preceding one
//! (WSOLA).
//!
//! XTTS's own code stretches the latents before the decoder instead. That blurs short sounds and needs a decoder.

use std::ops::RangeInclusive;

/// Supported speed factors.
pub const SPEEDS: RangeInclusive<f64> = 0.5..=2.0;

/// Window length; 30 ms hold two periods of the lowest-pitched voices.
const WINDOW_MS: usize = 30;

/// Largest shift of a window in each direction: one period of such a voice.
const SEARCH_MS: usize = 10;

/// Changes the speed of samples that arrive in chunks of any size.
#[derive(Debug)]
pub struct TimeStretch {
    speed: f64,
    /// Half a window: the output of each window.
    hop: usize,
    search: usize,
    /// The rising half of a window.
    rise: Vec<f32>,
    /// Input samples from index `first` on.
    input: Vec<f32>,
    first: usize,
    /// Number of windows written.
    windows: usize,
    /// Start of the last window in the input.
    last: usize,
    /// Number of samples written.
    written: usize,
}

impl TimeStretch {
    /// `speed` 2 halves the duration. Values outside [`SPEEDS`] are clamped.
    pub fn new(speed: f64, rate: u32) -> TimeStretch {
        let hop = (rate as usize * WINDOW_MS / 2000).max(1);
        let angle = |i: usize| (i as f64 + 0.5) / hop as f64 * std::f64::consts::FRAC_PI_2;
        TimeStretch {
            speed: if speed.is_finite() { speed.clamp(*SPEEDS.start(), *SPEEDS.end()) } else { 1.0 },
            hop,
            search: rate as usize * SEARCH_MS / 1000,
            rise: (0..hop).map(|i| angle(i).sin().powi(2) as f32).collect(),
            input: Vec::new(),
            first: 0,
            windows: 0,
            last: 0,
            written: 0,
        }
    }

    /// Adds samples; final samples go to `out`.
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
        self.drop_used();
    }

    /// Writes the rest; later samples start a new recording.
    pub fn end(&mut self, out: &mut Vec<f32>) {
        if self.speed == 1.0 {
            return;
        }
        let length = self.first + self.input.len();
        let wanted = (length as f64 / self.speed).round() as usize;
        let start = out.len();
        let before = self.written;
        // The input is padded with silence.
        while self.written < wanted {
            self.input.resize(self.needs().max(length) - self.first, 0.0);
            self.window(out);
        }
        out.truncate(start + (wanted - before));
        *self = TimeStretch {
            input: Vec::new(),
            first: 0,
            windows: 0,
            last: 0,
            written: 0,
            rise: std::mem::take(&mut self.rise),
            ..*self
        };
    }

    /// Start of the next window in the input before it is shifted.
    fn wanted(&self) -> usize {
        ((self.windows * self.hop) as f64 * self.speed).round() as usize
    }

    /// End of the input that the next window needs.
    fn needs(&self) -> usize {
        (self.wanted() + self.search).max(self.last + self.hop) + 2 * self.hop
    }

    /// Writes half a window: a cross-fade from the end of the last window to the start of the next.
    fn window(&mut self, out: &mut Vec<f32>) {
        if self.windows == 0 {
            // The first window is not faded in.
            out.extend_from_slice(&self.input[..self.hop]);
        } else {
            let start = self.best();
            let falling = &self.input[self.last + self.hop - self.first..][..self.hop];
            let rising = &self.input[start - self.first..][..self.hop];
            let both = falling.iter().zip(rising).zip(&self.rise);
            out.extend(both.map(|((&old, &new), &rise)| old * (1.0 - rise) + new * rise));
            self.last = start;
        }
        self.windows += 1;
        self.written += self.hop;
    }

    /// The start near the wanted one where the input best matches the continuation of the last window.
    fn best(&self) -> usize {
        let wanted = self.wanted();
        let follows = &self.input[self.last + self.hop - self.first..][..self.hop];
        let from = wanted.saturating_sub(self.search).max(self.first);
        let starts = from..=wanted + self.search;
        let similarity = |start: usize| {
            let there = &self.input[start - self.first..][..self.hop];
            let (mut product, mut energy) = (0.0f32, 1e-9f32);
            for (a, b) in follows.iter().zip(there) {
                product += a * b;
                energy += b * b;
            }
            product / energy.sqrt()
        };
        // The nearest of equals, so that silence is not shifted.
        let score = |start: usize| (similarity(start), usize::MAX - start.abs_diff(wanted));
        let better = |a: &usize, b: &usize| {
            let (a, b) = (score(*a), score(*b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        starts.max_by(better).unwrap_or(wanted)
    }

    /// Drops input that no later window needs.
    fn drop_used(&mut self) {
        let needed = self.wanted().saturating_sub(self.search).min(self.last + self.hop);
        let gone = needed.saturating_sub(self.first).min(self.input.len());
        self.input.drain(..gone);
        self.first += gone;
    }
}

//! Where the loss is going: a word for the progress line.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A slope is one when it is this many times its own uncertainty. Neighbouring losses are not independent
/// (batches of one length come together), so more than the usual 2 is asked for.
const CLEAR: f64 = 4.0;

/// The last losses and the line through them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    window: usize,
    recent: VecDeque<f64>,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Down.
    Falling,
    /// No way that could be told from noise.
    Flat,
    /// Up.
    Rising,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Falling => "falling",
            Direction::Flat => "flat",
            Direction::Rising => "rising",
        })
    }
}

impl Trend {
    /// Looks at the last `window` losses.
    pub fn new(window: usize) -> Self {
        assert!(window >= 8, "a line through fewer than eight losses says nothing");
        Trend { window, recent: VecDeque::with_capacity(window) }
    }

    /// Takes the loss of a step; one that is no number has no place on a line.
    pub fn observe(&mut self, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        if self.recent.len() == self.window {
            self.recent.pop_front();
        }
        self.recent.push_back(loss);
    }

    /// The mean of the window: the loss to show, less jumpy than the last one.
    pub fn mean(&self) -> Option<f64> {
        let n = self.recent.len();
        (n > 0).then(|| self.recent.iter().sum::<f64>() / n as f64)
    }

    /// Change per step, by least squares; `None` where there are fewer than eight losses.
    pub fn slope(&self) -> Option<f64> {
        self.line().map(|(slope, _)| slope)
    }

    /// Which way the loss goes.
    pub fn direction(&self) -> Direction {
        match self.line() {
            Some((slope, error)) if slope < -CLEAR * error => Direction::Falling,
            Some((slope, error)) if slope > CLEAR * error => Direction::Rising,
            _ => Direction::Flat,
        }
    }

    /// The slope and its standard error.
    fn line(&self) -> Option<(f64, f64)> {
        let n = self.recent.len();
        let mean = self.mean().filter(|_| n >= 8)?;
        let middle = (n - 1) as f64 / 2.0;
        let (mut across, mut along, mut total) = (0.0, 0.0, 0.0);
        for (i, loss) in self.recent.iter().enumerate() {
            let (x, y) = (i as f64 - middle, loss - mean);
            across += x * y;
            along += x * x;
            total += y * y;
        }
        let slope = across / along;
        // Rounding must not make a straight line's rest negative.
        let rest = (total - slope * across).max(0.0);
        Some((slope, (rest / (n - 2) as f64 / along).sqrt()))
    }
}

//! Trend of the loss, for the progress line.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A slope is significant if it exceeds its standard error by this factor. Neighbouring losses are not independent
/// (batches of one length are grouped), so it is larger than the usual 2.
const SIGNIFICANT: f64 = 4.0;

/// The most recent losses, with a least-squares line through them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossTrend {
    window: usize,
    recent: VecDeque<f64>,
}

/// Direction of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Significantly falling.
    Falling,
    /// No change that can be distinguished from noise.
    Flat,
    /// Significantly rising.
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

impl LossTrend {
    /// Tracks the last `window` losses.
    ///
    /// # Panics
    /// If `window` is below 8.
    pub fn new(window: usize) -> Self {
        assert!(window >= 8, "a trend needs a window of at least eight losses");
        LossTrend { window, recent: VecDeque::with_capacity(window) }
    }

    /// Adds the loss of a step; NaN and Inf are ignored.
    pub fn observe(&mut self, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        if self.recent.len() == self.window {
            self.recent.pop_front();
        }
        self.recent.push_back(loss);
    }

    /// Mean of the window, for display; less noisy than the last loss. `None` before the first loss.
    pub fn mean(&self) -> Option<f64> {
        let n = self.recent.len();
        (n > 0).then(|| self.recent.iter().sum::<f64>() / n as f64)
    }

    /// Change per step by least squares; `None` with fewer than eight losses.
    pub fn slope(&self) -> Option<f64> {
        self.line().map(|(slope, _)| slope)
    }

    /// Direction of the loss over the window.
    pub fn direction(&self) -> Direction {
        match self.line() {
            Some((slope, error)) if slope < -SIGNIFICANT * error => Direction::Falling,
            Some((slope, error)) if slope > SIGNIFICANT * error => Direction::Rising,
            _ => Direction::Flat,
        }
    }

    /// Direction for display: `None` while there are too few losses to tell a steady loss from a slow trend.
    pub fn known_direction(&self) -> Option<Direction> {
        match self.direction() {
            Direction::Flat if self.recent.len() < self.window => None,
            direction => Some(direction),
        }
    }

    /// Slope and its standard error.
    fn line(&self) -> Option<(f64, f64)> {
        let n = self.recent.len();
        let mean = self.mean().filter(|_| n >= 8)?;
        let middle = (n - 1) as f64 / 2.0;
        let (mut sxy, mut sxx, mut syy) = (0.0, 0.0, 0.0);
        for (i, loss) in self.recent.iter().enumerate() {
            let (x, y) = (i as f64 - middle, loss - mean);
            sxy += x * y;
            sxx += x * x;
            syy += y * y;
        }
        let slope = sxy / sxx;
        // Rounding must not make the residual of a straight line negative.
        let residual = (syy - slope * sxy).max(0.0);
        Some((slope, (residual / (n - 2) as f64 / sxx).sqrt()))
    }
}

//! Detection of loss spikes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// Converts a median absolute deviation to a standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Minimum scale as a fraction of the median: otherwise tiny differences between nearly equal losses would be spikes.
const MIN_SCALE: f64 = 0.01;

/// Detects losses far above the recent ones.
///
/// It uses median and median absolute deviation rather than mean and variance, which an accepted spike would raise so
/// that the next one is hidden.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpikeDetector {
    window: usize,
    limit: f64,
    patience: u32,
    recent: VecDeque<f64>,
    in_a_row: u32,
}

/// Verdict on a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpikeVerdict {
    /// Similar to recent losses, or there are too few of them.
    Fine,
    /// Far above recent losses.
    Spike {
        /// Median of recent losses.
        median: f64,
        /// Threshold that it exceeds.
        limit: f64,
    },
    /// Too many consecutive spikes: the loss has moved to a new level, and the history restarts.
    NewLevel,
}

impl SpikeDetector {
    /// Compares with the last `window` losses, allows `limit` deviations above the median, and accepts a new level after
    /// `patience` consecutive spikes.
    pub fn new(window: usize, limit: f64, patience: u32) -> Self {
        assert!(window >= 8, "the window must have at least eight losses");
        assert!(limit > 0.0 && patience > 0, "limit and patience must be positive");
        SpikeDetector { window, limit, patience, recent: VecDeque::with_capacity(window), in_a_row: 0 }
    }

    /// Changes the number of allowed deviations.
    pub fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
    }

    /// Adds the loss of a step. NaN and Inf are spikes and are not remembered.
    pub fn observe(&mut self, loss: f64) -> SpikeVerdict {
        // A quarter of the window is enough to compare with; before that the loss changes fast anyway.
        if self.recent.len() * 4 >= self.window || !loss.is_finite() {
            let (median, scale) = self.median_and_scale();
            let limit = median + self.limit * scale;
            if !loss.is_finite() || loss > limit {
                self.in_a_row += 1;
                if self.in_a_row < self.patience || !loss.is_finite() {
                    return SpikeVerdict::Spike { median, limit };
                }
                self.recent.clear();
                self.remember(loss);
                return SpikeVerdict::NewLevel;
            }
        }
        self.remember(loss);
        SpikeVerdict::Fine
    }

    fn remember(&mut self, loss: f64) {
        self.in_a_row = 0;
        if self.recent.len() == self.window {
            self.recent.pop_front();
        }
        self.recent.push_back(loss);
    }

    /// Median and scale of the window; zeros if it is empty.
    fn median_and_scale(&self) -> (f64, f64) {
        let mut losses: Vec<f64> = self.recent.iter().copied().collect();
        let center = median(&losses);
        for loss in &mut losses {
            *loss = (*loss - center).abs();
        }
        (center, (MAD_TO_SIGMA * median(&losses)).max(MIN_SCALE * center.abs()))
    }
}

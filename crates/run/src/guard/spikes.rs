//! Losses that leap.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Scales the median deviation to a standard deviation, for a normal distribution.
const NORMAL: f64 = 1.4826;
/// The scale is at least this share of the median: where losses hardly differ, a hair would be a spike.
const LEAST_SCALE: f64 = 0.01;

/// Finds losses far above those before them.
///
/// Median and median deviation are taken and not mean and variance: a spike that has been let in would
/// raise those, and hide the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spikes {
    window: usize,
    limit: f64,
    patience: u32,
    recent: VecDeque<f64>,
    in_a_row: u32,
}

/// What a loss is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpikeVerdict {
    /// Like those before it, or there are too few to tell.
    Fine,
    /// Far above them.
    Spike {
        /// The middle of those before it.
        median: f64,
        /// What it would have had to stay below.
        limit: f64,
    },
    /// One spike too many in a row: this is where the loss is now. Judging begins anew.
    NewLevel,
}

impl Spikes {
    /// Compares with the last `window` losses, allows `limit` deviations above the median, and takes the
    /// loss to have moved for good after `patience` spikes in a row.
    pub fn new(window: usize, limit: f64, patience: u32) -> Self {
        assert!(window >= 8, "a median of fewer than eight losses says nothing");
        assert!(limit > 0.0 && patience > 0, "a limit and a patience of nothing make everything a spike");
        Spikes { window, limit, patience, recent: VecDeque::with_capacity(window), in_a_row: 0 }
    }

    /// Allows another number of deviations from now on.
    pub fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
    }

    /// Judges the loss of a step. One that is no number is a spike, and not remembered.
    pub fn observe(&mut self, loss: f64) -> SpikeVerdict {
        // A quarter of the window is enough to judge by; until then training moves fast anyway.
        if self.recent.len() * 4 >= self.window || !loss.is_finite() {
            let (median, scale) = self.middle();
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

    /// Median and scale of the window; zeros where it is empty.
    fn middle(&self) -> (f64, f64) {
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        let median = median(&mut sorted);
        for loss in &mut sorted {
            *loss = (*loss - median).abs();
        }
        (median, (NORMAL * self::median(&mut sorted)).max(LEAST_SCALE * median.abs()))
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

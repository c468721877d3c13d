//! Mean and spread of what was sampled, and how much it swings.

use serde::Serialize;

/// Values kept of one quantity: three days at one a second. After that every second one is let go, again and again.
const MOST_KEPT: usize = 1 << 18;
/// Points of percent between low and high that are no swinging: a busy GPU is never at one figure.
const STEADY: f64 = 10.0;
/// Changes of side that make an oscillation: a beginning and an end alone are two.
const FEWEST_CHANGES: u64 = 4;

/// One quantity over time. Means and deviations are of all values, the rest of those that were kept.
#[derive(Clone, Debug, Default)]
pub struct Series {
    count: u64,
    mean: f64,
    squares: f64,
    kept: Vec<f32>,
    /// One of so many values is kept, as a power of two.
    stride: u32,
}

/// What a quantity was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Samples that had it.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Five of a hundred samples were at most this.
    pub p5: f64,
    /// Five of a hundred samples were at least this.
    pub p95: f64,
}

impl Series {
    /// Adds a value; one that is no number is left out.
    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.count.trailing_zeros() >= self.stride {
            self.kept.push(value as f32);
        }
        // Welford's sums: the squares of bytes would eat all digits.
        self.count += 1;
        let away = value - self.mean;
        self.mean += away / self.count as f64;
        self.squares += away * (value - self.mean);
        if self.kept.len() >= MOST_KEPT {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride += 1;
        }
    }

    /// Mean and spread; none where there was no value.
    pub fn figures(&self) -> Option<Figures> {
        let sorted = self.sorted();
        Some(Figures {
            samples: self.count,
            mean: self.mean,
            deviation: (self.squares / self.count.max(1) as f64).sqrt(),
            p5: quantile(&sorted, 0.05)?,
            p95: quantile(&sorted, 0.95)?,
        })
    }

    fn sorted(&self) -> Vec<f32> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f32::total_cmp);
        sorted
    }

    /// How much a percentage swings, over so many seconds. See [`Oscillation`].
    pub fn oscillation(&self, seconds: f64) -> Option<Oscillation> {
        let sorted = self.sorted();
        let (low, high) = (quantile(&sorted, 0.05)?, quantile(&sorted, 0.95)?);
        let third = (high - low) / 3.0;
        let (mut lows, mut highs, mut changes) = (0u64, 0u64, 0u64);
        let mut side = None;
        for value in self.kept.iter().map(|value| f64::from(*value)) {
            let now = match value {
                _ if third <= 0.0 => continue,
                _ if value <= low + third => false,
                _ if value >= high - third => true,
                _ => continue,
            };
            *if now { &mut highs } else { &mut lows } += 1;
            changes += u64::from(side.is_some_and(|side| side != now));
            side = Some(now);
        }
        let share = |count: u64| count as f64 / self.kept.len() as f64;
        let swings = high - low >= STEADY && changes >= FEWEST_CHANGES;
        let score = if swings { (high - low) / 100.0 * 4.0 * share(lows) * share(highs) } else { 0.0 };
        Some(Oscillation {
            score: score.clamp(0.0, 1.0),
            low,
            high,
            low_share: share(lows),
            high_share: share(highs),
            crossings_per_minute: if seconds > 0.0 { changes as f64 * 60.0 / seconds } else { 0.0 },
        })
    }
}

/// How much a percentage swings between two levels.
///
/// `low` and `high` are the 5th and the 95th percentile of the samples. The third of the way above `low` is the low side,
/// the third below `high` is the high side; between them lies the middle, and going from one side to the other is a
/// crossing, however long it took: trembling in the middle is none.
///
/// ```text
/// score = (high - low) / 100  *  4 * low_share * high_share
/// ```
///
/// It is 1 for as much time at 0 % as at 100 % with nothing between, and less the smaller the swing or the more one-sided
/// the time. It is 0, steady, where the levels are less than 10 points apart, or with fewer than four crossings: a
/// beginning and an end are no oscillation. Swings faster than two samples, or than the driver's own window of up to a
/// second, cannot be seen here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oscillation {
    /// 0 steady, 1 between nothing and everything.
    pub score: f64,
    /// The lower level.
    pub low: f64,
    /// The upper level.
    pub high: f64,
    /// Share of the samples on the low side.
    pub low_share: f64,
    /// Share of the samples on the high side.
    pub high_share: f64,
    /// Times it went from one side to the other, per minute.
    pub crossings_per_minute: f64,
}

/// Between the two nearest values, in proportion.
fn quantile(sorted: &[f32], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let at = |index: usize| sorted.get(index.min(sorted.len() - 1)).map(|value| f64::from(*value));
    Some(at(below)? * (1.0 - part) + at(below + 1)? * part)
}

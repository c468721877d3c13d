//! Mean, spread and oscillation of sampled values.

use serde::Serialize;

/// Maximum number of values kept per quantity: three days at one per second. Beyond that, every second one is dropped.
const MAX_KEPT: usize = 1 << 18;
/// Difference between low and high, in percentage points, below which a GPU counts as steady: its utilisation is never
/// exactly constant.
const STEADY: f64 = 10.0;
/// Minimum number of crossings of an oscillation; a start and an end alone are two.
const MIN_CROSSINGS: u64 = 4;

/// One quantity over time. Mean and deviation are of all values, percentiles and oscillation of the kept ones.
#[derive(Clone, Debug, Default)]
pub struct Series {
    count: u64,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
    kept: Vec<f32>,
    /// Every 2^stride-th value is kept.
    stride: u32,
}

/// Mean and spread of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Number of samples with a value.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
}

impl Series {
    /// Adds a value; NaN and Inf are ignored.
    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.count.trailing_zeros() >= self.stride {
            self.kept.push(value as f32);
        }
        // Welford's algorithm: sums of squared byte counts would lose precision.
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        if self.kept.len() >= MAX_KEPT {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride += 1;
        }
    }

    /// Mean and spread; `None` without a value.
    pub fn spread(&self) -> Option<Spread> {
        let sorted = self.sorted();
        Some(Spread {
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

    /// Oscillation of a percentage sampled over the given number of seconds.
    pub fn oscillation(&self, seconds: f64) -> Option<Oscillation> {
        let sorted = self.sorted();
        let (low, high) = (quantile(&sorted, 0.05)?, quantile(&sorted, 0.95)?);
        let third = (high - low) / 3.0;
        let (mut lows, mut highs, mut crossings) = (0u64, 0u64, 0u64);
        let mut side = None;
        for value in self.kept.iter().map(|value| f64::from(*value)) {
            let now = match value {
                _ if third <= 0.0 => continue,
                _ if value <= low + third => false,
                _ if value >= high - third => true,
                _ => continue,
            };
            *if now { &mut highs } else { &mut lows } += 1;
            crossings += u64::from(side.is_some_and(|side| side != now));
            side = Some(now);
        }
        let share = |count: u64| count as f64 / self.kept.len() as f64;
        let oscillates = high - low >= STEADY && crossings >= MIN_CROSSINGS;
        let score = if oscillates { (high - low) / 100.0 * 4.0 * share(lows) * share(highs) } else { 0.0 };
        Some(Oscillation {
            score: score.clamp(0.0, 1.0),
            low,
            high,
            low_share: share(lows),
            high_share: share(highs),
            crossings_per_minute: if seconds > 0.0 { crossings as f64 * 60.0 / seconds } else { 0.0 },
        })
    }
}

/// How much a percentage oscillates between two levels.
///
/// `low` and `high` are the 5th and 95th percentile of the samples. The lower third between them is the low side, the
/// upper third the high side. A crossing is a change from one side to the other, however long it takes; changes within
/// the middle third do not count.
///
/// ```text
/// score = (high - low) / 100  *  4 * low_share * high_share
/// ```
///
/// It is 1 for equal time at 0 % and at 100 % with nothing between, and smaller for smaller differences or unequal times.
/// It is 0 (steady) if the levels are less than 10 points apart or there are fewer than four crossings: a start and an end
/// are not an oscillation. Oscillations faster than two samples, or than the driver's own window of up to a second, are
/// not visible.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oscillation {
    /// From 0 (steady) to 1 (between 0 % and 100 %).
    pub score: f64,
    /// Lower level in percent.
    pub low: f64,
    /// Upper level in percent.
    pub high: f64,
    /// Fraction of samples on the low side.
    pub low_share: f64,
    /// Fraction of samples on the high side.
    pub high_share: f64,
    /// Crossings per minute.
    pub crossings_per_minute: f64,
}

/// Quantile by linear interpolation; `None` without values. Benchmarks of `myxtts-train` use the nearest rank, which is a
/// measured time; here the levels between which a percentage oscillates are compared, and few samples must not make them
/// jump.
fn quantile(sorted: &[f32], share: f64) -> Option<f64> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let (below, part) = (position.floor() as usize, position.fract());
    let at = |index: usize| sorted.get(index.min(sorted.len() - 1)).map(|value| f64::from(*value));
    Some(at(below)? * (1.0 - part) + at(below + 1)? * part)
}

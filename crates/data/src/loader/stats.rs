//! Measurements of the loader: whether it kept up, and where the time went.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::batch::BatchInfo;

/// Longest time the histograms resolve: one hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// Distribution of a duration, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of measurements.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation divided by the mean.
    pub variation: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// A loader's measurements since it started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Batches made.
    pub batches: u64,
    /// Seconds from the start to the first batch.
    pub first_batch: f64,
    /// Seconds since the first batch.
    pub elapsed: f64,
    /// Fraction of `elapsed` in which the next batch was ready: 1 - time empty / elapsed. Start-up is not counted: it
    /// happens once.
    pub readiness: f64,
    /// Waits of the consumer, one per batch.
    pub get_wait: Quantiles,
    /// Waits of the workers for a slab or a slot in the queue. Long waits mean that the workers are ahead.
    pub put_wait: Quantiles,
    /// Time to make a batch.
    pub collate: Quantiles,
    /// Time to read the records of a batch: part of `collate`.
    pub read: Quantiles,
}

/// Histograms behind [`Stats`]; all methods are called under the queue's lock.
pub(super) struct Meters {
    started: Instant,
    first: Option<Instant>,
    empty_since: Option<Instant>,
    empty: Duration,
    get_wait: Histogram<u64>,
    put_wait: Histogram<u64>,
    collate: Histogram<u64>,
    read: Histogram<u64>,
}

impl Meters {
    pub(super) fn start() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, MAX_NS, 2)
                .expect("these bounds and digits are in the crate's range")
        };
        Meters {
            started: Instant::now(),
            first: None,
            empty_since: None,
            empty: Duration::ZERO,
            get_wait: histogram(),
            put_wait: histogram(),
            collate: histogram(),
            read: histogram(),
        }
    }

    pub(super) fn put_wait(&mut self, waited: Duration) {
        record(&mut self.put_wait, waited);
    }

    pub(super) fn get_wait(&mut self, waited: Duration) {
        record(&mut self.get_wait, waited);
    }

    pub(super) fn made(&mut self, info: &BatchInfo) {
        record(&mut self.collate, info.took);
        record(&mut self.read, info.reading);
    }

    /// The next batch in order is ready now.
    pub(super) fn filled(&mut self) {
        self.first.get_or_insert_with(Instant::now);
        if let Some(since) = self.empty_since.take() {
            self.empty += since.elapsed();
        }
    }

    /// It was taken, and the next one is not ready.
    pub(super) fn emptied(&mut self) {
        self.empty_since = Some(Instant::now());
    }

    pub(super) fn stats(&self) -> Stats {
        let empty = self.empty + self.empty_since.map_or(Duration::ZERO, |since| since.elapsed());
        let elapsed = self.first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        let readiness =
            if elapsed > 0.0 { (1.0 - empty.as_secs_f64() / elapsed).clamp(0.0, 1.0) } else { 0.0 };
        Stats {
            batches: self.collate.len(),
            first_batch: self.first.map_or(0.0, |first| (first - self.started).as_secs_f64()),
            elapsed,
            readiness,
            get_wait: quantiles(&self.get_wait),
            put_wait: quantiles(&self.put_wait),
            collate: quantiles(&self.collate),
            read: quantiles(&self.read),
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mean = histogram.mean();
    Quantiles {
        count: histogram.len(),
        mean: mean / 1e9,
        variation: if mean > 0.0 { histogram.stdev() / mean } else { 0.0 },
        p50: seconds(histogram.value_at_quantile(0.50)),
        p95: seconds(histogram.value_at_quantile(0.95)),
        p99: seconds(histogram.value_at_quantile(0.99)),
        max: seconds(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_percent_and_extreme_times_do_not_panic() {
        let mut meters = Meters::start();
        (1..=100).for_each(|ms| meters.get_wait(Duration::from_millis(ms)));
        let shown = meters.stats().get_wait;
        assert_eq!(shown.count, 100);
        for (shown, true_value) in
            [(shown.p50, 0.050), (shown.p95, 0.095), (shown.p99, 0.099), (shown.max, 0.100)]
        {
            assert!((shown / true_value - 1.0).abs() < 0.011, "{shown} is not {true_value}");
        }
        meters.get_wait(Duration::MAX);
        assert_eq!(meters.stats().get_wait.count, 101);
    }

    #[test]
    fn without_measurements_no_statistic_is_nan() {
        let stats = Meters::start().stats();
        assert_eq!((stats.batches, stats.readiness, stats.get_wait.mean), (0, 0.0, 0.0));
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), stats);
    }

    #[test]
    fn a_queue_that_stays_empty_is_not_ready() {
        let mut meters = Meters::start();
        meters.filled();
        meters.emptied();
        while meters.first.is_some_and(|first| first.elapsed() < Duration::from_millis(20)) {
            std::thread::yield_now();
        }
        // Both clocks cover almost the same interval.
        assert!(meters.stats().readiness < 0.5, "{}", meters.stats().readiness);
    }
}

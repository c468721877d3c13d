//! Summary statistics of measured values, shared by `bench`, `tune` and `diagnose`.

pub use myxtts_run::statistics::median;
use serde::Serialize;

/// Summary of a series of times, in the unit of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Spread {
    /// Summarises a series; all fields are 0 for an empty one.
    pub fn of(values: &[f64]) -> Spread {
        let sorted = sorted(values);
        let at = |share| nearest_rank(&sorted, share);
        Spread {
            mean: mean(values),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            variation: variation(values),
        }
    }
}

/// Mean; 0 for an empty series.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Percentile by nearest rank: the smallest value that at least this share of all values do not exceed. 0 for an empty series.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    nearest_rank(&sorted(values), share)
}

/// Population variance; 0 for an empty series.
pub fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation over mean; 0 if the mean is not positive.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean > 0.0 { variance(values).sqrt() / mean } else { 0.0 }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn nearest_rank(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&values);
        assert_eq!((spread.p50, spread.p95, spread.p99, spread.mean), (50.0, 95.0, 99.0, 50.5));
        assert_eq!(percentile(&values, 1.0), 100.0);
        assert!((spread.variation - 28.866 / 50.5).abs() < 1e-4);
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[3.0]).p99, 3.0);
    }
}

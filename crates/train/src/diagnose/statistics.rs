//! Series of times: how they are spread, and whether they come back.

use serde::Serialize;

/// How a time is spread, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Spread {
    /// Of these times; of none it is zero.
    pub fn of(times: &[f64]) -> Spread {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        // The smallest that so many are not above.
        let at = |share: f64| {
            let rank = (sorted.len() as f64 * share).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Spread { mean: mean(times), p50: at(0.5), p95: at(0.95), p99: at(0.99), variation: variation(times) }
    }
}

/// Mean; of nothing, zero.
pub fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

/// Median; of nothing, zero.
pub fn median(times: &[f64]) -> f64 {
    Spread::of(times).p50
}

/// Standard deviation over mean.
pub fn variation(times: &[f64]) -> f64 {
    let mean = mean(times);
    let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len().max(1) as f64;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// How alike a series is to itself `lag` later: 1 is the same, 0 is nothing in common.
pub fn autocorrelation(series: &[f64], lag: usize) -> f64 {
    let (n, mean) = (series.len(), mean(series));
    let variance = series.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n.max(1) as f64;
    if lag >= n || variance <= 0.0 {
        return 0.0;
    }
    let pairs = series.iter().zip(&series[lag..]);
    pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / (n - lag) as f64 / variance
}

/// A series that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    /// After so many batches.
    pub every: usize,
    /// How alike it is then, of 1.
    pub strength: f64,
}

/// Of something that came back five times but once, half is left.
const ALIKE: f64 = 0.5;
/// What comes by chance comes at any place of a period; a rhythm has nearly all of it at one.
const IN_PHASE: f64 = 0.8;

/// After how many batches a series comes back; none where it does not at least four times.
///
/// Of all lags nearly as good as the best the shortest counts: what comes back after 5 does after 10 as well. Something
/// that only drifts is as alike after 1 as after any, and is no period.
pub fn period(series: &[f64]) -> Option<Period> {
    let found: Vec<(usize, f64)> =
        (2..=series.len() / 4).map(|lag| (lag, autocorrelation(series, lag))).collect();
    let best = found.iter().map(|(_, alike)| *alike).fold(0.0, f64::max);
    let (every, strength) = found.into_iter().find(|(_, alike)| *alike >= 0.85 * best)?;
    let drifts = autocorrelation(series, 1) > 0.7 * strength;
    // A few high ones are alike at some distance by chance: a rhythm has them at every turn.
    let (low, high) = series.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let is_high = |i: usize| series[i] > (low + high) / 2.0;
    let rises: Vec<usize> =
        (0..series.len()).filter(|&i| is_high(i) && (i == 0 || !is_high(i - 1))).collect();
    // One may be missing, hidden behind something longer.
    let late = |gap: usize| (gap % every).min(every - gap % every);
    let in_time = rises.windows(2).filter(|pair| late(pair[1] - pair[0]) <= every / 8).count();
    let regular =
        rises.len() >= 3.max(series.len() * 3 / (5 * every)) && 4 * in_time >= 3 * (rises.len() - 1);
    let in_phase = in_phase(series, every) >= IN_PHASE;
    (strength >= ALIKE && !drifts && regular && in_phase).then_some(Period { every, strength })
}

/// The share of all that lies above the median which comes at one place of the period.
fn in_phase(series: &[f64], every: usize) -> f64 {
    let usual = median(series);
    let mut at = vec![0.0; every];
    series.iter().enumerate().for_each(|(i, x)| at[i % every] += (x - usual).max(0.0));
    // What is late may be a batch late or early.
    let near = every / 8;
    let around = |place: usize| (0..=2 * near).map(|k| at[(place + every + k - near) % every]).sum::<f64>();
    let all: f64 = at.iter().sum();
    if all > 0.0 { (0..every).map(around).fold(0.0, f64::max) / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_times_are_spread_as_counted() {
        let times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&times);
        assert_eq!((spread.p50, spread.p95, spread.p99, spread.mean), (50.0, 95.0, 99.0, 50.5));
        assert!((spread.variation - 28.866 / 50.5).abs() < 1e-4);
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[3.0]).p99, 3.0);
    }

    #[test]
    fn a_period_is_found_and_drift_and_chance_are_none() {
        for every in [2, 5, 7, 13] {
            let series: Vec<f64> =
                (0..60).map(|i| if i % every == 0 { 5.0 } else { 1.0 + 0.01 * (i % 3) as f64 }).collect();
            assert_eq!(period(&series).map(|period| period.every), Some(every));
        }
        let drift: Vec<f64> = (0..60).map(f64::from).collect();
        assert_eq!(period(&drift), None);
        // Two hiccups are no rhythm.
        let twice: Vec<f64> = (0..60).map(|i| if i == 11 || i == 29 { 9.0 } else { 1.0 }).collect();
        assert_eq!(period(&twice), None);
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[1.0; 50]), None);
    }
}

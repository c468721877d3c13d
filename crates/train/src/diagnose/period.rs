//! Detects whether a series of times is periodic, and its period in batches.

use crate::statistics::{mean, median, variance};
use serde::Serialize;

/// Correlation of a series with itself at `lag`: 1 is equal, 0 is unrelated.
pub(crate) fn autocorrelation(series: &[f64], lag: usize) -> f64 {
    let (n, mean, variance) = (series.len(), mean(series), variance(series));
    if lag >= n || variance <= 0.0 {
        return 0.0;
    }
    let pairs = series.iter().zip(&series[lag..]);
    pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / (n - lag) as f64 / variance
}

/// A periodic series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    /// Length of the period, in batches.
    pub every: usize,
    /// Autocorrelation at that lag, up to 1.
    pub strength: f64,
}

/// Minimum autocorrelation: a spike that occurs in all of five periods but one still has half.
const MIN_CORRELATION: f64 = 0.5;
/// Minimum share of the excess at one phase: random spikes occur at any phase, periodic ones nearly all at the same.
const IN_PHASE: f64 = 0.8;

/// The period of a series; `None` if it does not occur at least four times.
///
/// Of all lags nearly as good as the best, the shortest counts: a period of 5 also shows at 10. A series that only drifts is
/// as similar at lag 1 as at any other, and is not periodic.
pub fn period(series: &[f64]) -> Option<Period> {
    let found: Vec<(usize, f64)> =
        (2..=series.len() / 4).map(|lag| (lag, autocorrelation(series, lag))).collect();
    let best = found.iter().map(|(_, alike)| *alike).fold(0.0, f64::max);
    let (every, strength) = found.into_iter().find(|(_, alike)| *alike >= 0.85 * best)?;
    let drifts = autocorrelation(series, 1) > 0.7 * strength;
    // A few high values can correlate at some lag by chance: a periodic series has them in every period.
    let (low, high) = series.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let is_high = |i: usize| series[i] > (low + high) / 2.0;
    let rises: Vec<usize> =
        (0..series.len()).filter(|&i| is_high(i) && (i == 0 || !is_high(i - 1))).collect();
    // One may be missing, hidden by something longer.
    let late = |gap: usize| (gap % every).min(every - gap % every);
    let in_time = rises.windows(2).filter(|pair| late(pair[1] - pair[0]) <= every / 8).count();
    let regular =
        rises.len() >= 3.max(series.len() * 3 / (5 * every)) && 4 * in_time >= 3 * (rises.len() - 1);
    let in_phase = in_phase(series, every) >= IN_PHASE;
    (strength >= MIN_CORRELATION && !drifts && regular && in_phase).then_some(Period { every, strength })
}

/// Share of everything above the median that occurs at one phase of the period.
fn in_phase(series: &[f64], every: usize) -> f64 {
    let usual = median(series);
    let mut at = vec![0.0; every];
    series.iter().enumerate().for_each(|(i, x)| at[i % every] += (x - usual).max(0.0));
    // A spike may be a batch early or late.
    let near = every / 8;
    let around = |place: usize| (0..=2 * near).map(|k| at[(place + every + k - near) % every]).sum::<f64>();
    let all: f64 = at.iter().sum();
    if all > 0.0 { (0..every).map(around).fold(0.0, f64::max) / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_found_and_drift_and_noise_have_none() {
        for every in [2, 5, 7, 13] {
            let series: Vec<f64> =
                (0..60).map(|i| if i % every == 0 { 5.0 } else { 1.0 + 0.01 * (i % 3) as f64 }).collect();
            assert_eq!(period(&series).map(|period| period.every), Some(every));
        }
        let drift: Vec<f64> = (0..60).map(f64::from).collect();
        assert_eq!(period(&drift), None);
        // Two spikes are not a period.
        let twice: Vec<f64> = (0..60).map(|i| if i == 11 || i == 29 { 9.0 } else { 1.0 }).collect();
        assert_eq!(period(&twice), None);
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[1.0; 50]), None);
    }
}

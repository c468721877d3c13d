//! Whether a series of times repeats, and after how many batches.

use crate::statistics::{mean, median, variance};
use serde::Serialize;

/// How alike a series is to itself `lag` later: 1 is the same, 0 is nothing in common.
pub fn autocorrelation(series: &[f64], lag: usize) -> f64 {
    let (n, mean, variance) = (series.len(), mean(series), variance(series));
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

//! Candidates that `myxtts tune` measures, and the choice among them.
//!
//! The rule: the smallest candidate within 2 % of the fastest. A larger batch that is no faster takes memory and means
//! fewer, coarser steps; extra threads that gain nothing take cores from other programs.

use super::facts::Facts;
use crate::bench::Figures;
use myxtts_run::config::tune::loader_threads;
use serde::Serialize;

/// Allowed distance to the fastest candidate, as a share.
pub const NEAR: f64 = 0.02;

/// One combination of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    /// `data.batch_size`.
    pub batch: usize,
    /// `data.num_workers`.
    pub workers: usize,
    /// `data.prefetch_buffer_size`.
    pub prefetch: usize,
}

/// The purpose of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// To choose the batch size.
    Batches,
    /// To choose the threads, at that batch size.
    Threads,
    /// Every combination.
    Grid,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Purpose of the measurement.
    pub part: Part,
    /// The settings that were measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Clips per second, corrected to the same clip length and, on a CPU, to the same machine speed; see [`even`] and
    /// [`rates`](super::race::rates).
    pub rate: f64,
    /// All measurements of the combination.
    pub figures: Figures,
}

/// Batch sizes to try, for a corpus of `clips` clips. A CPU is as fast on few rows as on many.
pub fn batches(facts: &Facts, clips: usize) -> Vec<usize> {
    let each: &[usize] = match facts.gpu {
        Some(_) => &[8, 16, 24, 32, 48, 64, 96, 128],
        None => &[4, 8, 16, 24, 32],
    };
    // A batch larger than the corpus would contain clips twice.
    let most = clips.max(each[0]);
    each.iter().copied().filter(|&rows| rows <= most && rows.is_multiple_of(facts.replicas)).collect()
}

/// Numbers of threads to try.
pub fn workers(facts: &Facts) -> Vec<usize> {
    let most = match facts.gpu {
        Some(_) => loader_threads(facts.cores) as usize,
        None => facts.cores.min(4),
    };
    let mut tried: Vec<usize> = (0..).map(|n| 1 << n).take_while(|&n| n < most).collect();
    tried.push(most);
    tried
}

/// Buffer sizes that an exhaustive sweep tries, in addition to that of the rules.
pub(crate) fn depths(facts: &Facts, rule: usize) -> Vec<usize> {
    let mut depths = match facts.gpu {
        Some(_) => vec![4, 12, 24, rule],
        None => vec![2, 4, 12, rule],
    };
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// Corrects rates to the same clip length: batches had different clips, and longer ones take longer.
pub fn even(rows: &mut [Row]) {
    let places = |row: &Row| row.figures.mean_shape[1] + row.figures.mean_shape[2];
    let mean = rows.iter().map(places).sum::<f64>() / rows.len().max(1) as f64;
    for row in rows {
        row.rate = row.figures.samples_per_second * if mean > 0.0 { places(row) / mean } else { 1.0 };
    }
}

/// The smallest candidate whose rate is within [`NEAR`] of the best.
pub fn smallest_near_best(tried: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    let tried: Vec<(usize, f64)> = tried.collect();
    let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    tried.into_iter().filter(|(_, rate)| *rate >= (1.0 - NEAR) * best).map(|(what, _)| what).min()
}

/// Number of batches whose clips add up to `first`, or as close to it as whole batches get.
pub fn accumulate(first: usize, batch: usize) -> usize {
    (first as f64 / batch.max(1) as f64).round().max(1.0) as usize
}

//! What `myxtts tune` measures, and which of it it chooses.
//!
//! The rule: of all that is within 2 % of the fastest, the smallest. A larger batch that is no faster takes memory and
//! fewer, coarser steps; more threads that bring nothing take cores from others.

use super::facts::Facts;
use crate::bench::Figures;
use myxtts_run::config::tune::loader_threads;
use serde::Serialize;

/// How far behind the fastest something smaller may be and still be chosen.
pub const NEAR: f64 = 0.02;

/// One way to run a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    /// `data.batch_size`.
    pub batch: usize,
    /// `data.num_workers`.
    pub workers: usize,
    /// `data.prefetch_buffer_size`.
    pub prefetch: usize,
}

/// What a measurement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// To choose the batch.
    Batches,
    /// To choose the threads, at that batch.
    Threads,
    /// Every combination.
    Grid,
}

/// What was measured of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What for.
    pub part: Part,
    /// What was set.
    #[serde(flatten)]
    pub cell: Cell,
    /// Clips a second, as if all rows had met clips of the same length, and on a processor the same times; see [`even`] and
    /// [`rates`](super::race::rates).
    pub rate: f64,
    /// Everything that was measured.
    pub figures: Figures,
}

/// Batches that are tried, on so many clips. A processor computes as fast on few rows as on many.
pub fn batches(facts: &Facts, clips: usize) -> Vec<usize> {
    let each: &[usize] = match facts.gpu {
        Some(_) => &[8, 16, 24, 32, 48, 64, 96, 128],
        None => &[4, 8, 16, 24, 32],
    };
    // Past the clips there are, a batch only has some of them twice.
    let most = clips.max(each[0]);
    each.iter().copied().filter(|&rows| rows <= most && rows.is_multiple_of(facts.replicas)).collect()
}

/// Numbers of threads that are tried.
pub fn workers(facts: &Facts) -> Vec<usize> {
    let most = match facts.gpu {
        Some(_) => loader_threads(facts.cores) as usize,
        None => facts.cores.min(4),
    };
    let mut tried: Vec<usize> = (0..).map(|n| 1 << n).take_while(|&n| n < most).collect();
    tried.push(most);
    tried
}

/// Depths that an exhaustive sweep tries, beside the one that the rules have.
pub fn depths(facts: &Facts, rule: usize) -> Vec<usize> {
    let mut depths = match facts.gpu {
        Some(_) => vec![4, 12, 24, rule],
        None => vec![2, 4, 12, rule],
    };
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// Puts rates on the same length of clips: rows of different batches met different clips, and longer ones take longer.
pub fn even(rows: &mut [Row]) {
    let places = |row: &Row| row.figures.mean_shape[1] + row.figures.mean_shape[2];
    let mean = rows.iter().map(places).sum::<f64>() / rows.len().max(1) as f64;
    for row in rows {
        row.rate = row.figures.samples_per_second * if mean > 0.0 { places(row) / mean } else { 1.0 };
    }
}

/// The smallest of what was tried whose rate is within [`NEAR`] of the best.
pub fn smallest_near_best(tried: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    let tried: Vec<(usize, f64)> = tried.collect();
    let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    tried.into_iter().filter(|(_, rate)| *rate >= (1.0 - NEAR) * best).map(|(what, _)| what).min()
}

/// Batches that make a step of so many clips, or as near to it as whole batches come.
pub fn accumulate(first: usize, batch: usize) -> usize {
    (first as f64 / batch.max(1) as f64).round().max(1.0) as usize
}

//! Quantities that the rules need from a trace: sums and medians, with steps compared with others of the same shape.

use super::diagnosis::Compared;
use super::period::{Period, period};
use super::rules::{MIN_LOSS_SHARE, SLOW_WORKER_RATIO};
use super::trace::{Batch, Trace};
use crate::statistics::{mean, median, variation};
use std::collections::BTreeMap;

/// Median step time of each shape.
fn medians(steps: impl Iterator<Item = ([usize; 3], f64)>) -> BTreeMap<[usize; 3], f64> {
    let mut shapes: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
    steps.for_each(|(shape, step)| shapes.entry(shape).or_default().push(step));
    shapes.into_iter().map(|(shape, steps)| (shape, median(&steps))).collect()
}

/// A trace with its derived quantities.
pub(super) struct Facts<'a> {
    pub trace: &'a Trace,
    /// Batches whose time does not include capturing a shape.
    pub steady: Vec<&'a Batch>,
    /// Median step time.
    pub step: f64,
    /// Total time of all batches.
    pub total: f64,
    /// Time between steady steps.
    pub idle: f64,
    /// The part of `idle`, at most, that the loop waited for batches. With steps queued ahead, a wait need not cost
    /// anything.
    pub starving: f64,
    of_shape: BTreeMap<[usize; 3], f64>,
    alone: BTreeMap<[usize; 3], f64>,
    replayed: BTreeMap<[usize; 3], f64>,
}

impl<'a> Facts<'a> {
    pub fn of(trace: &'a Trace) -> Facts<'a> {
        let recorded: Vec<&Batch> = trace.batches.iter().filter(|batch| !batch.is_disturbed()).collect();
        // If nearly all batches are new, all of them are used.
        let steady = if recorded.len() < 3 { trace.batches.iter().collect() } else { recorded };
        let sum = |of: &dyn Fn(&Batch) -> f64| steady.iter().map(|batch| of(batch)).sum::<f64>();
        let idle = sum(&|batch| (batch.period - batch.step).max(0.0));
        let starving = idle.min(sum(&|batch| batch.wait));
        let steps: Vec<f64> = steady.iter().map(|batch| batch.step).collect();
        Facts {
            trace,
            step: median(&steps),
            total: trace.batches.iter().map(|batch| batch.period).sum(),
            idle,
            starving,
            of_shape: medians(steady.iter().map(|batch| (batch.shape, batch.step))),
            alone: medians(trace.alone.iter().copied().filter(|(_, step)| *step > 0.0)),
            replayed: medians(trace.replayed.iter().copied().filter(|(_, period)| *period > 0.0)),
            steady,
        }
    }

    pub fn mean(&self, of: impl Fn(&Batch) -> f64) -> f64 {
        mean(&self.steady.iter().map(|batch| of(batch)).collect::<Vec<_>>())
    }

    pub fn median(&self, of: impl Fn(&Batch) -> f64) -> f64 {
        median(&self.steady.iter().map(|batch| of(batch)).collect::<Vec<_>>())
    }

    /// The usual step time of a batch's shape.
    pub fn usual(&self, batch: &Batch) -> f64 {
        self.of_shape.get(&batch.shape).copied().unwrap_or(self.step)
    }

    pub(crate) fn shapes_met(&self) -> usize {
        let shapes: std::collections::BTreeSet<_> = self.trace.batches.iter().map(|b| b.shape).collect();
        shapes.len()
    }

    /// Relative increase of steps per second if `seconds` were saved.
    pub fn gain(&self, seconds: f64) -> Option<f64> {
        let rest = self.total - seconds;
        (rest > 0.0).then(|| self.total / rest - 1.0)
    }

    /// Waits as a share of the step time.
    pub fn waiting(&self) -> f64 {
        let steps: f64 = self.steady.iter().map(|batch| batch.step).sum();
        if steps > 0.0 { self.starving / steps } else { 0.0 }
    }

    /// Share of the steady time in which a step ran.
    pub fn busy(&self) -> f64 {
        let all: f64 = self.steady.iter().map(|batch| batch.period).sum();
        if all > 0.0 { 1.0 - self.idle / all } else { 0.0 }
    }

    /// Number of batches left out because a shape was captured meanwhile.
    pub fn left_out(&self) -> usize {
        self.trace.batches.len() - self.steady.len()
    }

    /// Extra time of new shapes compared with the same or other steps, and waits for their batches.
    pub fn compiling(&self) -> f64 {
        let disturbed = self.trace.batches.iter().filter(|batch| batch.is_disturbed());
        let usual = |batch: &Batch| self.alone.get(&batch.shape).copied().unwrap_or(self.usual(batch));
        // Summed together: of the steps next to a capture, one contains the time of the others.
        disturbed.map(|batch| batch.period - batch.wait - usual(batch)).sum::<f64>().max(0.0)
    }

    /// A time of every batch, with the usual one in place of disturbed batches.
    pub fn undisturbed(&self, of: impl Fn(&Batch) -> f64) -> Vec<f64> {
        let usual = self.median(&of);
        let kept =
            |batch: &Batch| if batch.is_disturbed() && self.left_out() > 0 { usual } else { of(batch) };
        self.trace.batches.iter().map(kept).collect()
    }

    /// Each step time over the usual one of its shape; shapes that occur once or twice are left out.
    fn ratios(&self) -> Vec<f64> {
        let count = |shape| self.steady.iter().filter(|batch| batch.shape == shape).count();
        let known = self.steady.iter().filter(|batch| count(batch.shape) > 2);
        known.map(|batch| batch.step / self.usual(batch).max(1e-12)).collect()
    }

    /// Variation of step times at equal shape.
    pub(crate) fn step_variation(&self) -> f64 {
        variation(&self.ratios())
    }

    /// Ratio of step times to those without a feed: 1 unless three of four are longer, since single ones are noise.
    pub fn slowed(&self) -> Option<f64> {
        let ratio = |batch: &Batch| Some(batch.step / self.alone.get(&batch.shape)?);
        let mut ratios: Vec<f64> = self.steady.iter().filter_map(|batch| ratio(batch)).collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = *ratios.get(ratios.len() / 4)?;
        Some(if quarter > 1.1 { median(&ratios) } else { 1.0 })
    }

    /// The same batches in training, replayed and alone; `None` if one of these was not measured.
    pub fn compared(&self) -> Option<Compared> {
        let (mut trained, mut replayed, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for batch in &self.steady {
            let (Some(again), Some(step)) = (self.replayed.get(&batch.shape), self.alone.get(&batch.shape))
            else {
                continue;
            };
            trained.push(batch.period);
            replayed.push(*again);
            alone.push(*step);
        }
        (!trained.is_empty()).then(|| Compared {
            batches: trained.len(),
            trained: mean(&trained),
            replayed: mean(&replayed),
            alone: mean(&alone),
        })
    }

    /// The single thread that is far slower than the others, and by which factor.
    pub(crate) fn slow_worker(&self) -> Option<(usize, f64)> {
        let mut workers: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        self.steady.iter().for_each(|batch| workers.entry(batch.worker).or_default().push(batch.load()));
        let medians: Vec<(usize, f64)> =
            workers.iter().map(|(worker, loads)| (*worker, median(loads))).collect();
        let (worker, slowest) = *medians.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let others: Vec<f64> =
            medians.iter().filter(|(other, _)| *other != worker).map(|(_, m)| *m).collect();
        // With two threads, the other one may just be fast, for example because it had short clips.
        if others.len() < 2 || workers[&worker].len() < 2 {
            return None;
        }
        let second = others.iter().copied().fold(0.0, f64::max);
        let usual = median(&others).max(1e-12);
        // All its batches have to be slow: a few may be large by chance.
        let mut loads = workers[&worker].clone();
        loads.sort_by(f64::total_cmp);
        let least = loads[loads.len() / 8];
        (least > SLOW_WORKER_RATIO * usual && slowest > 1.5 * second).then_some((worker, slowest / usual))
    }

    /// A periodic stall that costs a noticeable share of the time.
    pub fn stalls(&self, of: impl Fn(&Batch) -> f64) -> Option<Period> {
        // Relative to the step alone, so that a periodic order of shapes is not taken for stalls. The usual time is unknown
        // for a shape that occurred twice and was late once.
        let usual =
            |batch: &Batch| self.alone.get(&batch.shape).copied().unwrap_or(self.usual(batch)).max(1e-12);
        let least = self.median(|batch| of(batch) / usual(batch));
        // Disturbed batches keep their position, so that the phase of later ones is right.
        let kept = |batch: &Batch| if batch.is_disturbed() { least } else { of(batch) / usual(batch) };
        let series: Vec<f64> = self.trace.batches.iter().map(kept).collect();
        let extra: f64 = series
            .iter()
            .zip(&self.trace.batches)
            .map(|(x, batch)| (x - least).max(0.0) * usual(batch))
            .sum();
        (extra > MIN_LOSS_SHARE * self.total).then(|| period(&series)).flatten()
    }

    /// A periodic stall of the feed's thread. It shows in the waits for batches too, unless other waits hide it there.
    pub fn feed_stalls(&self) -> Option<Period> {
        let series: Vec<f64> = self.trace.batches.iter().map(Batch::feed).collect();
        let usual = median(&series);
        let extra: f64 = series.iter().map(|x| (x - usual).max(0.0)).sum();
        (extra > MIN_LOSS_SHARE * self.total).then(|| period(&series)).flatten()
    }
}

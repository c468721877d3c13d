//! What rules ask of a trace: sums and medians, with steps measured against others of their own shape.

use super::diagnosis::Compared;
use super::period::{Period, period};
use super::rules::{SLOW_WORKER, WORTH};
use super::trace::{Batch, Trace};
use crate::statistics::{mean, median, variation};
use std::collections::BTreeMap;

/// The median step of each shape.
fn medians(steps: impl Iterator<Item = ([usize; 3], f64)>) -> BTreeMap<[usize; 3], f64> {
    let mut shapes: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
    steps.for_each(|(shape, step)| shapes.entry(shape).or_default().push(step));
    shapes.into_iter().map(|(shape, steps)| (shape, median(&steps))).collect()
}

/// A trace, looked at once.
pub(super) struct Facts<'a> {
    pub trace: &'a Trace,
    /// Batches whose time is not one of recording shapes.
    pub steady: Vec<&'a Batch>,
    /// The median step.
    pub step: f64,
    /// Seconds of all batches.
    pub total: f64,
    /// Seconds between steady steps.
    pub idle: f64,
    /// Seconds of that, at most, that the loop waited for batches. With steps queued ahead, a wait need not cost any.
    pub starving: f64,
    of_shape: BTreeMap<[usize; 3], f64>,
    alone: BTreeMap<[usize; 3], f64>,
    replayed: BTreeMap<[usize; 3], f64>,
}

impl<'a> Facts<'a> {
    pub fn of(trace: &'a Trace) -> Facts<'a> {
        let recorded: Vec<&Batch> = trace.batches.iter().filter(|batch| !batch.is_disturbed()).collect();
        // Where nearly all of them are new there is nothing else to go by.
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

    /// What the step of a batch usually takes.
    pub fn usual(&self, batch: &Batch) -> f64 {
        self.of_shape.get(&batch.shape).copied().unwrap_or(self.step)
    }

    pub fn shapes_met(&self) -> usize {
        let shapes: std::collections::BTreeSet<_> = self.trace.batches.iter().map(|b| b.shape).collect();
        shapes.len()
    }

    /// Steps per second more without so many seconds.
    pub fn gain(&self, seconds: f64) -> Option<f64> {
        let rest = self.total - seconds;
        (rest > 0.0).then(|| self.total / rest - 1.0)
    }

    /// What waits add to the steps.
    pub fn waiting(&self) -> f64 {
        let steps: f64 = self.steady.iter().map(|batch| batch.step).sum();
        if steps > 0.0 { self.starving / steps } else { 0.0 }
    }

    /// Share of the steady time in which a step ran.
    pub fn busy(&self) -> f64 {
        let all: f64 = self.steady.iter().map(|batch| batch.period).sum();
        if all > 0.0 { 1.0 - self.idle / all } else { 0.0 }
    }

    /// Batches that are not looked at, for their time is one of recording shapes.
    pub fn left_out(&self) -> usize {
        self.trace.batches.len() - self.steady.len()
    }

    /// Seconds that new shapes took more than the same steps alone, or than other steps, and waits for their batches.
    pub fn compiling(&self) -> f64 {
        let disturbed = self.trace.batches.iter().filter(|batch| batch.is_disturbed());
        let usual = |batch: &Batch| self.alone.get(&batch.shape).copied().unwrap_or(self.usual(batch));
        // Together: of the steps beside a recording one has the time of the others.
        disturbed.map(|batch| batch.period - batch.wait - usual(batch)).sum::<f64>().max(0.0)
    }

    /// A time of every batch, with the usual one in the place of those that are not looked at.
    pub fn undisturbed(&self, of: impl Fn(&Batch) -> f64) -> Vec<f64> {
        let usual = self.median(&of);
        let kept =
            |batch: &Batch| if batch.is_disturbed() && self.left_out() > 0 { usual } else { of(batch) };
        self.trace.batches.iter().map(kept).collect()
    }

    /// Each step over what its shape usually takes; a shape that came once or twice has nothing usual.
    fn ratios(&self) -> Vec<f64> {
        let count = |shape| self.steady.iter().filter(|batch| batch.shape == shape).count();
        let known = self.steady.iter().filter(|batch| count(batch.shape) > 2);
        known.map(|batch| batch.step / self.usual(batch).max(1e-12)).collect()
    }

    /// Variation of steps at equal shape.
    pub fn step_variation(&self) -> f64 {
        variation(&self.ratios())
    }

    /// How many times longer steps take than alone: 1 unless three of four are longer, for single ones are noise.
    pub fn slowed(&self) -> Option<f64> {
        let ratio = |batch: &Batch| Some(batch.step / self.alone.get(&batch.shape)?);
        let mut ratios: Vec<f64> = self.steady.iter().filter_map(|batch| ratio(batch)).collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = *ratios.get(ratios.len() / 4)?;
        Some(if quarter > 1.1 { median(&ratios) } else { 1.0 })
    }

    /// The same batches as they were trained, replayed and alone, where all of it was measured.
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

    /// The one thread that takes far longer than the others, and how many times as long.
    pub fn slow_worker(&self) -> Option<(usize, f64)> {
        let mut workers: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        self.steady.iter().for_each(|batch| workers.entry(batch.worker).or_default().push(batch.load()));
        let medians: Vec<(usize, f64)> =
            workers.iter().map(|(worker, loads)| (*worker, median(loads))).collect();
        let (worker, slowest) = *medians.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let others: Vec<f64> =
            medians.iter().filter(|(other, _)| *other != worker).map(|(_, m)| *m).collect();
        // Of two threads it could as well be the other that is fast: by its nature, or because it met short clips.
        if others.len() < 2 || workers[&worker].len() < 2 {
            return None;
        }
        let second = others.iter().copied().fold(0.0, f64::max);
        let usual = median(&others).max(1e-12);
        // All it makes has to be slow: a few batches may be large by chance.
        let mut loads = workers[&worker].clone();
        loads.sort_by(f64::total_cmp);
        let least = loads[loads.len() / 8];
        (least > SLOW_WORKER * usual && slowest > 1.5 * second).then_some((worker, slowest / usual))
    }

    /// Something that comes back and costs more than a word.
    pub fn stalls(&self, of: impl Fn(&Batch) -> f64) -> Option<Period> {
        // Against the step alone, so that the rhythm of shapes is not taken for one of stalls. Of a shape that came twice
        // and was late once, what is usual is not known.
        let usual =
            |batch: &Batch| self.alone.get(&batch.shape).copied().unwrap_or(self.usual(batch)).max(1e-12);
        let least = self.median(|batch| of(batch) / usual(batch));
        // Steps that were recorded keep their place, or what comes after them would be out of time.
        let kept = |batch: &Batch| if batch.is_disturbed() { least } else { of(batch) / usual(batch) };
        let series: Vec<f64> = self.trace.batches.iter().map(kept).collect();
        let extra: f64 = series
            .iter()
            .zip(&self.trace.batches)
            .map(|(x, batch)| (x - least).max(0.0) * usual(batch))
            .sum();
        (extra > WORTH * self.total).then(|| period(&series)).flatten()
    }
}

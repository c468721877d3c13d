//! All samples as one page of figures.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{Limit, Sample, Unit};
use crate::statistics::{Figures, Oscillation, Series};

/// Takes samples one by one.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    samples: u64,
    first: f64,
    last: f64,
    series: Vec<(&'static str, Option<usize>, Unit, Series)>,
    gpus: Vec<Limits>,
}

#[derive(Clone, Debug, Default)]
struct Limits {
    told: u64,
    counts: BTreeMap<Limit, u64>,
}

/// What there was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many samples.
    pub samples: u64,
    /// From the first to the last.
    pub seconds: f64,
    /// Every quantity that was found at least once.
    pub quantities: Vec<Row>,
    /// What else there is to say of each GPU.
    pub gpus: Vec<GpuSummary>,
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Such as `cpu` or `utilisation`.
    pub name: &'static str,
    /// The GPU it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<usize>,
    /// What it is counted in.
    pub unit: Unit,
    /// Mean and spread.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A GPU over all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuSummary {
    /// How much its utilisation swings.
    pub oscillation: Option<Oscillation>,
    /// Share of the samples in which its clocks were limited, by reason.
    pub limited: BTreeMap<Limit, f64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Tally {
        Tally::default()
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        if self.samples == 0 {
            self.first = sample.time;
        }
        self.samples += 1;
        self.last = sample.time;
        for quantity in sample.quantities() {
            let key = (quantity.name, quantity.gpu);
            let at = self.series.iter().position(|(name, gpu, ..)| (*name, *gpu) == key);
            let at = at.unwrap_or_else(|| {
                self.series.push((quantity.name, quantity.gpu, quantity.unit, Series::default()));
                self.series.len() - 1
            });
            if let Some(value) = quantity.value {
                self.series[at].3.push(value);
            }
        }
        self.gpus.resize_with(self.gpus.len().max(sample.gpus.len()), Limits::default);
        for (limits, gpu) in self.gpus.iter_mut().zip(&sample.gpus) {
            let Some(found) = &gpu.limits else { continue };
            limits.told += 1;
            found.iter().for_each(|limit| *limits.counts.entry(*limit).or_default() += 1);
        }
    }

    /// What there was so far.
    pub fn summary(&self) -> Summary {
        let seconds = (self.last - self.first).max(0.0);
        let row = |(name, gpu, unit, series): &(&'static str, Option<usize>, Unit, Series)| {
            Some(Row { name, gpu: *gpu, unit: *unit, figures: series.figures()? })
        };
        let swings = |index: usize| {
            let of = |(name, gpu, ..): &&(&str, Option<usize>, Unit, Series)| {
                *name == "utilisation" && *gpu == Some(index)
            };
            self.series.iter().find(of).and_then(|(.., series)| series.oscillation(seconds))
        };
        let gpus = self.gpus.iter().enumerate().map(|(index, limits)| GpuSummary {
            oscillation: swings(index),
            limited: (limits.counts.iter())
                .map(|(limit, count)| (*limit, *count as f64 / limits.told as f64))
                .collect(),
        });
        Summary {
            samples: self.samples,
            seconds,
            quantities: self.series.iter().filter_map(row).collect(),
            gpus: gpus.collect(),
        }
    }
}

//! Summary of all samples.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{ClockLimit, Sample, Unit};
use crate::statistics::{Oscillation, Series, Spread};

/// Accumulates samples into a [`Summary`].
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    samples: u64,
    first: f64,
    last: f64,
    series: Vec<(&'static str, Option<usize>, Unit, Series)>,
    gpus: Vec<Limits>,
}

#[derive(Clone, Debug, Default)]
struct Limits {
    /// Samples in which the driver reported limits.
    reported: u64,
    counts: BTreeMap<ClockLimit, u64>,
}

/// Statistics over all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub samples: u64,
    /// Time from the first to the last sample.
    pub seconds: f64,
    /// Every quantity with at least one value.
    pub quantities: Vec<QuantitySummary>,
    /// Further statistics per GPU.
    pub gpus: Vec<GpuSummary>,
}

/// Statistics of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuantitySummary {
    /// Name such as `cpu` or `utilisation`.
    pub name: &'static str,
    /// Index of the GPU it belongs to; `None` for the host and the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<usize>,
    /// Unit of the values.
    pub unit: Unit,
    /// Mean and spread.
    #[serde(flatten)]
    pub spread: Spread,
}

/// Statistics of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuSummary {
    /// Oscillation of its utilisation; `None` if that was never reported.
    pub oscillation: Option<Oscillation>,
    /// Fraction of samples in which its clocks were limited, by reason.
    pub limited: BTreeMap<ClockLimit, f64>,
}

impl SummaryBuilder {
    /// Creates an empty builder.
    pub fn new() -> SummaryBuilder {
        SummaryBuilder::default()
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
            limits.reported += 1;
            found.iter().for_each(|limit| *limits.counts.entry(*limit).or_default() += 1);
        }
    }

    /// Summary of the samples so far.
    pub fn summary(&self) -> Summary {
        let seconds = (self.last - self.first).max(0.0);
        let row = |(name, gpu, unit, series): &(&'static str, Option<usize>, Unit, Series)| {
            Some(QuantitySummary { name, gpu: *gpu, unit: *unit, spread: series.spread()? })
        };
        let oscillation = |index: usize| {
            let is_utilisation = |(name, gpu, ..): &&(&str, Option<usize>, Unit, Series)| {
                *name == "utilisation" && *gpu == Some(index)
            };
            self.series.iter().find(is_utilisation).and_then(|(.., series)| series.oscillation(seconds))
        };
        let gpus = self.gpus.iter().enumerate().map(|(index, limits)| GpuSummary {
            oscillation: oscillation(index),
            limited: (limits.counts.iter())
                .map(|(limit, count)| (*limit, *count as f64 / limits.reported as f64))
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

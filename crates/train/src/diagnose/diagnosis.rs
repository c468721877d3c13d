//! What can be said of a trace: who holds training up, by which numbers, and what to set.

use super::period::Period;
use serde::Serialize;

/// Who holds training up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing: steps follow each other.
    Healthy,
    /// Records come slowly from where they lie.
    Disk,
    /// Sound is decoded and its features computed while training waits.
    Decode,
    /// Putting batches together.
    Collate,
    /// Making batches a program's inputs.
    Inputs,
    /// One of the loader's threads is far slower than the others.
    SlowWorker,
    /// Enough batches are made, but too few lie ready when one comes late.
    TinyBuffer,
    /// Copies wait for steps, and steps for copies.
    UploadLock,
    /// Copies from memory that is not page-locked.
    PageableUploads,
    /// Copies take long though they start in page-locked memory.
    Transfer,
    /// New shapes keep coming, and each has to be recorded.
    ShapeChurn,
    /// Something comes back every so many batches.
    PeriodicStall,
    /// Other programs have the processor.
    Processor,
    /// Steps take longer than they do alone.
    SlowStep,
    /// Steps of one shape take one time and then another.
    NoisyStep,
    /// The GPU is too hot.
    Heat,
    /// The GPU may not draw more power.
    Power,
}

impl Cause {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Healthy => "healthy: the step is what takes the time",
            Cause::Disk => "slow disk",
            Cause::Decode => "slow decoding and features",
            Cause::Collate => "slow collation",
            Cause::Inputs => "slow making of inputs",
            Cause::SlowWorker => "one slow loader thread",
            Cause::TinyBuffer => "too small a buffer",
            Cause::UploadLock => "uploads and steps wait for each other",
            Cause::PageableUploads => "uploads from pageable memory",
            Cause::Transfer => "slow uploads",
            Cause::ShapeChurn => "new shapes compiled again and again",
            Cause::PeriodicStall => "a stall that comes back",
            Cause::Processor => "the processor is taken by other programs",
            Cause::SlowStep => "the step is slower than it has to be",
            Cause::NoisyStep => "the step's time varies",
            Cause::Heat => "the GPU is held back by heat",
            Cause::Power => "the GPU is held back by its power limit",
        }
    }
}

/// A cause, and what speaks against it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Who.
    #[serde(rename = "culprit")]
    pub cause: Cause,
    /// The numbers it was found by, in words.
    pub evidence: String,
    /// What to set, or to do.
    pub recommendation: String,
    /// Steps per second more if it were gone, at most: 0.25 is a quarter more. None where a trace cannot tell.
    pub gain: Option<f64>,
}

/// Times between the ends of steps that go up and down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oscillation {
    /// Standard deviation over mean.
    pub variation: f64,
    /// Whether, and how, it comes back.
    pub period: Option<Period>,
    /// Share of the time a step ran, in the worst twentieth of the batches.
    pub busy_low: f64,
    /// The same in the best.
    pub busy_high: f64,
}

/// Batches as they were trained, beside the same ones from a cache on the device, in seconds for each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Batches whose shape was also replayed.
    pub batches: usize,
    /// From the end of one step to the end of the next, as the pipeline fed them.
    pub trained: f64,
    /// The same with every batch on the device already and steps queued ahead.
    pub replayed: f64,
    /// The step by itself.
    pub alone: f64,
}

impl Compared {
    /// Steps per second more with every batch on the device already.
    pub fn headroom(&self) -> f64 {
        (self.trained / self.replayed.max(1e-12) - 1.0).max(0.0)
    }
}

/// The GPU over a trace, where the driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Device {
    /// Samples.
    pub samples: usize,
    /// Share of the time a kernel ran, on average.
    pub busy: f64,
    /// In the worst twentieth of the samples.
    pub busy_low: f64,
    /// In the best.
    pub busy_high: f64,
    /// The highest, in degrees Celsius.
    pub temperature: Option<f64>,
    /// Mean, in watts.
    pub power: Option<f64>,
    /// Mean, in megahertz.
    pub clock: Option<f64>,
    /// The most it can have.
    pub clock_most: Option<f64>,
    /// Share of the samples with its clock held back by heat.
    pub held_by_heat: f64,
    /// The same by its power limit.
    pub held_by_power: f64,
}

/// What a trace says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What costs most, first. Never empty.
    pub findings: Vec<Finding>,
    /// Only where the times vary too much.
    pub oscillation: Option<Oscillation>,
    /// Share of the time in which a step ran, without batches that are left out.
    pub busy: f64,
    /// What waits add to the steps, of 1.
    pub waiting: f64,
    /// Steps per second more with every batch on the device already; none where that was not measured.
    pub headroom: Option<f64>,
    /// What that was taken from.
    pub compared: Option<Compared>,
    /// The GPU, where it was looked at.
    pub gpu: Option<Device>,
    /// Batches that no other figure here counts: their shape was new, or another's was recorded meanwhile.
    pub left_out: usize,
    /// Share of all time that new shapes took beyond their steps.
    pub recording: f64,
}

impl Diagnosis {
    /// Who costs most.
    pub fn cause(&self) -> Cause {
        self.findings.first().map_or(Cause::Healthy, |finding| finding.cause)
    }
}

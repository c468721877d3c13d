//! The result of analysing a trace: causes, the numbers they were found by, and what to set.

use super::period::Period;
use serde::Serialize;

/// What slows training down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing: waits for batches, and pauses between steps, each take less than a twentieth of the time.
    Healthy,
    /// Records are read slowly.
    Disk,
    /// Audio is decoded and features are computed while training waits.
    Decode,
    /// Collating batches is slow.
    Collate,
    /// Converting batches to a program's inputs is slow.
    Inputs,
    /// One loader thread is far slower than the others.
    SlowWorker,
    /// Enough batches are made, but too few are ready when one is late.
    TinyBuffer,
    /// Copies wait for steps, and steps for copies.
    UploadLock,
    /// Copies start in pageable memory.
    PageableUploads,
    /// Copies are slow although they start in page-locked memory.
    Transfer,
    /// New shapes keep occurring, and each has to be captured.
    ShapeChurn,
    /// A delay occurs periodically.
    PeriodicStall,
    /// Other programs use the CPU.
    #[serde(rename = "processor")]
    CpuContention,
    /// Steps take longer than they do alone.
    SlowStep,
    /// The time of steps of one shape varies.
    NoisyStep,
    /// The GPU reduces its clock because of heat.
    Heat,
    /// The GPU reduces its clock because of its power limit.
    Power,
}

impl Cause {
    /// Name of the cause, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Healthy => "healthy: steps take nearly all of the time",
            Cause::Disk => "slow disk",
            Cause::Decode => "slow decoding and features",
            Cause::Collate => "slow collation",
            Cause::Inputs => "slow conversion to inputs",
            Cause::SlowWorker => "one slow loader thread",
            Cause::TinyBuffer => "buffer too small",
            Cause::UploadLock => "uploads and steps wait for each other",
            Cause::PageableUploads => "uploads from pageable memory",
            Cause::Transfer => "slow uploads",
            Cause::ShapeChurn => "new shapes are captured again and again",
            Cause::PeriodicStall => "a periodic stall",
            Cause::CpuContention => "the CPU is used by other programs",
            Cause::SlowStep => "the step is slower than necessary",
            Cause::NoisyStep => "the step's time varies",
            Cause::Heat => "the GPU is limited by heat",
            Cause::Power => "the GPU is limited by its power limit",
        }
    }
}

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The cause.
    #[serde(rename = "culprit")]
    pub cause: Cause,
    /// The numbers it was found by, as text.
    pub evidence: String,
    /// What to set or do.
    pub recommendation: String,
    /// Maximum increase of steps per second if it were removed: 0.25 is a quarter more. `None` if a trace cannot tell.
    pub gain: Option<f64>,
}

/// Variation of the times between the ends of steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oscillation {
    /// Standard deviation over mean.
    pub variation: f64,
    /// The period of the variation; `None` if it is not periodic.
    pub period: Option<Period>,
    /// Share of the time that a step ran, in the worst 5 % of the batches.
    pub busy_low: f64,
    /// The same in the best 5 %.
    pub busy_high: f64,
}

/// Mean times of the same batches in training and replayed from the device, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Number of batches whose shape was also replayed.
    pub batches: usize,
    /// Period in training.
    pub trained: f64,
    /// Period with every batch on the device already and steps queued ahead.
    pub replayed: f64,
    /// Time of the step alone.
    pub alone: f64,
}

impl Compared {
    /// Relative increase of steps per second with every batch on the device already.
    pub fn headroom(&self) -> f64 {
        (self.trained / self.replayed.max(1e-12) - 1.0).max(0.0)
    }
}

/// GPU state over a trace, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Device {
    /// Number of samples.
    pub samples: usize,
    /// Mean share of the time that a kernel ran.
    pub busy: f64,
    /// The same in the worst 5 % of the samples.
    pub busy_low: f64,
    /// The same in the best 5 %.
    pub busy_high: f64,
    /// Maximum temperature, in degrees Celsius.
    pub temperature: Option<f64>,
    /// Mean power, in watts.
    pub power: Option<f64>,
    /// Mean clock, in megahertz.
    pub clock: Option<f64>,
    /// Maximum clock, in megahertz.
    pub clock_most: Option<f64>,
    /// Share of the samples with the clock reduced by heat.
    pub held_by_heat: f64,
    /// Share of the samples with the clock reduced by the power limit.
    pub held_by_power: f64,
}

/// The result of analysing a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Findings, the most expensive first. Never empty.
    pub findings: Vec<Finding>,
    /// Set only if the times vary too much.
    pub oscillation: Option<Oscillation>,
    /// Share of the time in which a step ran, without the batches left out.
    pub busy: f64,
    /// Waits as a share of the step time.
    pub waiting: f64,
    /// Relative increase of steps per second with every batch on the device already; `None` if that was not measured.
    pub headroom: Option<f64>,
    /// The measurement behind `headroom`.
    pub compared: Option<Compared>,
    /// The GPU; `None` if it was not sampled.
    pub gpu: Option<Device>,
    /// Number of batches that all other fields leave out: their shape was new, or another's was captured meanwhile.
    pub left_out: usize,
    /// Share of all time that new shapes took beyond their steps.
    pub recording: f64,
}

impl Diagnosis {
    /// The most expensive cause.
    pub fn cause(&self) -> Cause {
        self.findings.first().map_or(Cause::Healthy, |finding| finding.cause)
    }
}

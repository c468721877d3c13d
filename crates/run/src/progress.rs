//! Progress reports of long work. The receiver may be a terminal, a log or nothing.

use crate::loss_trend::Direction;

/// Receives the progress of long work. Methods are called from worker threads, and do nothing unless implemented.
///
/// Work on a number of items calls `start`, `advance` and `finish`. A training stage calls `stage`, `step` and
/// `stage_end`. Both may call `say`.
pub trait Progress: Sync {
    /// Work on `total` items starts.
    fn start(&self, _what: &str, _total: u64) {}
    /// `items` more items are done.
    fn advance(&self, _items: u64) {}
    /// The work started by `start` has ended.
    fn finish(&self) {}
    /// A message for the user, shown without disturbing a progress bar.
    fn say(&self, _message: &str) {}
    /// A training stage of `steps` steps starts, or resumes after step `from`. `described` is its setup, line by line.
    fn stage(&self, _name: &'static str, _from: u64, _steps: u64, _described: &[String]) {}
    /// A step of the stage is done.
    fn step(&self, _progress: &StepProgress) {}
    /// The stage has ended.
    fn stage_end(&self) {}
}

/// Progress of a training stage after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProgress {
    /// Steps of the stage that are done.
    pub step: u64,
    /// Epochs so far, including the fraction of the current one.
    pub epoch: f64,
    /// Loss of this step.
    pub loss: f64,
    /// Mean of the most recent losses.
    pub mean: f64,
    /// Direction of the most recent losses; `None` where there are too few of them.
    pub direction: Option<Direction>,
    /// Other measured values by name.
    pub numbers: Vec<(&'static str, f64)>,
    /// Clips per second over the last seconds.
    pub rate: f64,
    /// Fraction (0 to 1) of the last seconds in which a step ran on the device; `None` on the CPU. Gaps between the
    /// kernels of a step are included: kernel times need the driver's profiler, which slows training, so only
    /// benchmarks measure them.
    ///
    /// The event `step` and the curve `STAGE/busy` keep the name `busy` that this share has in stored runs. The busy
    /// share of a benchmark is another one: the time in which kernels ran (`docs/src/benchmarks.md`, "Busy share").
    pub on_device: Option<f64>,
    /// Fraction (0 to 1) of the last seconds in which the loop waited for batches; `None` before the first measured
    /// step.
    pub wait: Option<f64>,
    /// Fraction (0 to 1) of the last seconds in which steps waited for gradients to be summed over processes; `None`
    /// in a run of one process.
    pub communication: Option<f64>,
    /// Learning rate of this step.
    pub learning_rate: f64,
}

/// Ignores all progress.
pub struct Silent;

impl Progress for Silent {}

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
    /// A training stage of `steps` steps starts, or resumes after step `from`. `described` is its setup in lines.
    fn stage(&self, _name: &'static str, _from: u64, _steps: u64, _described: &[String]) {}
    /// A step of the stage is done.
    fn step(&self, _progress: &StepProgress) {}
    /// The stage has ended.
    fn stage_end(&self) {}
}

/// What is reported about a training step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProgress {
    /// Steps of the stage that are done.
    pub step: u64,
    /// Passes over the data, with fractions.
    pub epoch: f64,
    /// Loss of this step.
    pub loss: f64,
    /// Mean of the last losses.
    pub mean: f64,
    /// Direction of the last losses; `None` where there are too few of them.
    pub direction: Option<Direction>,
    /// Other measured numbers by name.
    pub numbers: Vec<(&'static str, f64)>,
    /// Clips per second over the last seconds.
    pub rate: f64,
    /// Share of the last seconds that steps took on the device, each from its start to its end. `None` where the device
    /// is the CPU. Gaps between the kernels of a step are included: kernel times need the driver's profiler, which costs
    /// time, and only a benchmark asks for them.
    ///
    /// The event `step` and the curve `STAGE/busy` keep the name `busy` that this share has in stored runs. The busy share of
    /// a benchmark is another one: the time in which kernels ran (`docs/src/benchmarks.md`, "Busy share").
    pub on_device: Option<f64>,
    /// Share of the last seconds that the loop waited for batches. `None` before the first measured step.
    pub wait: Option<f64>,
    /// Share of the last seconds that steps waited while gradients were summed over processes. `None` in a run of one process.
    pub communication: Option<f64>,
    /// Learning rate of this step.
    pub learning_rate: f64,
}

/// Ignores all progress.
pub struct Silent;

impl Progress for Silent {}

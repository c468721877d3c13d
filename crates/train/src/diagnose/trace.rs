//! Measurements of every batch, from its records to the end of its step. All times are in seconds.
//!
//! | time | spent by | effect |
//! |---|---|---|
//! | `read`, `decode`, `collate` | one of the loader's threads | parallel to steps, divided over all threads |
//! | `fill`, `blocked`, `upload` | the feed's thread | parallel to steps, one batch after the other |
//! | `wait` | the training loop | the step cannot start |
//! | `step` | the device | useful work |
//! | `period` | the clock | from the end of the step before to the end of this one |

use serde::Serialize;

/// Measurements of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Batch {
    /// Rows, text positions, audio positions.
    pub shape: [usize; 3],
    /// Whether its shape was new, so that its step had to be measured or captured first.
    pub compiled: bool,
    /// Whether another batch's new shape was captured while this one was in flight, so that its time is not its own.
    pub beside_new: bool,
    /// Index of the loader thread that assembled it.
    pub worker: usize,
    /// Time to read its records.
    pub read: f64,
    /// Time to decode audio and compute its features, where records are computed on demand.
    pub decode: f64,
    /// Time to collate its rows.
    pub collate: f64,
    /// Time to convert it to a program's inputs.
    pub fill: f64,
    /// Time that the feed's thread was blocked before it could copy.
    pub blocked: f64,
    /// Time to copy it to the device, on the feed's thread.
    pub upload: f64,
    /// Time that the loop waited for it.
    pub wait: f64,
    /// Time of its step on the device.
    pub step: f64,
    /// Time from the end of the step before to the end of its own.
    pub period: f64,
}

impl Batch {
    /// Time that a loader thread spent on it.
    pub fn load(&self) -> f64 {
        self.read + self.decode + self.collate
    }

    /// Whether its time includes measuring or capturing a shape, its own or another's.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.compiled || self.beside_new
    }

    /// Time that the feed's thread spent on it.
    pub fn feed(&self) -> f64 {
        self.fill + self.blocked + self.upload
    }
}

/// How batches were made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// Number of loader threads.
    pub workers: usize,
    /// Maximum number of ready batches.
    pub slots: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// CPU cores of the machine.
    pub cores: usize,
    /// Bytes per batch.
    pub batch_bytes: usize,
    /// Whether copies start in page-locked memory; false on a CPU, which has no copies.
    pub pinned: bool,
    /// Whether steps run on a GPU, or on the same cores as everything else.
    pub on_gpu: bool,
}

/// CPU usage, as shares of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuUsage {
    /// Usage of this process.
    pub own: f64,
    /// Usage of all processes.
    pub all: f64,
    /// Time that threads of this process waited for a core; `None` if the system does not report it.
    pub delayed: Option<Delayed>,
}

/// Time in which a thread was runnable and no core was free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delayed {
    /// Seconds of delay of batches: of the feed's thread, plus the mean over loader threads.
    pub feeding: f64,
    /// Waiting time of all other threads, as a share of the time they ran or waited.
    pub stepping: f64,
}

/// CPU usage at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoresSample {
    /// Seconds since the trace began.
    pub at: f64,
    /// Share of all cores that was busy since the sample before.
    pub busy: f64,
}

/// GPU state at one moment, from NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Seconds since the trace began.
    pub at: f64,
    /// Share of the last sampling period in which a kernel ran; `None` if it is not reported.
    pub busy: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature: Option<f64>,
    /// Power in watts.
    pub power: Option<f64>,
    /// Clock in megahertz.
    pub clock: Option<f64>,
    /// Maximum clock in megahertz.
    pub clock_most: Option<f64>,
    /// Whether the clock is reduced because of heat.
    pub thermal_limit: bool,
    /// Whether the clock is reduced because of the power limit.
    pub power_limit: bool,
}

/// All measurements of a run of `diagnose`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// How batches were made.
    pub setup: Setup,
    /// Every batch, in order.
    pub batches: Vec<Batch>,
    /// CPU usage over the trace.
    #[serde(rename = "processor")]
    pub cpu: Option<CpuUsage>,
    /// CPU usage over time.
    pub cores: Vec<CoresSample>,
    /// GPU state over time.
    pub gpu: Vec<GpuSample>,
    /// Why there are no GPU samples.
    pub no_gpu: Option<String>,
    /// Shape and step time without a feed, of batches already on the device.
    pub alone: Vec<([usize; 3], f64)>,
    /// Shape and period of the same batches, queued ahead as in training: includes the overhead of the loop.
    pub replayed: Vec<([usize; 3], f64)>,
}

//! What was measured of every batch on its way, from its records to the end of its step. All times are seconds.
//!
//! | time | who spends it | counts |
//! |---|---|---|
//! | `read`, `decode`, `features`, `collate` | one of the loader's threads | beside the step, shared by all threads |
//! | `fill`, `blocked`, `upload` | the feed's thread | beside the step, one batch after the other |
//! | `wait` | the loop | the step cannot begin |
//! | `step` | the device | what one pays for |
//! | `period` | the clock | from the end of the step before to the end of this one |

use serde::Serialize;

/// A batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Batch {
    /// Rows, places of text, places of sound.
    pub shape: [usize; 3],
    /// Whether its shape was new, so that its step had to be measured or recorded first.
    pub compiled: bool,
    /// Whether another batch's new shape was met while it was under way, so that its time is not its own.
    pub beside_new: bool,
    /// The loader's thread that put it together.
    pub worker: usize,
    /// Reading its records.
    pub read: f64,
    /// Decoding sound, where records are computed as they are read.
    pub decode: f64,
    /// Computing features of it; nothing where that is counted with decoding because both are done in one go.
    pub features: f64,
    /// Putting rows beside each other.
    pub collate: f64,
    /// Making it a program's inputs.
    pub fill: f64,
    /// The feed's thread stood still before it could copy.
    pub blocked: f64,
    /// Copying it to the device, as far as the feed's thread has to do with it.
    pub upload: f64,
    /// The loop stood still for it.
    pub wait: f64,
    /// Its step.
    pub step: f64,
    /// From the end of the step before to the end of its own.
    pub period: f64,
}

impl Batch {
    /// What one of the loader's threads spent on it.
    pub fn load(&self) -> f64 {
        self.read + self.decode + self.features + self.collate
    }

    /// Whether its time is one of measuring or recording a shape, its own or another's.
    pub fn is_disturbed(&self) -> bool {
        self.compiled || self.beside_new
    }

    /// What the feed's thread spent on it.
    pub fn feed(&self) -> f64 {
        self.fill + self.blocked + self.upload
    }
}

/// How batches were made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// The loader's threads.
    pub workers: usize,
    /// Batches that may lie ready at most.
    pub slots: usize,
    /// Batches in a step.
    pub batch_size: usize,
    /// Cores of the machine.
    pub cores: usize,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Whether copies start in page-locked memory; without a device there are none.
    pub pinned: bool,
    /// Whether steps run on a GPU, or on the cores that everything else runs on.
    pub on_gpu: bool,
}

/// How busy the processor was, as shares of all its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Processor {
    /// This process.
    pub own: f64,
    /// Every process.
    pub all: f64,
    /// How this program's threads stood in line for a core, where the system tells.
    pub delayed: Option<Delayed>,
}

/// Time in which a thread could have run and no core was free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delayed {
    /// Seconds that batches were later by it: of the feed's thread, and of the loader's threads on average.
    pub feeding: f64,
    /// Share of the time that all other threads ran or would have.
    pub stepping: f64,
}

/// All cores at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoresSample {
    /// Seconds since the trace began.
    pub at: f64,
    /// Share of them that was busy, since the sample before.
    pub busy: f64,
}

/// The GPU at a moment, as NVML tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Seconds since the trace began.
    pub at: f64,
    /// Share of the last moments in which a kernel ran, where it is told.
    pub busy: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Watts.
    pub power: Option<f64>,
    /// Megahertz.
    pub clock: Option<f64>,
    /// The most it can have.
    pub clock_most: Option<f64>,
    /// Its clock is held back because it is too hot.
    pub thermal_limit: bool,
    /// Its clock is held back because it may not draw more power.
    pub power_limit: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// How batches were made.
    pub setup: Setup,
    /// Batch by batch.
    pub batches: Vec<Batch>,
    /// The processor, meanwhile.
    pub processor: Option<Processor>,
    /// The same moment by moment.
    pub cores: Vec<CoresSample>,
    /// The GPU, meanwhile.
    pub gpu: Vec<GpuSample>,
    /// Why there is nothing of the GPU, where there is nothing.
    pub no_gpu: Option<String>,
    /// Shapes and steps with nothing fed: batches that already lay on the device.
    pub alone: Vec<([usize; 3], f64)>,
    /// The same, from the end of one step to the end of the next, queued ahead as in training: what the loop itself adds.
    pub replayed: Vec<([usize; 3], f64)>,
}

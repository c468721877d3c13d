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
    /// The loader's thread that put it together.
    pub worker: usize,
    /// Reading its records.
    pub read: f64,
    /// Decoding sound.
    pub decode: f64,
    /// Computing features of it.
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
}

/// How busy the processor was, as shares of all its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Processor {
    /// This process.
    pub own: f64,
    /// Every process.
    pub all: f64,
}

/// The GPU at a moment, as NVML tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Gpu {
    /// Seconds since the trace began.
    pub at: f64,
    /// Share of the last moments in which a kernel ran.
    pub busy: f64,
    /// Degrees Celsius.
    pub temperature: f64,
    /// Watts.
    pub power: f64,
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
    /// The GPU, meanwhile.
    pub gpu: Vec<Gpu>,
    /// Shapes and steps with nothing fed: batches that already lay on the device.
    pub alone: Vec<([usize; 3], f64)>,
}

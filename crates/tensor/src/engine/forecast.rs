//! The memory an engine would take, known without one: no device is opened and nothing is allocated.

use super::program::schedule_on;
use super::{EngineOptions, Streams, arena};
use crate::cuda::context::LIBRARY_BYTES;
use crate::device::Device;
use crate::memory::{MemoryNeed, MemoryPlan};
use crate::parameters::Layout;
use crate::tape::{Precision, Tape};

/// An engine as far as its memory goes.
#[derive(Clone, Debug)]
pub struct Forecast {
    memory: MemoryNeed,
    gpu: bool,
    streams: Streams,
}

impl Forecast {
    /// Of an engine that would be made so.
    pub fn new(device: Device, layout: &Layout, precision: Precision, options: &EngineOptions) -> Forecast {
        let gpu = matches!(device, Device::Cuda(_));
        let libraries = if gpu { LIBRARY_BYTES } else { 0 };
        let memory = MemoryNeed { libraries, ..arena::need(layout, precision, options.training) };
        Forecast { memory, gpu, streams: options.streams }
    }

    /// What it would hold before its first program, as `Engine::memory`.
    pub fn memory(&self) -> &MemoryNeed {
        &self.memory
    }

    /// The memory a tape would take there, as `Engine::plan_of`.
    pub fn plan_of(&self, tape: &Tape) -> MemoryPlan {
        MemoryPlan::scheduled(tape, &schedule_on(self.gpu, self.streams, tape))
    }
}

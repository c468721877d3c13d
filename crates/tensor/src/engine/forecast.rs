//! The memory an engine would need, computed without opening a device or allocating anything.

use super::program::schedule_on;
use super::{EngineOptions, Streams, arena};
use crate::cuda::context::LIBRARY_BYTES;
use crate::device::Device;
use crate::memory::{MemoryNeed, MemoryPlan};
use crate::parameters::Layout;
use crate::tape::{Precision, Tape};

/// Memory of an engine that does not exist yet.
#[derive(Clone, Debug)]
pub struct Forecast {
    memory: MemoryNeed,
    gpu: bool,
    streams: Streams,
}

impl Forecast {
    /// Forecasts the memory of an engine with these options.
    pub fn new(device: Device, layout: &Layout, precision: Precision, options: &EngineOptions) -> Forecast {
        let gpu = matches!(device, Device::Cuda(_));
        let libraries = if gpu { LIBRARY_BYTES } else { 0 };
        let memory = MemoryNeed { libraries, ..arena::need(layout, precision, options.training) };
        Forecast { memory, gpu, streams: options.streams }
    }

    /// Memory held before the first program, as `Engine::memory`.
    pub fn memory(&self) -> &MemoryNeed {
        &self.memory
    }

    /// Memory a tape would need, as `Engine::plan_of`.
    pub fn plan_of(&self, tape: &Tape) -> MemoryPlan {
        MemoryPlan::scheduled(tape, &schedule_on(self.gpu, self.streams, tape))
    }
}

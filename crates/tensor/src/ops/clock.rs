//! Measures how long a step waits for sums over replicas: from the end of its own work to the last sum. Measured on
//! the device, inside the captured step. On the CPU the sums do not overlap with other work, and the collective
//! measures them.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::step::report;
use crate::tape::{EngineBuffer, Spec, Tape};
use std::sync::Arc;

/// Output: the current time, as two words.
#[derive(Debug)]
struct Start;

impl Op for Start {
    fn name(&self) -> &'static str {
        "clock_start"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        io.take_i32(0).fill(0);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        io.launch("clock_start", Launch::line(1, 32), &args![io.output(0)])
    }
}

/// Inputs: the start time, and the gradients, which are waited for. Output: the report, of which one element is
/// written.
#[derive(Debug)]
struct End;

impl Op for End {
    fn name(&self) -> &'static str {
        "clock_end"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        io.take(0)[report::REDUCE_WAIT_MS] = 0.0;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let out = io.output(0) + 4 * report::REDUCE_WAIT_MS as u64;
        io.launch("clock_end", Launch::line(1, 32), &args![out, io.input(0)])
    }
}

impl Tape {
    /// Reports how long the following operations wait for the sums of gradients. Call it after the backward pass
    /// and its sums.
    pub(crate) fn time_sums(&mut self) {
        let start = self.scratch(Spec::constant([2], DType::I32), false);
        self.push_into(Arc::new(Start), &[], &[start], &[None]);
        let (gradients, said) =
            (self.engine_buffer(EngineBuffer::Gradients), self.engine_buffer(EngineBuffer::Report));
        self.push_into(Arc::new(End), &[start, gradients], &[said], &[None]);
    }
}

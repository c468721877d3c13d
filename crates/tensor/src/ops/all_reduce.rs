//! Sums over all replicas, in place: of gradients, and of values that a step stands on.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};

/// Sums a range of the gradient arena, or a value, over the replicas; without replicas it does nothing.
#[derive(Debug)]
pub(crate) struct AllReduce {
    /// Whether it may run beside the rest: only where nobody reads the sum before the update.
    pub aside: bool,
}

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn is_reduction(&self) -> bool {
        self.aside
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        if let Some(collective) = io.collective {
            collective.all_reduce_sum(io.take(0))?;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        if let Some(nccl) = io.collective {
            // SAFETY: the range is part of the gradient arena, or a value's own memory.
            unsafe { nccl.all_reduce_sum(io.output(0), io.output_shape(0).len(), io.stream()) }?;
        }
        Ok(())
    }
}

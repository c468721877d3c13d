//! Gradients summed over all replicas, in place.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};

/// Sums a range of the gradient arena over the replicas; without replicas it does nothing.
#[derive(Debug)]
pub(crate) struct AllReduce;

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn is_reduction(&self) -> bool {
        true
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        if let Some(collective) = io.collective {
            collective.all_reduce_sum(io.take(0))?;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        if let Some(nccl) = io.collective {
            // SAFETY: the range is part of the gradient arena.
            unsafe { nccl.all_reduce_sum(io.output(0), io.output_shape(0).len(), io.stream()) }?;
        }
        Ok(())
    }
}

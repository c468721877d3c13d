//! In-place sums over all replicas: of gradients, and of values the step itself depends on.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use half::bf16;

/// Sums a range of the gradient arena, or a value, over the replicas; without replicas it does nothing. Outputs:
/// the sum and, if it is rounded, workspace of half its size.
#[derive(Debug)]
pub(crate) struct AllReduce {
    /// Whether it may run on the side stream: only if the sum is not read before the update.
    pub overlaps: bool,
    /// Whether to communicate in bf16: half the bytes, with rounded sums.
    pub rounded: bool,
}

/// Rounds to bf16 and back.
fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
}

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn is_reduction(&self) -> bool {
        self.overlaps
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        if let Some(collective) = io.collective {
            let values = io.take(0);
            if self.rounded {
                round(values);
            }
            collective.all_reduce_sum(values)?;
            if self.rounded {
                round(values);
            }
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let Some(nccl) = io.collective else { return Ok(()) };
        let n = io.output_shape(0).len();
        if !self.rounded {
            // SAFETY: the range is part of the gradient arena, or a value's own memory.
            return Ok(unsafe { nccl.all_reduce_sum(io.output(0), n, io.stream()) }?);
        }
        let (values, space, each) = (io.output(0), io.output(1), Launch::each(n.div_ceil(4)));
        io.launch("cast_f32_bf16", each, &args![space, 0u64, values, n as i64])?;
        // SAFETY: the workspace has two bytes for each element.
        unsafe { nccl.all_reduce_sum_bf16(space, n, io.stream()) }?;
        io.launch("cast_bf16_f32", each, &args![values, 0u64, space, n as i64])
    }
}

//! In-place sums over all replicas: of gradients, and of values the step itself depends on.

use crate::args;
use crate::collective::Collective;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use cudarc::driver::result::{self, stream};
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

impl AllReduce {
    /// Sums on the host, in the order of replicas.
    fn sum(&self, values: &mut [f32], collective: &dyn Collective) -> Result<(), Error> {
        if self.rounded {
            round(values);
        }
        collective.all_reduce_sum(values)?;
        if self.rounded {
            round(values);
        }
        Ok(())
    }

    /// For replicas that share one GPU, which NCCL does not connect. Waits for the stream, so it cannot be captured.
    fn cuda_on_host(&self, io: &CudaIo<'_>, collective: &dyn Collective) -> Result<(), Error> {
        let mut values = vec![0f32; io.output_shape(0).len()];
        let failed = |e| Error::driver("sum over replicas of one GPU", e);
        // SAFETY: the range is part of the gradient arena, or a value's own memory, on the current device; the stream is
        // synchronised before the host reads the copy.
        unsafe { result::memcpy_dtoh_async(&mut values, io.output(0), io.stream()) }.map_err(failed)?;
        // SAFETY: the stream belongs to this device.
        unsafe { stream::synchronize(io.stream()) }.map_err(failed)?;
        self.sum(&mut values, collective)?;
        // SAFETY: as above; the stream is synchronised before `values` is freed.
        unsafe { result::memcpy_htod_async(io.output(0), &values, io.stream()) }.map_err(failed)?;
        // SAFETY: as above.
        unsafe { stream::synchronize(io.stream()) }.map_err(failed)
    }
}

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn is_reduction(&self) -> bool {
        self.overlaps
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        match io.collective {
            Some(collective) => self.sum(io.take(0), collective),
            None => Ok(()),
        }
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let Some(nccl) = io.collective else {
            return io.host_collective.map_or(Ok(()), |collective| self.cuda_on_host(io, collective));
        };
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

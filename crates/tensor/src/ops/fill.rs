//! Zeroing memory, and copies within the device.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::Shape;
use crate::tape::{Spec, Tape, Value};
use cudarc::driver::result;
use std::sync::Arc;

#[derive(Debug)]
struct Zero;

impl Op for Zero {
    fn name(&self) -> &'static str {
        "zero"
    }

    fn is_long(&self) -> bool {
        false
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        io.take(0).fill(0.0);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let bytes = io.output_shape(0).len() * io.output_dtype(0).size();
        // SAFETY: the output has that many bytes.
        unsafe { result::memset_d8_async(io.output(0), 0, bytes, io.stream()) }
            .map_err(|e| Error::driver("clear memory", e))
    }
}

/// Sets an existing value to zero.
pub(crate) fn zero(tape: &mut Tape, value: Value) {
    tape.push_into(Arc::new(Zero), &[], &[value], &[None]);
}

impl Tape {
    /// Zeros in the activation type, without a gradient. Adding a position table to them gives the table itself.
    pub fn zeros(&mut self, shape: impl Into<Shape>) -> Value {
        let value = self.scratch(Spec::constant(shape, self.dtype()), false);
        zero(self, value);
        value
    }
}

/// Queues a copy within the device.
pub(crate) fn copy_bytes(io: &CudaIo<'_>, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
    // SAFETY: both ranges belong to the plan.
    unsafe { result::memcpy_dtod_async(to, from, bytes, io.stream()) }
        .map_err(|e| Error::driver("copy memory", e))
}

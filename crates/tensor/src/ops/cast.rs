//! Conversion to another type, and adding a gradient to an existing one.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

/// `out = base + x`, in the type of `out`.
#[derive(Debug)]
pub(crate) struct Add;

impl Op for Add {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let x = io.f32(0);
        for (y, x) in io.accumulate(0).iter_mut().zip(x) {
            *y += x;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("cast_{}_{}", float(io.dtype(0)).suffix(), float(io.output_dtype(0)).suffix());
        io.launch(&name, Launch::each(n.div_ceil(4)), &args![io.output(0), io.base(0), io.input(0), n as i64])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let gradient = g.result_gradient();
        g.pass(0, gradient);
    }
}

impl Tape {
    /// Converts `x` to another type; returns `x` itself if it already has that type.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Value {
        if self.info(x).dtype == dtype {
            return x;
        }
        self.push_one(Add, &[x], Spec::new(self.shape(x), dtype))
    }
}

//! Swaps time and channels.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// `[b, rows, columns]` to `[b, columns, rows]`; the gradient is the reverse.
#[derive(Clone, Copy, Debug)]
struct Transpose {
    rows: usize,
    columns: usize,
}

impl Op for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        /// Columns processed at a time: a cache line, so that none is read twice.
        const STRIP: usize = 16;
        let (x, Transpose { rows, columns }) = (io.f32(0), *self);
        let items = io.accumulate(0).par_chunks_mut(rows * columns).zip(x.par_chunks(rows * columns));
        items.for_each(|(y, x)| {
            y.par_chunks_mut(STRIP * rows).enumerate().for_each(|(strip, y)| {
                for (r, x) in x.chunks_exact(columns).enumerate() {
                    for (y, x) in y.chunks_exact_mut(rows).zip(&x[strip * STRIP..]) {
                        y[r] += x;
                    }
                }
            });
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let Transpose { rows, columns } = *self;
        let batch = io.output_shape(0).len() / (rows * columns);
        let name = format!("transpose_{}", float(io.output_dtype(0)).suffix());
        let launch = Launch::grid(columns.div_ceil(64), rows.div_ceil(64), batch, 256);
        io.launch(&name, launch, &args![io.output(0), io.base(0), io.input(0), rows, columns])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(Transpose { rows: self.columns, columns: self.rows }, &[dy], &[target]);
    }
}

impl Tape {
    /// `x [b, t, c]` as `[b, c, t]`.
    pub fn transpose(&mut self, x: Value) -> Value {
        let shape = self.shape(x);
        assert_eq!(shape.rank(), 3, "x is [batch, time, channel], not {shape}");
        self.check_gradient_type(x);
        let [batch, rows, columns] = [shape.dim(0), shape.dim(1), shape.last()];
        let spec = Spec::new([batch, columns, rows], float(self.info(x).dtype));
        self.push_one(Transpose { rows, columns }, &[x], spec)
    }
}

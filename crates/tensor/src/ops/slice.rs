//! A range of time steps or of channels.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::pad::Pad;
use crate::tape::{Gradients, Spec, Tape, Value};
use std::ops::Range;

/// Columns of the input, viewed as rows of `width`: the channels of one time step, or all time steps of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub width: usize,
    pub from: usize,
    pub len: usize,
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, Slice { width, from, len }) = (io.f32(0), *self);
        let add = io.has_base(0);
        let y = if add { io.accumulate(0) } else { io.take(0) };
        vector::each_row(y, len, |row, y| {
            let x = &x[row * width + from..][..len];
            if add {
                y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
            } else {
                y.copy_from_slice(x);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let Slice { width, from, len } = *self;
        copy(io, 0, io.output_shape(0).len(), [len, len, 0, width, from])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(Pad { width: self.width, from: self.from, len: self.len }, &[dy], &[target]);
    }
}

/// Copies `count` elements of input `i`: `[n, pitch, to, width, from]` are the number of columns copied, the
/// output's row length and first column, and the input's row length and first column.
pub(crate) fn copy(
    io: &CudaIo<'_>,
    i: usize,
    count: usize,
    [n, pitch, to, width, from]: [usize; 5],
) -> Result<(), Error> {
    let name = format!("slice_copy_{}", float(io.output_dtype(0)).suffix());
    let args = args![
        io.output(0),
        io.base(0),
        io.input(i),
        count as i64,
        n as i64,
        pitch as i64,
        to as i64,
        width as i64,
        from as i64
    ];
    io.launch(&name, Launch::each(count.div_ceil(8)), &args)
}

impl Tape {
    /// Time steps `range` of `x [b, t, c]`.
    pub fn slice_time(&mut self, x: Value, range: Range<usize>) -> Value {
        let shape = self.shape(x);
        assert_eq!(shape.rank(), 3, "x is [batch, time, channel], not {shape}");
        let [batch, time, c] = [shape.dim(0), shape.dim(1), shape.last()];
        assert!(
            range.start < range.end && range.end <= time,
            "time steps {range:?} are out of bounds for {shape}"
        );
        self.check_gradient_type(x);
        let op = Slice { width: time * c, from: range.start * c, len: range.len() * c };
        let spec = Spec::new([batch, range.len(), c], float(self.info(x).dtype));
        self.push_one(op, &[x], spec)
    }

    /// Channels `range` of `x [.., c]`.
    pub fn slice_channels(&mut self, x: Value, range: Range<usize>) -> Value {
        let shape = self.shape(x);
        let c = shape.last();
        assert!(
            range.start < range.end && range.end <= c,
            "channels {range:?} are out of bounds for {shape}"
        );
        self.check_gradient_type(x);
        let op = Slice { width: c, from: range.start, len: range.len() };
        let spec = Spec::new(shape.with_last(range.len()), float(self.info(x).dtype));
        self.push_one(op, &[x], spec)
    }
}

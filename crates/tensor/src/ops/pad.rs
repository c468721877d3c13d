//! Padding of a sequence in time: zeros or reflection.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::slice::Slice;
use crate::ops::time;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Contents of the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// The time steps next to the end in reverse order, without the end itself: `c b | a b c d | c b`.
    Reflection,
}

/// Puts rows of `len` into rows of `width`, from column `from`, with zeros around them: the inverse of `Slice`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pad {
    pub width: usize,
    pub from: usize,
    pub len: usize,
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, Pad { width, from, len }) = (io.f32(0), *self);
        vector::each_row(io.accumulate(0), width, |row, y| {
            y[from..from + len].iter_mut().zip(&x[row * len..]).for_each(|(y, x)| *y += x);
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("slice_place_{}", float(io.output_dtype(0)).suffix());
        let Pad { width, from, len } = *self;
        let args =
            args![io.output(0), io.base(0), io.input(0), n as i64, width as i64, from as i64, len as i64];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(Slice { width: self.width, from: self.from, len: self.len }, &[dy], &[target]);
    }
}

/// Input: `[b, time, c]`. Output: `[b, left + time + right, c]`.
#[derive(Clone, Copy, Debug)]
struct Reflect {
    time: usize,
    c: usize,
    left: usize,
    right: usize,
}

impl Reflect {
    fn longer(&self) -> usize {
        self.left + self.time + self.right
    }
}

impl Op for Reflect {
    fn name(&self) -> &'static str {
        "reflect"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, Reflect { time, c, left, .. }) = (io.f32(0), *self);
        time::gather(io.accumulate(0), x, [self.longer(), time, c], |t, take| {
            let at = t.abs_diff(left);
            take(if at < time { at } else { 2 * (time - 1) - at }, 1.0);
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("pad_reflect_forward_{}", float(io.dtype(0)).suffix());
        let Reflect { time, c, left, .. } = *self;
        let args = args![io.output(0), io.input(0), n as i64, self.longer(), time, c, left];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(ReflectBackward(*self), &[dy], &[target]);
    }
}

/// Input: dy. Output: dx, each time step summed with its reflections.
#[derive(Clone, Copy, Debug)]
struct ReflectBackward(Reflect);

impl Op for ReflectBackward {
    fn name(&self) -> &'static str {
        "reflect'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, Reflect { time, c, left, right }) = (io.f32(0), self.0);
        time::gather(io.accumulate(0), dy, [time, self.0.longer(), c], |t, take| {
            take(t + left, 1.0);
            if (1..=left).contains(&t) {
                take(left - t, 1.0);
            }
            if t + 1 < time && t + 1 + right >= time {
                take(left + 2 * (time - 1) - t, 1.0);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("pad_reflect_backward_{}", float(io.output_dtype(0)).suffix());
        let Reflect { time, c, left, .. } = self.0;
        let args = args![io.output(0), io.base(0), io.input(0), n as i64, time, self.0.longer(), c, left];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

impl Tape {
    /// `x [b, t, c]` with `left` time steps before it and `right` after it. A reflection must be shorter than `x`.
    pub fn pad_time(&mut self, x: Value, left: usize, right: usize, padding: Padding) -> Value {
        let shape = self.shape(x);
        assert_eq!(shape.rank(), 3, "x is [batch, time, channel], not {shape}");
        let [batch, time, c] = [shape.dim(0), shape.dim(1), shape.last()];
        if left + right == 0 {
            return x;
        }
        self.check_gradient_type(x);
        let longer = left + time + right;
        let spec = Spec::new([batch, longer, c], float(self.info(x).dtype));
        if padding == Padding::Zeros {
            return self.push_one(Pad { width: longer * c, from: left * c, len: time * c }, &[x], spec);
        }
        assert!(left.max(right) < time, "{time} time steps cannot be reflected by {left} and {right}");
        self.push_one(Reflect { time, c, left, right }, &[x], spec)
    }
}

//! Sums and means over time, `[b, t, c]` to `[b, c]`, and weighted gathers over time.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Target, Value};

/// Inputs: x `[b, t, c]`, another value of that shape to multiply by if `product`, lengths `[b]` i32 if `lengths`.
/// Outputs: `[b, c]`, workspace.
#[derive(Clone, Copy, Debug)]
struct TimeSum {
    shape: Shape,
    product: bool,
    lengths: bool,
    mean: bool,
}

/// Number of splits of the time axis, each summed by its own block: long ones, and no more than can be added at
/// once.
fn splits(time: usize) -> usize {
    (time / 64).clamp(1, 32)
}

/// Number of time steps of an item that count.
fn length(lengths: Option<&[i32]>, item: usize, time: usize) -> usize {
    lengths.map_or(time, |l| (l[item].max(0) as usize).min(time))
}

impl TimeSum {
    fn workspace(&self) -> Spec {
        let [batch, time, c] = [self.shape.dim(0), self.shape.dim(1), self.shape.last()];
        Spec::constant([batch * splits(time) * c], DType::F32)
    }

    fn lengths_at(&self) -> usize {
        1 + usize::from(self.product)
    }
}

impl Op for TimeSum {
    fn name(&self) -> &'static str {
        if self.mean { "time_mean" } else { "time_sum" }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let [time, c] = [self.shape.dim(1), self.shape.last()];
        let x = io.f32(0);
        let y = self.product.then(|| io.f32(1));
        let lengths = self.lengths.then(|| io.i32(self.lengths_at()));
        vector::each_row(io.accumulate(0), c, |item, sums| {
            let length = length(lengths, item, time);
            let share = if self.mean { 1.0 / length.max(1) as f32 } else { 1.0 };
            let mut all = vec![0f32; c];
            for row in (item * time..item * time + length).map(|t| t * c..(t + 1) * c) {
                match y {
                    Some(y) => {
                        for ((s, x), y) in all.iter_mut().zip(&x[row.clone()]).zip(&y[row]) {
                            *s += x * y;
                        }
                    }
                    None => all.iter_mut().zip(&x[row]).for_each(|(s, x)| *s += x),
                }
            }
            sums.iter_mut().zip(all).for_each(|(s, sum)| *s += sum * share);
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let [batch, time, c] = [self.shape.dim(0), self.shape.dim(1), self.shape.last()];
        let (count, dtype) = (splits(time), float(io.dtype(0)).suffix());
        let y = if self.product { io.input(1) } else { 0 };
        let lengths = if self.lengths { io.input(self.lengths_at()) } else { 0 };
        let parts = io.output(1);
        let each = args![parts, io.input(0), y, lengths, time, c, time.div_ceil(count)];
        let name = format!("time_sum_chunks_{dtype}");
        io.launch(&name, Launch::grid(c.div_ceil(64), count, batch, 256), &each)?;
        let mean = i32::from(self.mean);
        let all = args![io.output(0), io.base(0), parts, lengths, time, c, count, batch * c, mean];
        io.launch(&format!("time_sum_together_{dtype}"), Launch::each(batch * c), &all)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let mut inputs = vec![dy];
        if self.lengths {
            inputs.push(g.input(self.lengths_at()));
        }
        let target = g.target(0);
        let [time, c] = [self.shape.dim(1), self.shape.last()];
        g.push(TimeMeanBackward { time, c }, &inputs, &[target]);
    }
}

/// Inputs: dy `[b, c]`, lengths if any. Output: dx `[b, t, c]`.
#[derive(Clone, Copy, Debug)]
struct TimeMeanBackward {
    time: usize,
    c: usize,
}

impl Op for TimeMeanBackward {
    fn name(&self) -> &'static str {
        "time_mean'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, TimeMeanBackward { time, c }) = (io.f32(0), *self);
        let lengths = (io.inputs() > 1).then(|| io.i32(1));
        vector::each_row(io.accumulate(0), c, |row, dx| {
            let length = length(lengths, row / time, time);
            if row % time < length {
                for (dx, dy) in dx.iter_mut().zip(&dy[row / time * c..]) {
                    *dx += dy / length as f32;
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let lengths = if io.inputs() > 1 { io.input(1) } else { 0 };
        let name = format!("time_mean_backward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.base(0), io.input(0), lengths, self.time, self.c, n as i64];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

/// For every time step of `out` (`to` per item), adds the time steps of `x` (`from` per item) that `sources` lists,
/// with their weights. The CPU version of `kernels/time_map.cu`.
pub(crate) fn gather(
    out: &mut [f32],
    x: &[f32],
    [to, from, c]: [usize; 3],
    sources: impl Fn(usize, &mut dyn FnMut(usize, f32)) + Sync,
) {
    vector::each_row(out, c, |row, sums| {
        let item = row / to;
        sources(row % to, &mut |t, weight| {
            for (s, x) in sums.iter_mut().zip(&x[(item * from + t) * c..]) {
                *s += weight * x;
            }
        });
    });
}

/// Adds the sum over time of `x * y`, viewed as `shape` (`[b, t, c]`), to a target `[b, c]`.
pub(crate) fn sum_of_products(g: &mut Gradients<'_>, shape: Shape, x: Value, y: Value, target: Target) {
    let op = TimeSum { shape, product: true, lengths: false, mean: false };
    g.push_with_workspace(op, &[x, y], &[target], &[op.workspace()]);
}

impl Tape {
    /// The mean over time of `x [b, t, c]`, as `[b, c]`. With `lengths [b]` (i32), over the first `lengths[i]` time
    /// steps of item i, and 0 if there are none.
    pub fn time_mean(&mut self, x: Value, lengths: Option<Value>) -> Value {
        let info = self.info(x).clone();
        assert_eq!(info.shape.rank(), 3, "x is [batch, time, channel], not {}", info.shape);
        self.check_gradient_type(x);
        if let Some(lengths) = lengths {
            let lengths = self.info(lengths);
            assert_eq!(lengths.dtype, DType::I32, "lengths must be i32");
            assert_eq!(lengths.shape.len(), info.shape.dim(0), "every item needs one length");
        }
        let op = TimeSum { shape: info.shape, product: false, lengths: lengths.is_some(), mean: true };
        let inputs: Vec<Value> = [x].into_iter().chain(lengths).collect();
        let out = Spec::new([info.shape.dim(0), info.shape.last()], float(info.dtype));
        self.push(op, &inputs, &[out, op.workspace()])[0]
    }
}

//! Softmax over time for each channel, as in attentive pooling.

use crate::args;
use crate::cpu::{row_sums, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// 32 channels of an item per block.
fn by_channel(shape: Shape) -> Launch {
    Launch::grid(shape.last().div_ceil(32), shape.dim(0), 1, 256)
}

/// Inputs: x `[b, t, c]`, lengths `[b]` i32 if any. Output: y, zero beyond the lengths.
#[derive(Debug)]
struct TimeSoftmax;

impl Op for TimeSoftmax {
    fn name(&self) -> &'static str {
        "softmax_time"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, shape) = (io.f32(0), io.shape(0));
        let (time, c) = (shape.dim(1), shape.last());
        let lengths = (io.inputs() > 1).then(|| io.i32(1));
        let length = |item: usize| lengths.map_or(time, |l| (l[item].max(0) as usize).min(time));
        // For every item and channel: the largest x, and 1 / Σ exp(x - largest).
        let statistics: Vec<(Vec<f32>, Vec<f32>)> = (0..shape.dim(0))
            .into_par_iter()
            .map(|item| {
                let row = |t: usize| &x[(item * time + t) * c..][..c];
                let parts = row_sums::folds(
                    length(item),
                    c,
                    f32::NEG_INFINITY,
                    #[inline(always)]
                    |t, most| {
                        for (most, x) in most.iter_mut().zip(row(t)) {
                            *most = if *x > *most { *x } else { *most };
                        }
                    },
                );
                let mut most = vec![f32::NEG_INFINITY; c];
                for part in parts {
                    most.iter_mut().zip(part).for_each(|(most, part)| *most = most.max(part));
                }
                let sums = row_sums::sums(
                    length(item),
                    c,
                    #[inline(always)]
                    |t, sums| {
                        for ((sum, x), most) in sums.iter_mut().zip(row(t)).zip(&most) {
                            *sum += vector::exp(x - most);
                        }
                    },
                );
                let inverse = sums.into_iter().map(|sum| (1.0 / sum) as f32).collect();
                (most, inverse)
            })
            .collect();
        vector::each_row(
            io.take(0),
            c,
            #[inline(always)]
            |i, y| {
                let (item, t) = (i / time, i % time);
                if t >= length(item) {
                    return y.fill(0.0);
                }
                let (most, inverse) = &statistics[item];
                for (((y, x), most), inverse) in y.iter_mut().zip(&x[i * c..]).zip(most).zip(inverse) {
                    *y = vector::exp(x - most) * inverse;
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let shape = io.shape(0);
        let lengths = if io.inputs() > 1 { io.input(1) } else { 0 };
        let name = format!("softmax_time_forward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), lengths, shape.dim(1), shape.last()];
        io.launch(&name, by_channel(shape), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let inputs = [g.output(0), g.result_gradient()];
        let target = g.target(0);
        g.push(TimeSoftmaxBackward, &inputs, &[target]);
    }
}

/// Inputs: y, dy. Output: dx. The lengths are not needed, because y is zero beyond them.
#[derive(Debug)]
struct TimeSoftmaxBackward;

impl Op for TimeSoftmaxBackward {
    fn name(&self) -> &'static str {
        "softmax_time'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (y, dy, shape) = (io.f32(0), io.f32(1), io.shape(0));
        let (time, c) = (shape.dim(1), shape.last());
        let dot: Vec<Vec<f32>> = (0..shape.dim(0))
            .into_par_iter()
            .map(|item| {
                let sums = row_sums::sums(
                    time,
                    c,
                    #[inline(always)]
                    |t, sums| {
                        let at = (item * time + t) * c;
                        for ((sum, y), dy) in sums.iter_mut().zip(&y[at..]).zip(&dy[at..]) {
                            *sum += y * dy;
                        }
                    },
                );
                sums.into_iter().map(|sum| sum as f32).collect()
            })
            .collect();
        vector::each_row(
            io.accumulate(0),
            c,
            #[inline(always)]
            |i, dx| {
                let dot = &dot[i / time];
                for (((dx, y), dy), dot) in dx.iter_mut().zip(&y[i * c..]).zip(&dy[i * c..]).zip(dot) {
                    *dx += y * (dy - dot);
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let shape = io.shape(0);
        let name = format!("softmax_time_backward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.base(0), io.input(0), io.input(1), shape.dim(1), shape.last()];
        io.launch(&name, by_channel(shape), &args)
    }
}

impl Tape {
    /// Softmax over time for each channel of x `[batch, time, channel]`. With `lengths` `[batch]` (i32), time steps
    /// beyond an item's length are ignored and set to zero.
    pub fn softmax_time(&mut self, x: Value, lengths: Option<Value>) -> Value {
        let info = self.info(x).clone();
        assert_eq!(
            info.shape.rank(),
            3,
            "softmax over time takes [batch, time, channel], not {}",
            info.shape
        );
        let mut inputs = vec![x];
        if let Some(lengths) = lengths {
            assert_eq!(self.info(lengths).dtype, DType::I32, "lengths must be i32");
            assert_eq!(self.shape(lengths).len(), info.shape.dim(0), "every item needs a length");
            inputs.push(lengths);
        }
        self.push_one(TimeSoftmax, &inputs, Spec::new(info.shape, info.dtype))
    }
}

//! Rows scaled to unit length: the perceiver's RMS norm (`x / |x| * sqrt(c) * gamma`), and plain L2 normalisation.

use crate::args;
use crate::cpu::{reduce, row_sums, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use rayon::prelude::*;
use std::sync::Arc;

/// Lower bound for the norm of a row, so that a row of zeros stays zero.
const MIN_NORM: f32 = 1e-12;

/// Maximum number of partial sums for the gradient of the weight.
const PARTS: usize = 128;

/// Number of splits of the rows.
fn splits(rows: usize) -> usize {
    PARTS.min(rows.div_ceil(8)).max(1)
}

/// Inputs: x `[.., c]`, weight `[c]` f32 if any. Outputs: y, 1 / norm `[rows]`.
#[derive(Clone, Copy, Debug)]
struct RmsNorm {
    weighted: bool,
}

impl RmsNorm {
    fn scale(self, c: usize) -> f32 {
        if self.weighted { (c as f32).sqrt() } else { 1.0 }
    }

    /// The weight multiplied by the scale, on the CPU.
    fn factors(self, io: &CpuIo<'_>, at: usize) -> Vec<f32> {
        let c = io.shape(0).last();
        let scale = self.scale(c);
        if self.weighted { io.f32(at).iter().map(|w| w * scale).collect() } else { vec![scale; c] }
    }

    fn address(self, io: &CudaIo<'_>, at: usize) -> u64 {
        if self.weighted { io.input(at) } else { 0 }
    }
}

/// The kernel of that name, and its launch: one row per block, eight channels per thread where there are enough.
fn by_row(io: &CudaIo<'_>, name: &str) -> (String, Launch) {
    let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
    let odd = if c.is_multiple_of(8) { "" } else { "odd_" };
    let threads = (c.div_ceil(8).next_multiple_of(32) as u32).clamp(32, 256);
    (format!("rms_norm_{name}_{odd}{}", float(io.dtype(0)).suffix()), Launch::line(rows, threads))
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        if self.weighted { "rms_norm" } else { "l2_normalize" }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, c, factors) = (io.f32(0), io.shape(0).last(), self.factors(io, 1));
        let (y, inverse) = (io.take(0), io.take(1));
        let rows = y.par_chunks_mut(c).zip(inverse).zip(x.par_chunks(c));
        rows.with_min_len(16).for_each(|((y, inverse), x)| {
            vector::wide(
                #[inline(always)]
                || {
                    let square = reduce::sum(x, |x| x * x);
                    let s = 1.0 / square.sqrt().max(MIN_NORM);
                    for ((y, x), f) in y.iter_mut().zip(x).zip(&factors) {
                        *y = x * s * f;
                    }
                    *inverse = s;
                },
            );
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let c = io.shape(0).last();
        let (name, launch) = by_row(io, "forward");
        let weight = self.address(io, 1);
        let args = args![io.output(0), io.output(1), io.input(0), weight, c, self.scale(c), MIN_NORM];
        io.launch(&name, launch, &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let (x, inverse) = (g.input(0), g.output(1));
        if g.wants(0) {
            let mut inputs = vec![x, inverse, dy];
            if self.weighted {
                inputs.push(g.input(1));
            }
            let target = g.target(0);
            g.push(InputGradient(*self), &inputs, &[target]);
        }
        if self.weighted && g.wants(1) {
            let target = g.target(1);
            let shape = g.input_shape(0);
            let count = splits(shape.rows());
            let spec = Spec::constant([count, shape.last()], DType::F32);
            let parts = g.tape().push_one(WeightGradient(*self), &[x, inverse, dy], spec);
            g.sum_parts(parts, count, &[target]);
        }
    }

    fn is_norm(&self) -> bool {
        true
    }

    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let mut inputs = vec![node.inputs[0], node.outputs[1]];
        inputs.extend(&node.inputs[1..]);
        let reapply: Arc<dyn Op> = Arc::new(Reapply(*self));
        (which == 0).then_some((reapply, inputs))
    }
}

/// Recomputes `y`. Inputs: x, 1 / norm, weight if any.
#[derive(Debug)]
struct Reapply(RmsNorm);

impl Op for Reapply {
    fn name(&self) -> &'static str {
        "rms_norm_again"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, inverse, c, factors) = (io.f32(0), io.f32(1), io.shape(0).last(), self.0.factors(io, 2));
        vector::each_row(
            io.take(0),
            c,
            #[inline(always)]
            |i, y| {
                for ((y, x), f) in y.iter_mut().zip(&x[i * c..]).zip(&factors) {
                    *y = x * inverse[i] * f;
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let c = io.shape(0).last();
        let (name, launch) = by_row(io, "reapply");
        let args = args![io.output(0), io.input(0), self.0.address(io, 2), io.input(1), c, self.0.scale(c)];
        io.launch(&name, launch, &args)
    }
}

/// Inputs: x, 1 / norm, dy, weight if any. Output: dx.
#[derive(Debug)]
struct InputGradient(RmsNorm);

impl Op for InputGradient {
    fn name(&self) -> &'static str {
        "rms_norm'x"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, inverse, dy, c) = (io.f32(0), io.f32(1), io.f32(2), io.shape(0).last());
        let factors = self.0.factors(io, 3);
        vector::each_row(
            io.accumulate(0),
            c,
            #[inline(always)]
            |i, dx| {
                let (x, dy, s) = (&x[i * c..][..c], &dy[i * c..][..c], inverse[i]);
                let mut dot = reduce::sum3(x, dy, &factors, |x, dy, f| dy * f * x) * s * s;
                // A norm raised to the lower bound does not depend on x.
                if s >= 1.0 / MIN_NORM {
                    dot = 0.0;
                }
                for (((dx, x), dy), f) in dx.iter_mut().zip(x).zip(dy).zip(&factors) {
                    *dx += s * (dy * f - x * dot);
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let c = io.shape(0).last();
        let (name, launch) = by_row(io, "input");
        let weight = self.0.address(io, 3);
        let args = args![
            io.output(0),
            io.base(0),
            io.input(0),
            weight,
            io.input(1),
            io.input(2),
            c,
            self.0.scale(c),
            MIN_NORM
        ];
        io.launch(&name, launch, &args)
    }
}

/// Inputs: x, 1 / norm, dy. Output: parts `[splits, c]` of the sums that are dweight, of which the CPU fills one.
#[derive(Debug)]
struct WeightGradient(RmsNorm);

impl Op for WeightGradient {
    fn name(&self) -> &'static str {
        "rms_norm'w"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, inverse, dy) = (io.f32(0), io.f32(1), io.f32(2));
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let sums = row_sums::sums(
            rows,
            c,
            #[inline(always)]
            |row, sums| {
                for ((sum, x), dy) in sums.iter_mut().zip(&x[row * c..]).zip(&dy[row * c..]) {
                    *sum += dy * x * inverse[row];
                }
            },
        );
        let scale = f64::from(self.0.scale(c));
        for (dw, sum) in io.accumulate(0).iter_mut().zip(sums) {
            *dw += (sum * scale) as f32;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let parts = splits(rows);
        let name = format!("rms_norm_weight_{}", float(io.dtype(0)).suffix());
        let args =
            args![io.output(0), io.input(0), io.input(1), io.input(2), rows, c, parts, self.0.scale(c)];
        io.launch(&name, Launch::grid(c.div_ceil(128), parts, 1, 128), &args)
    }
}

impl Tape {
    /// `x / max(|x|, 1e-12) * sqrt(c) * weight` over the last dimension, of size c; the weight `[c]` is f32
    /// (`Tape::master`).
    pub fn rms_norm(&mut self, x: Value, weight: Value) -> Value {
        assert_eq!(self.shape(weight).len(), self.shape(x).last(), "a norm must have one weight per channel");
        assert_eq!(self.info(weight).dtype, DType::F32, "the weight of a norm must be f32");
        self.unit_rows(&[x, weight])
    }

    /// `x / max(|x|, 1e-12)` over the last dimension.
    pub fn l2_normalize(&mut self, x: Value) -> Value {
        self.unit_rows(&[x])
    }

    fn unit_rows(&mut self, inputs: &[Value]) -> Value {
        let info = self.info(inputs[0]).clone();
        let outputs =
            [Spec::new(info.shape, info.dtype), Spec::constant([info.shape.rows().max(1)], DType::F32)];
        self.push(RmsNorm { weighted: inputs.len() > 1 }, inputs, &outputs)[0]
    }
}

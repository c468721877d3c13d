//! Weight normalisation: a weight as a direction and a norm per row.

use crate::args;
use crate::cpu::{reduce, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Inputs: v `[rows, ..]`, g `[rows]`, both f32. Outputs: w in the activation type, 1 / |v| `[rows]`.
#[derive(Debug)]
struct WeightNorm;

fn launch(rows: usize, n: usize) -> Launch {
    Launch::line(rows, (n.div_ceil(4).next_multiple_of(32) as u32).clamp(32, 256))
}

/// Number of rows, and elements per row.
fn sizes(shape: crate::shape::Shape) -> (usize, usize) {
    (shape.dim(0), shape.len() / shape.dim(0))
}

impl Op for WeightNorm {
    fn name(&self) -> &'static str {
        "weight_norm"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (v, g, (_, n)) = (io.f32(0), io.f32(1), sizes(io.shape(0)));
        let (w, inverse) = (io.take(0), io.take(1));
        let rows = w.par_chunks_mut(n).zip(inverse).zip(v.par_chunks(n)).zip(g);
        rows.with_min_len(1 + (1 << 12) / n).for_each(|(((w, inverse), v), g)| {
            vector::wide(
                #[inline(always)]
                || {
                    let square = reduce::sum(v, |v| v * v);
                    // A row of zeros has no direction; its weight is zero.
                    *inverse = if square > 0.0 { 1.0 / square.sqrt() } else { 0.0 };
                    for (w, v) in w.iter_mut().zip(v) {
                        *w = v * (g * *inverse);
                    }
                },
            );
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n) = sizes(io.shape(0));
        let name = format!("weight_norm_forward_{}", float(io.output_dtype(0)).suffix());
        let args = args![io.output(0), io.output(1), io.input(0), io.input(1), n];
        io.launch(&name, launch(rows, n), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        assert!(
            g.wants(0) && g.wants(1),
            "direction and norm of a weight must both be trained or both be frozen"
        );
        let inputs = [g.input(0), g.input(1), g.output(1), g.result_gradient()];
        let targets = [g.target(0), g.target(1)];
        g.push(Backward, &inputs, &targets);
    }
}

/// Inputs: v, g, 1 / |v|, dw. Outputs: dv, dg.
#[derive(Debug)]
struct Backward;

impl Op for Backward {
    fn name(&self) -> &'static str {
        "weight_norm'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (v, g, inverse, dw) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3));
        let (_, n) = sizes(io.shape(0));
        let (dv, dg) = (io.accumulate(0), io.accumulate(1));
        let rows = dv.par_chunks_mut(n).zip(dg).zip(v.par_chunks(n).zip(dw.par_chunks(n)));
        rows.zip(g.par_iter().zip(inverse)).with_min_len(1 + (1 << 12) / n).for_each(
            |(((dv, dg), (v, dw)), (g, s))| {
                vector::wide(
                    #[inline(always)]
                    || {
                        let dot = reduce::sum2(v, dw, |v, dw| dw * v) * s;
                        for ((dv, v), dw) in dv.iter_mut().zip(v).zip(dw) {
                            *dv += g * s * (dw - v * (dot * s));
                        }
                        *dg += dot;
                    },
                );
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n) = sizes(io.shape(0));
        let args = args![
            io.output(0),
            io.base(0),
            io.output(1),
            io.base(1),
            io.input(0),
            io.input(1),
            io.input(2),
            io.input(3),
            n
        ];
        io.launch("weight_norm_backward", launch(rows, n), &args)
    }
}

impl Tape {
    /// `g v / |v|`, with the norm over all dimensions but the first: v `[rows, ..]` and g `[rows]` in f32
    /// (`Tape::master`), the output in the activation type, for products.
    pub fn weight_norm(&mut self, v: Value, g: Value) -> Value {
        let shape = self.shape(v);
        assert!(!shape.is_empty(), "a weight of {shape} has no elements");
        assert_eq!(self.shape(g).len(), shape.dim(0), "a weight must have one norm per row");
        for value in [v, g] {
            let info = self.info(value);
            let f32s = [info.dtype, info.gradient_dtype] == [DType::F32; 2];
            assert!(f32s, "direction and norm of a weight, and their gradients, must be f32");
        }
        let outputs = [Spec::weight(shape, self.dtype()), Spec::constant([shape.dim(0)], DType::F32)];
        self.push(WeightNorm, &[v, g], &outputs)[0]
    }
}

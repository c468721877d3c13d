//! Layer norm over channels: one row per block or warp, statistics in f32.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Target, Value};
use rayon::prelude::*;
use std::sync::Arc;

/// Maximum number of partial sums for the gradients of weight and bias.
const PARTS: usize = 396;

/// Inputs: x `[.., c]`, weight `[c]` f32, bias `[c]` f32. Outputs: y, mean `[rows]`, 1 / deviation `[rows]`.
#[derive(Clone, Copy, Debug)]
struct LayerNorm {
    epsilon: f32,
}

/// Warps per block in kernels with one row per warp.
const WARPS: usize = 4;

fn threads(channels: usize) -> u32 {
    (channels.div_ceil(4).next_multiple_of(32) as u32).clamp(32, 256)
}

/// How many times 256 channels a warp holds in registers: a power of two up to `most`, or `None` if the row is too
/// long or not a multiple of eight.
fn warp_pieces(channels: usize, most: usize) -> Option<usize> {
    let pieces = channels.div_ceil(256).next_power_of_two();
    (channels.is_multiple_of(8) && pieces <= most).then_some(pieces)
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, w, b, c) = (io.f32(0), io.f32(1), io.f32(2), io.shape(0).last());
        let (y, mean, inverse) = (io.take(0), io.take(1), io.take(2));
        let rows = y.par_chunks_mut(c).zip(mean.par_iter_mut().zip(inverse)).zip(x.par_chunks(c));
        rows.with_min_len(16).for_each(|((y, (mean, inverse)), x)| {
            vector::wide(
                #[inline(always)]
                || {
                    let m = vector::sum(x, |x| x) / c as f32;
                    let v = vector::sum(x, |x| (x - m) * (x - m)) / c as f32;
                    let s = 1.0 / (v + self.epsilon).sqrt();
                    for (((y, x), w), b) in y.iter_mut().zip(x).zip(w).zip(b) {
                        *y = (x - m) * s * w + b;
                    }
                    (*mean, *inverse) = (m, s);
                },
            );
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let name = format!("layer_norm_forward_{}", io.dtype(0).suffix());
        let tensors = args![io.output(0), io.output(1), io.output(2), io.input(0), io.input(1), io.input(2)];
        if let Some(n) = warp_pieces(c, 8) {
            let args = [&tensors[..], &args![rows, c, self.epsilon]].concat();
            return io.launch(
                &format!("{name}_{n}"),
                Launch::line(rows.div_ceil(WARPS), 32 * WARPS as u32),
                &args,
            );
        }
        let args = [&tensors[..], &args![c, self.epsilon]].concat();
        io.launch(&name, Launch::line(rows, threads(c)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let (x, w, mean, inverse) = (g.input(0), g.input(1), g.output(1), g.output(2));
        let op = LayerNormBackward { input: g.wants(0), weights: g.wants(1) };
        assert_eq!(
            g.wants(1),
            g.wants(2),
            "weight and bias of a norm must both be trained or both be frozen"
        );
        let shape = g.input_shape(0);
        let count = splits(shape.rows());
        let dx: Vec<Target> = op.input.then(|| g.target(0)).into_iter().collect();
        let weights: Vec<Target> =
            op.weights.then(|| [g.target(1), g.target(2)]).into_iter().flatten().collect();
        let parts = op.weights.then(|| Spec::constant([count, 2 * shape.last()], DType::F32));
        let results = g.push_with_outputs(op, &[x, w, mean, inverse, dy], &dx, parts.as_slice());
        if let [parts] = results[..] {
            g.sum_parts(parts, count, &weights);
        }
    }

    fn is_norm(&self) -> bool {
        true
    }

    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let [x, w, b] = node.inputs[..] else { return None };
        (which == 0).then(|| {
            let op: Arc<dyn Op> = Arc::new(LayerNormApply);
            (op, vec![x, w, b, node.outputs[1], node.outputs[2]])
        })
    }
}

/// Recomputes `y` from x and its statistics.
#[derive(Debug)]
struct LayerNormApply;

impl Op for LayerNormApply {
    fn name(&self) -> &'static str {
        "layer_norm_again"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, w, b, mean, inverse) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        let c = io.shape(0).last();
        vector::each_row(io.take(0), c, |i, y| {
            let (m, s) = (mean[i], inverse[i]);
            for (((y, x), w), b) in y.iter_mut().zip(&x[i * c..]).zip(w).zip(b) {
                *y = (x - m) * s * w + b;
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, c) = (io.shape(0).len(), io.shape(0).last());
        let name = format!("layer_norm_again_{}", io.dtype(0).suffix());
        let args =
            args![io.output(0), io.input(0), io.input(1), io.input(2), io.input(3), io.input(4), n as i64, c];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

/// Number of splits of the rows.
fn splits(rows: usize) -> usize {
    PARTS.min(rows.div_ceil(2 * WARPS)).max(1)
}

/// Inputs: x, weight, mean, 1 / deviation, dy. Outputs: dx if wanted; parts `[splits, 2, c]` of the sums that are
/// dweight and dbias if wanted, of which the CPU fills one.
#[derive(Clone, Copy, Debug)]
struct LayerNormBackward {
    input: bool,
    weights: bool,
}

impl Op for LayerNormBackward {
    fn name(&self) -> &'static str {
        "layer_norm'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, w, mean, inverse, dy) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        let c = io.shape(0).last();
        if self.input {
            let add = io.has_base(0);
            let dx = if add { io.accumulate(0) } else { io.take(0) };
            input_gradient([x, w, mean, inverse, dy], c, dx, add);
        }
        if self.weights {
            let at = usize::from(self.input);
            let (dw, db) = io.accumulate(at)[..2 * c].split_at_mut(c);
            weight_gradients(x, mean, inverse, dy, c, dw, db);
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let suffix = io.dtype(0).suffix();
        let [x, w, mean, inverse, dy] = [0, 1, 2, 3, 4].map(|i| io.input(i));
        let at = usize::from(self.input);
        let parts = splits(rows);
        match warp_pieces(c, 4) {
            Some(n) if self.input && self.weights => {
                let launch = Launch::line(parts, 32 * WARPS as u32).shared(WARPS * c * 4);
                let args = args![io.output(0), io.base(0), io.output(1), x, w, mean, inverse, dy, rows, c];
                io.launch(&format!("layer_norm_backward_{suffix}_{n}"), launch, &args)?;
            }
            _ => {
                if self.input {
                    let args = args![io.output(0), io.base(0), x, w, mean, inverse, dy, c];
                    io.launch(&format!("layer_norm_input_{suffix}"), Launch::line(rows, threads(c)), &args)?;
                }
                if self.weights {
                    let args = args![io.output(at), x, mean, inverse, dy, rows, c, parts];
                    let launch = Launch::grid(c.div_ceil(128), parts, 1, 128);
                    io.launch(&format!("layer_norm_weights_{suffix}"), launch, &args)?;
                }
            }
        }
        Ok(())
    }
}

fn input_gradient([x, w, mean, inverse, dy]: [&[f32]; 5], c: usize, dx: &mut [f32], add: bool) {
    vector::each_row(
        dx,
        c,
        #[inline(always)]
        |i, dx| {
            let (m, s) = (mean[i], inverse[i]);
            let (x, dy) = (&x[i * c..][..c], &dy[i * c..][..c]);
            let a = vector::sum2(dy, w, |dy, w| dy * w) / c as f32;
            let b = vector::sum3(dy, w, x, |dy, w, x| dy * w * (x - m) * s) / c as f32;
            for (((dx, dy), w), x) in dx.iter_mut().zip(dy).zip(w).zip(x) {
                let base = if add { *dx } else { 0.0 };
                *dx = base + s * (dy * w - a - (x - m) * s * b);
            }
        },
    );
}

fn weight_gradients(
    x: &[f32],
    mean: &[f32],
    inverse: &[f32],
    dy: &[f32],
    c: usize,
    dw: &mut [f32],
    db: &mut [f32],
) {
    let split = (1 << 15) / c.max(1) + 1;
    let parts: Vec<Vec<f32>> = x
        .par_chunks(split * c)
        .enumerate()
        .map(|(p, x)| {
            let mut part = vec![0f32; 2 * c];
            let (w, b) = part.split_at_mut(c);
            vector::wide(
                #[inline(always)]
                || {
                    for (j, x) in x.chunks_exact(c).enumerate() {
                        let i = p * split + j;
                        let (m, s) = (mean[i], inverse[i]);
                        for (((w, b), x), dy) in w.iter_mut().zip(b.iter_mut()).zip(x).zip(&dy[i * c..]) {
                            *w += dy * (x - m) * s;
                            *b += dy;
                        }
                    }
                },
            );
            part
        })
        .collect();
    for part in parts {
        for ((w, b), i) in dw.iter_mut().zip(db.iter_mut()).zip(0..) {
            *w += part[i];
            *b += part[c + i];
        }
    }
}

impl Tape {
    /// `(x - mean) / deviation * weight + bias` over the last dimension; weight and bias are f32 (`Tape::master`).
    pub fn layer_norm(&mut self, x: Value, weight: Value, bias: Value, epsilon: f32) -> Value {
        let info = self.info(x).clone();
        let c = info.shape.last();
        for value in [weight, bias] {
            assert_eq!(self.shape(value).len(), c, "a norm must have one weight and bias per channel");
            assert_eq!(self.info(value).dtype, DType::F32, "weight and bias of a norm must be f32");
        }
        let row = Spec::constant([info.shape.rows()], DType::F32);
        let outputs = [Spec::new(info.shape, info.dtype), row, row];
        self.push(LayerNorm { epsilon }, &[x, weight, bias], &outputs)[0]
    }
}

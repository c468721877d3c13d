//! Layer norm and RMS norm over channels: one row to a block or warp, statistics in f32.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use rayon::prelude::*;
use std::sync::Arc;

/// Stretches of rows the gradients of weight and bias are first summed in.
const PARTS: usize = 264;

/// Inputs: x `[.., c]`, weight `[c]` f32, bias `[c]` f32. Results: y, mean `[rows]`, 1 / deviation `[rows]`.
#[derive(Clone, Copy, Debug)]
struct LayerNorm {
    epsilon: f32,
}

fn threads(channels: usize) -> u32 {
    // Eight channels to a thread where there are enough of them.
    (channels.div_ceil(8).next_multiple_of(32) as u32).clamp(32, 256)
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
                    let m = x.iter().sum::<f32>() / c as f32;
                    let v = x.iter().map(|x| (x - m) * (x - m)).sum::<f32>() / c as f32;
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
        let args = args![
            io.output(0),
            io.output(1),
            io.output(2),
            io.input(0),
            io.input(1),
            io.input(2),
            c,
            self.epsilon
        ];
        io.launch(&name, Launch::line(rows, threads(c)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.of_result();
        let (x, w, mean, inverse) = (g.input(0), g.input(1), g.output(1), g.output(2));
        if g.wants(0) {
            let target = g.target(0);
            g.push(LayerNormInput, &[x, w, mean, inverse, dy], &[target]);
        }
        if g.wants(1) || g.wants(2) {
            assert!(g.wants(1) && g.wants(2), "weight and bias of a norm are trained or frozen together");
            let targets = [g.target(1), g.target(2)];
            let c = g.input_shape(0).last();
            let space = Spec::constant([2 * PARTS * c], DType::F32);
            g.push_with_space(LayerNormWeights, &[x, mean, inverse, dy], &targets, &[space]);
        }
    }

    fn remake(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let [x, w, b] = node.inputs[..] else { return None };
        (which == 0).then(|| {
            let op: Arc<dyn Op> = Arc::new(LayerNormApply);
            (op, vec![x, w, b, node.outputs[1], node.outputs[2]])
        })
    }
}

/// `y` again, from x and its statistics.
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

/// Inputs: x, weight, mean, 1 / deviation, dy. Result: dx.
#[derive(Debug)]
struct LayerNormInput;

impl Op for LayerNormInput {
    fn name(&self) -> &'static str {
        "layer_norm'x"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, w, mean, inverse, dy) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        let c = io.shape(0).last();
        vector::each_row(io.accumulate(0), c, |i, dx| {
            let (m, s) = (mean[i], inverse[i]);
            let (x, dy) = (&x[i * c..][..c], &dy[i * c..][..c]);
            let (mut a, mut b) = (0.0, 0.0);
            for ((dy, w), x) in dy.iter().zip(w).zip(x) {
                a += dy * w;
                b += dy * w * (x - m) * s;
            }
            let (a, b) = (a / c as f32, b / c as f32);
            for (((dx, dy), w), x) in dx.iter_mut().zip(dy).zip(w).zip(x) {
                *dx += s * (dy * w - a - (x - m) * s * b);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let name = format!("layer_norm_input_{}", io.dtype(0).suffix());
        let args = args![
            io.output(0),
            io.base(0),
            io.input(0),
            io.input(1),
            io.input(2),
            io.input(3),
            io.input(4),
            c
        ];
        io.launch(&name, Launch::line(rows, threads(c)), &args)
    }
}

/// Inputs: x, mean, 1 / deviation, dy. Results: dweight, dbias, work space.
#[derive(Debug)]
struct LayerNormWeights;

impl Op for LayerNormWeights {
    fn name(&self) -> &'static str {
        "layer_norm'w"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, mean, inverse, dy, c) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3), io.shape(0).last());
        let (dw, db) = (io.accumulate(0), io.accumulate(1));
        let stretch = (1 << 15) / c.max(1) + 1;
        let parts: Vec<Vec<f32>> = x
            .par_chunks(stretch * c)
            .enumerate()
            .map(|(p, x)| {
                let mut part = vec![0f32; 2 * c];
                let (w, b) = part.split_at_mut(c);
                vector::wide(
                    #[inline(always)]
                    || {
                        for (j, x) in x.chunks_exact(c).enumerate() {
                            let i = p * stretch + j;
                            let (m, s) = (mean[i], inverse[i]);
                            let rows = w.iter_mut().zip(b.iter_mut()).zip(x).zip(&dy[i * c..]);
                            for (((w, b), x), dy) in rows {
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
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let parts = PARTS.min(rows.div_ceil(8)).max(1);
        let space = io.output(2);
        let name = format!("layer_norm_weights_{}", io.dtype(0).suffix());
        let launch = Launch::grid(c.div_ceil(256), parts, 1, 128);
        let args = args![space, io.input(0), io.input(1), io.input(2), io.input(3), rows, c, parts];
        io.launch(&name, launch, &args)?;
        let both = args![io.output(0), io.base(0), io.output(1), io.base(1), space, c, parts];
        io.launch("layer_norm_weights_parts", Launch::each(2 * c), &both)
    }
}

impl Tape {
    /// `(x - mean) / deviation * weight + bias` over the last dimension; weight and bias are f32 (`Tape::master`).
    pub fn layer_norm(&mut self, x: Value, weight: Value, bias: Value, epsilon: f32) -> Value {
        let info = self.info(x).clone();
        let c = info.shape.last();
        for value in [weight, bias] {
            assert_eq!(self.shape(value).len(), c, "a norm has a weight and a bias per channel");
            assert_eq!(self.info(value).dtype, DType::F32, "a norm's weight is f32");
        }
        let row = Spec::constant([info.shape.rows()], DType::F32);
        let outputs = [Spec::new(info.shape, info.dtype), row, row];
        self.push(LayerNorm { epsilon }, &[x, weight, bias], &outputs)[0]
    }
}

//! Softmax cross-entropy of rows of logits against one class each: loss, accuracy, gradient.

use crate::args;
use crate::cpu::{reduce, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Outputs of a cross-entropy. All f32; only `loss` has a gradient.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyResult {
    /// `[1]`: mean over the counted rows; 0 if there are none.
    pub loss: Value,
    /// `[1]`: number of counted rows whose largest logit (the first, if equal) is at the target.
    pub correct: Value,
    /// `[1]`: number of counted rows.
    pub count: Value,
    /// `[rows]`: loss of each row; 0 if it is not counted.
    pub rows: Value,
}

/// Inputs: logits `[.., n]`, targets `[..]` i32. Outputs: loss, correct, count, then per row loss, log-sum-exp,
/// hit.
#[derive(Clone, Copy, Debug)]
struct CrossEntropy {
    smoothing: f32,
}

fn threads(classes: usize) -> u32 {
    match classes {
        0..=256 => 32,
        257..=512 => 64,
        513..=16384 => 128,
        _ => 256,
    }
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, targets, n) = (io.f32(0), io.i32(1), io.shape(0).last());
        if let Some(target) = targets.iter().find(|&&t| t >= 0 && t as usize >= n) {
            return Err(Error::Unsupported(format!("target {target} is outside the {n} classes")));
        }
        let (losses, logs, hits) = (io.take(3), io.take(4), io.take(5));
        let results = losses.par_iter_mut().zip(logs.par_iter_mut()).zip(hits.par_iter_mut());
        let rows = results.zip(x.par_chunks_exact(n)).zip(targets.par_iter());
        rows.with_min_len(4).for_each(|((((loss, log), hit), x), &target)| {
            (*loss, *log, *hit) = if target < 0 {
                (0.0, 0.0, 0.0)
            } else {
                vector::wide(
                    #[inline(always)]
                    || row(x, target as usize, self.smoothing),
                )
            };
        });
        let count = targets.iter().filter(|&&t| t >= 0).count();
        let sum: f64 = losses.iter().map(|&l| f64::from(l)).sum();
        io.take(0)[0] = if count > 0 { (sum / count as f64) as f32 } else { 0.0 };
        io.take(1)[0] = hits.iter().sum();
        io.take(2)[0] = count as f32;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n) = (io.shape(0).rows(), io.shape(0).last());
        let (losses, logs, hits) = (io.output(3), io.output(4), io.output(5));
        let name = format!("cross_entropy_forward_{}", float(io.dtype(0)).suffix());
        let each = args![losses, logs, hits, io.input(0), io.input(1), n, self.smoothing];
        io.launch(&name, Launch::line(rows, threads(n)), &each)?;
        let sum = args![io.output(0), io.output(1), io.output(2), losses, hits, io.input(1), rows];
        io.launch("cross_entropy_sum", Launch::line(1, 1024), &sum)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let Some(d) = g.output_gradient(0) else { return };
        let inputs = [g.input(0), g.input(1), g.output(4), g.output(2), d];
        let target = g.target(0);
        g.push(CrossEntropyBackward { smoothing: self.smoothing }, &inputs, &[target]);
    }
}

/// Loss, log-sum-exp, and 1 if the largest logit is at the target.
#[inline(always)]
fn row(x: &[f32], target: usize, smoothing: f32) -> (f32, f32, f32) {
    let top = reduce::max(x);
    // `exp` clamps at -87, but masked classes must contribute exactly zero.
    let exponentials = vector::sum(x, |x| vector::exp_or_zero(x - top));
    let log = top + exponentials.ln();
    let even = if smoothing > 0.0 { smoothing * vector::sum(x, |x| x) / x.len() as f32 } else { 0.0 };
    let hit = x[target] == top && x[..target].iter().all(|&x| x != top);
    (log - (1.0 - smoothing) * x[target] - even, log, f32::from(hit))
}

/// Inputs: logits, targets, log-sum-exp, count, d. Output: `(softmax - target) * d / count`.
#[derive(Clone, Copy, Debug)]
struct CrossEntropyBackward {
    smoothing: f32,
}

impl Op for CrossEntropyBackward {
    fn name(&self) -> &'static str {
        "cross_entropy'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, targets, logs, n) = (io.f32(0), io.i32(1), io.f32(2), io.shape(0).last());
        let scale = io.f32(4)[0] / io.f32(3)[0].max(1.0);
        let even = self.smoothing / n as f32;
        vector::each_row(io.accumulate(0), n, |i, dx| {
            if targets[i] < 0 {
                return;
            }
            let log = logs[i];
            for (dx, &x) in dx.iter_mut().zip(&x[i * n..]) {
                *dx += scale * (vector::exp_or_zero(x - log) - even);
            }
            dx[targets[i] as usize] -= scale * (1.0 - self.smoothing);
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n) = (io.shape(0).rows(), io.shape(0).last());
        let name = format!("cross_entropy_backward_{}", float(io.dtype(0)).suffix());
        let args = args![
            io.output(0),
            io.base(0),
            io.input(0),
            io.input(1),
            io.input(2),
            io.input(3),
            io.input(4),
            n,
            self.smoothing
        ];
        io.launch(&name, Launch::line(rows, threads(n)), &args)
    }
}

impl Tape {
    /// Cross-entropy of the softmax of `logits [.., n]` against the classes `targets [..]` (i32). Rows with a
    /// negative target are not counted. `smoothing` is the part of each target that is spread evenly over all
    /// classes.
    ///
    /// A target of n or more is an error on the CPU; on CUDA it makes the loss NaN, so the step is skipped.
    pub fn cross_entropy(&mut self, logits: Value, targets: Value, smoothing: f32) -> CrossEntropyResult {
        let shape = self.shape(logits);
        let rows = shape.rows();
        assert_eq!(self.info(targets).dtype, DType::I32, "targets must be i32");
        assert_eq!(self.shape(targets).len(), rows, "logits {shape} need one target per row");
        assert!((0.0..1.0).contains(&smoothing), "smoothing must be at least 0 and below 1, not {smoothing}");
        let (one, each) = (Spec::constant([1], DType::F32), Spec::constant([rows], DType::F32));
        let specs = [Spec::new([1], DType::F32), one, one, each, each, each];
        let results = self.push(CrossEntropy { smoothing }, &[logits, targets], &specs);
        CrossEntropyResult { loss: results[0], correct: results[1], count: results[2], rows: results[3] }
    }
}

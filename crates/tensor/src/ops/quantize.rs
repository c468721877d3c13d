//! Vector quantisation: the nearest code of a codebook, straight-through gradients, and the codebook as a moving
//! average of the rows assigned to each code.
//!
//! | value | shape | type |
//! |---|---|---|
//! | x | `[.., d]` | activations |
//! | codebook | `[d, codes]` | f32 |
//! | ids | `[..]` | i32 |
//! | counts | `[codes]` | f32 |
//!
//! Distances are computed in f32 whatever the type of x: a code that is not the nearest is a wrong token, not a
//! rounding error.

use crate::args;
use crate::cpu::matrix::{Matrix, Threads, product};
use crate::cpu::{row_sums, vector};
use crate::cuda::gemm::{Element, Gemm, Operands};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::parameters::ParameterId;
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Inputs: x f32, codebook. Outputs: ids, workspace for all products and for the codes' squared norms.
#[derive(Debug)]
struct Nearest;

impl Op for Nearest {
    fn name(&self) -> &'static str {
        "code_nearest"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, codebook) = (io.f32(0), io.f32(1));
        let (rows, d, codes) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let (ids, products) = (io.take_i32(0), io.take(1));
        let norms = row_sums::sums(
            d,
            codes,
            #[inline(always)]
            |i, sums| {
                for (sum, e) in sums.iter_mut().zip(&codebook[i * codes..]) {
                    *sum += e * e;
                }
            },
        );
        let norms: Vec<f32> = norms.into_iter().map(|n| n as f32).collect();
        let (left, right) = (Matrix::rows(x, d), Matrix::rows(codebook, codes));
        product((rows, codes, d), left, right, products, codes, false, 1.0, Threads::All);
        ids.par_iter_mut().zip(products.par_chunks(codes)).with_min_len(16).for_each(|(id, products)| {
            let mut best = f32::INFINITY;
            *id = 0;
            for (code, (product, norm)) in products.iter().zip(&norms).enumerate() {
                let distance = norm - 2.0 * product;
                if distance < best {
                    (best, *id) = (distance, code as i32);
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, d, codes) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let (products, norms) = (io.output(1), io.output(2));
        // Never TF32: its ten bits would select other codes.
        let gemm = Gemm::packed(rows, codes, d, Element::F32);
        io.gemm(&gemm, &Operands::new(io.input(0), io.input(1), products))?;
        let launch = Launch::line(codes.div_ceil(32), 256);
        io.launch("code_norms", launch, &args![norms, io.input(1), d, codes])?;
        io.launch("code_nearest", Launch::line(rows, 256), &args![io.output(0), products, norms, codes])
    }
}

/// Inputs: ids, codebook, x if it gets a straight-through gradient. Output: the codes as rows.
#[derive(Debug)]
struct CodeRows;

impl Op for CodeRows {
    fn name(&self) -> &'static str {
        "code_rows"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (ids, codebook, codes) = (io.i32(0), io.f32(1), io.shape(1).last());
        vector::each_row(
            io.take(0),
            io.shape(1).dim(0),
            #[inline(always)]
            |i, q| {
                for (k, q) in q.iter_mut().enumerate() {
                    *q = codebook[k * codes + ids[i] as usize];
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, d, codes) = (io.output_shape(0).len(), io.shape(1).dim(0), io.shape(1).last());
        let name = format!("code_rows_{}", float(io.output_dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), io.input(1), n as i64, d, codes];
        io.launch(&name, Launch::each(n), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dq = g.result_gradient();
        g.pass(2, dq);
    }
}

/// Inputs: x f32, ids. Outputs: number of rows assigned to each code, and their sum `[codes, d]`.
#[derive(Debug)]
struct CodeSums;

impl Op for CodeSums {
    fn name(&self) -> &'static str {
        "code_sums"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, ids, d) = (io.f32(0), io.i32(1), io.shape(0).last());
        let (counts, sums) = (io.take(0), io.take(1));
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); counts.len()];
        for (row, &id) in ids.iter().enumerate() {
            own[id as usize].push(row);
        }
        let codes = sums.par_chunks_mut(d).zip(counts).zip(&own).with_min_len(16);
        codes.for_each(|((sums, count), own)| {
            *count = own.len() as f32;
            sums.fill(0.0);
            for row in own {
                for (sum, x) in sums.iter_mut().zip(&x[row * d..]) {
                    *sum += x;
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, d, codes) = (io.shape(0).rows(), io.shape(0).last(), io.output_shape(0).len());
        let args = args![io.output(0), io.output(1), io.input(0), io.input(1), rows, d, codes];
        io.launch("code_sums", Launch::grid(codes, d.div_ceil(256), 1, 256), &args)
    }
}

/// Inputs: this step's counts and sums, the moving counts and sums (`[d, codes]`). Outputs: the next moving counts
/// and sums, the next codebook, workspace.
#[derive(Debug)]
struct CodeAverages {
    decay: f32,
    epsilon: f32,
}

impl Op for CodeAverages {
    fn name(&self) -> &'static str {
        "code_averages"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (counts, sums, old_counts, old_sums) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3));
        let (codes, d) = (counts.len(), io.shape(3).dim(0));
        let (next_counts, next_sums, codebook) = (io.take(0), io.take(1), io.take(2));
        let (decay, epsilon) = (self.decay, self.epsilon);
        vector::map2(old_counts, counts, next_counts, |old, now| decay * old + (1.0 - decay) * now);
        let total = next_counts.iter().map(|&c| f64::from(c)).sum::<f64>() as f32;
        let sizes: Vec<f32> =
            next_counts.iter().map(|c| (c + epsilon) / (total + codes as f32 * epsilon) * total).collect();
        let rows = next_sums.par_chunks_mut(codes).zip(codebook.par_chunks_mut(codes));
        rows.zip(old_sums.par_chunks(codes)).enumerate().for_each(|(k, ((next, codebook), old))| {
            for code in 0..codes {
                next[code] = decay * old[code] + (1.0 - decay) * sums[code * d + k];
                codebook[code] = next[code] / sizes[code];
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (d, codes) = (io.shape(3).dim(0), io.shape(3).last());
        let (next_counts, total) = (io.output(0), io.output(3));
        let args = args![next_counts, total, io.input(2), io.input(0), codes, self.decay];
        io.launch("code_counts", Launch::line(1, 256), &args)?;
        let n = d * codes;
        let args = args![
            io.output(1),
            io.output(2),
            io.input(3),
            io.input(1),
            next_counts,
            total,
            n as i64,
            d,
            codes,
            self.decay,
            self.epsilon
        ];
        io.launch("code_averages", Launch::each(n), &args)
    }
}

/// Outputs of quantisation.
#[derive(Clone, Copy, Debug)]
pub struct Quantized {
    /// The nearest code of each row, `[..]`, i32.
    pub ids: Value,
    /// The codes as rows `[.., d]`, in the type of x, with a straight-through gradient to x. `Tape::detach` makes
    /// them a constant, for a commitment loss.
    pub rows: Value,
}

/// A codebook that is a moving average, as three values or as three state parameters.
#[derive(Clone, Copy, Debug)]
pub struct Codebook<T> {
    /// The codes `[d, codes]`.
    pub embed: T,
    /// The moving count of rows assigned to each code, `[codes]`.
    pub cluster_size: T,
    /// The moving sum of those rows, `[d, codes]`.
    pub embed_avg: T,
}

impl Tape {
    /// The nearest code to each row of x `[.., d]` in the codebook `[d, codes]` (f32): ids `[..]`. Ties go to the
    /// lower index.
    pub fn nearest_code(&mut self, x: Value, codebook: Value) -> Value {
        let (shape, (d, codes)) = (self.shape(x), self.codebook_sizes(codebook));
        assert!(shape.rank() > 1, "x must have at least two dimensions, not {shape}");
        assert_eq!(shape.last(), d, "x {shape} and the codebook {} do not match", self.shape(codebook));
        let x = self.cast(x, DType::F32);
        let outputs = [
            Spec::constant(&shape.dims()[..shape.rank() - 1], DType::I32),
            Spec::constant([shape.rows(), codes], DType::F32),
            Spec::constant([codes], DType::F32),
        ];
        self.push(Nearest, &[x, codebook], &outputs)[0]
    }

    /// Codes as rows `[.., d]` for ids `[..]`, in the activation type and without a gradient.
    pub fn code_rows(&mut self, ids: Value, codebook: Value) -> Value {
        let (d, _) = self.codebook_sizes(codebook);
        assert_eq!(self.info(ids).dtype, DType::I32, "ids must be i32");
        let dims: Vec<usize> = self.shape(ids).dims().iter().copied().chain([d]).collect();
        let spec = Spec::constant(Shape::from(&dims[..]), self.dtype());
        self.push_one(CodeRows, &[ids, codebook], spec)
    }

    /// The nearest code to each row of x `[.., d]`, and x replaced by these codes, with a straight-through
    /// gradient.
    pub fn quantize(&mut self, x: Value, codebook: Value) -> Quantized {
        let ids = self.nearest_code(x, codebook);
        let info = self.info(x);
        let spec = Spec::new(info.shape, info.dtype);
        Quantized { ids, rows: self.push_one(CodeRows, &[ids, codebook, x], spec) }
    }

    /// Moves a codebook's state parameters towards the rows x `[.., d]` assigned to its codes, at the end of the
    /// step.
    pub fn update_codebook(
        &mut self,
        x: Value,
        ids: Value,
        state: Codebook<ParameterId>,
        decay: f32,
        epsilon: f32,
    ) {
        let old = Codebook {
            embed: self.master(state.embed),
            cluster_size: self.master(state.cluster_size),
            embed_avg: self.master(state.embed_avg),
        };
        let next = self.next_codebook(x, ids, old, decay, epsilon);
        self.commit(state.embed, next.embed);
        self.commit(state.cluster_size, next.cluster_size);
        self.commit(state.embed_avg, next.embed_avg);
    }

    /// The codebook after this step: counts and sums move by `1 - decay` towards the step's, and codes are their
    /// quotients, with `epsilon` added to every count (Laplace smoothing) to avoid dividing by zero.
    pub fn next_codebook(
        &mut self,
        x: Value,
        ids: Value,
        old: Codebook<Value>,
        decay: f32,
        epsilon: f32,
    ) -> Codebook<Value> {
        let (d, codes) = self.codebook_sizes(old.embed_avg);
        assert_eq!(self.shape(x).last(), d, "rows of {} do not have the code size {d}", self.shape(x));
        assert_eq!(self.shape(ids).len(), self.shape(x).rows(), "every row needs an id");
        assert_eq!(self.shape(old.cluster_size).len(), codes, "every code needs a count");
        let x = self.cast(x, DType::F32);
        let (each, table) = (Spec::constant([codes], DType::F32), Spec::constant([d, codes], DType::F32));
        let sums = self.push(CodeSums, &[x, ids], &[each, Spec::constant([codes, d], DType::F32)]);
        // Replicas share one codebook, updated from the rows of the whole batch.
        if self.is_shared() {
            self.sum_over_replicas(sums[0]);
            self.sum_over_replicas(sums[1]);
        }
        let inputs = [sums[0], sums[1], old.cluster_size, old.embed_avg];
        let outputs = [each, table, table, Spec::constant([1], DType::F32)];
        let next = self.push(CodeAverages { decay, epsilon }, &inputs, &outputs);
        Codebook { cluster_size: next[0], embed_avg: next[1], embed: next[2] }
    }

    fn codebook_sizes(&self, codebook: Value) -> (usize, usize) {
        let info = self.info(codebook);
        assert!(
            info.dtype == DType::F32 && info.shape.rank() == 2,
            "a codebook must be [d, codes] in f32, not {} in {:?}",
            info.shape,
            info.dtype
        );
        (info.shape.dim(0), info.shape.dim(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Init, LayoutBuilder, Role};
    use crate::tape::Precision;
    use std::sync::Arc;

    #[test]
    fn an_update_is_committed_to_each_part_of_the_state() {
        let mut layout = LayoutBuilder::new();
        let [embed, embed_avg] =
            ["embed", "embed_avg"].map(|name| layout.add(name, [4, 8], Role::State, Init::Normal(1.0)));
        let cluster_size = layout.add("cluster_size", [8], Role::State, Init::Constant(1.0));
        let mut tape = Tape::new(Arc::new(layout.finish()), Precision::Bf16);
        let x = tape.input([5, 4], DType::Bf16);
        let table = tape.master(embed);
        let ids = tape.quantize(x, table).ids;
        tape.update_codebook(x, ids, Codebook { embed, cluster_size, embed_avg }, 0.99, 1e-5);
        let committed: Vec<ParameterId> = tape.commits.iter().map(|(id, _)| *id).collect();
        assert_eq!(committed, [embed, cluster_size, embed_avg]);
    }
}

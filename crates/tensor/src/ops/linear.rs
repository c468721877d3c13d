//! `y = x Wᵀ + bias + residual`: a matrix product with fused addends.

use crate::args;
use crate::cpu::matrix::{Matrix, Threads, product};
use crate::cpu::vector;
use crate::cuda::gemm::{self, Element, Epilogue, Gemm, Operands};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

pub(crate) fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::Bf16 => Element::Bf16,
        DType::I32 => panic!("matrix products need floats"),
    }
}

/// Inputs: x `[.., k]`, W `[n, k]`, bias `[n]` if any, residual `[.., n]` if any.
#[derive(Clone, Copy, Debug)]
struct Linear {
    bias: bool,
    residual: bool,
}

impl Linear {
    fn residual_at(self) -> usize {
        2 + usize::from(self.bias)
    }
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, k, n) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).dim(0));
        let (x, w) = (io.f32(0), io.f32(1));
        let bias = self.bias.then(|| io.f32(2));
        let residual = self.residual.then(|| io.f32(self.residual_at()));
        let y = io.take(0);
        match (residual, bias) {
            (Some(r), Some(b)) => vector::each_row(y, n, |i, row| {
                for ((y, r), b) in row.iter_mut().zip(&r[i * n..]).zip(b) {
                    *y = r + b;
                }
            }),
            (Some(r), None) => y.copy_from_slice(r),
            (None, Some(b)) => vector::each_row(y, n, |_, row| row.copy_from_slice(b)),
            (None, None) => {}
        }
        let add = self.bias || self.residual;
        let (x, w) = (Matrix::rows(x, k), Matrix::rows(w, k).transposed());
        product((rows, n, k), x, w, y, n, add, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, k, n) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).dim(0));
        let gemm = Gemm {
            b: gemm::Matrix::packed(k).transpose(),
            accumulate: self.residual,
            tf32: io.cuda.tf32(),
            epilogue: if self.bias { Epilogue::Bias } else { Epilogue::None },
            ..Gemm::packed(rows, n, k, element(io.dtype(0)))
        };
        let mut operands = Operands::new(io.input(0), io.input(1), io.output(0));
        if self.residual {
            operands.c = io.input(self.residual_at());
        }
        if self.bias {
            operands = operands.bias(io.input(2));
        }
        io.gemm(&gemm, &operands)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let x = g.input(0);
        if g.wants(1) {
            let target = g.target(1);
            g.push(WeightGradient, &[dy, x], &[target]);
        }
        if self.bias && g.wants(2) {
            let target = g.target(2);
            column_sum(g, dy, target);
        }
        if g.wants(0) {
            let w = g.input(1);
            let target = g.target(0);
            g.push(InputGradient, &[dy, w], &[target]);
        }
        if self.residual {
            g.pass(self.residual_at(), dy);
        }
    }
}

/// `dx[.., k] = dy[.., n] W[n, k]`.
#[derive(Debug)]
pub(crate) struct InputGradient;

impl Op for InputGradient {
    fn name(&self) -> &'static str {
        "linear'x"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let (dy, w) = (Matrix::rows(io.f32(0), n), Matrix::rows(io.f32(1), k));
        let add = io.has_base(0);
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        product((rows, k, n), dy, w, dx, k, add, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let gemm = Gemm {
            accumulate: io.base(0) != 0,
            tf32: io.cuda.tf32(),
            ..Gemm::packed(rows, k, n, element(io.dtype(0)))
        };
        let mut operands = Operands::new(io.input(0), io.input(1), io.output(0));
        operands.c = io.base(0);
        io.gemm(&gemm, &operands)
    }
}

/// `dW[n, k] = dyᵀ x`, in f32.
#[derive(Debug)]
pub(crate) struct WeightGradient;

impl Op for WeightGradient {
    fn name(&self) -> &'static str {
        "linear'w"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let (dy, x) = (Matrix::rows(io.f32(0), n).transposed(), Matrix::rows(io.f32(1), k));
        let add = io.has_base(0);
        let dw = if add { io.accumulate(0) } else { io.take(0) };
        product((n, k, rows), dy, x, dw, k, add, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let gemm = Gemm {
            a: gemm::Matrix::packed(n).transpose(),
            output: element(io.output_dtype(0)),
            accumulate: io.base(0) != 0,
            tf32: io.cuda.tf32(),
            ..Gemm::packed(n, k, rows, element(io.dtype(0)))
        };
        let mut operands = Operands::new(io.input(0), io.input(1), io.output(0));
        operands.c = io.base(0);
        io.gemm(&gemm, &operands)
    }
}

/// Maximum number of splits of the rows for column sums.
const PARTS: usize = 132;

/// Number of splits of the rows for the sums of `n` columns: about four blocks per multiprocessor of the largest
/// devices, whatever the number of columns.
fn splits(rows: usize, n: usize) -> usize {
    (528 / n.div_ceil(256)).clamp(1, PARTS).min(rows.div_ceil(32)).max(1)
}

/// Partial sums over the rows of x `[.., n]`: `[splits, n]` f32, of which the CPU fills one.
#[derive(Debug)]
struct ColumnSum;

impl Op for ColumnSum {
    fn name(&self) -> &'static str {
        "column_sum"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, n) = (io.f32(0), io.shape(0).last());
        vector::add_column_sums(x, n, &mut io.accumulate(0)[..n]);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n) = (io.shape(0).rows(), io.shape(0).last());
        let parts = splits(rows, n);
        let launch = Launch::grid(n.div_ceil(256), parts, 1, 256);
        let name = format!("sum_columns_{}", io.dtype(0).suffix());
        io.launch(&name, launch, &args![io.output(0), io.input(0), rows, n, parts])
    }
}

/// Adds the column sums of `x` to a target.
pub(crate) fn column_sum(g: &mut Gradients<'_>, x: Value, target: crate::tape::Target) {
    let shape = g.tape().shape(x);
    let count = splits(shape.rows(), shape.last());
    let parts = g.tape().push_one(ColumnSum, &[x], Spec::constant([count, shape.last()], DType::F32));
    g.sum_parts(parts, count, &[target]);
}

impl Tape {
    /// `x Wᵀ + bias`, with W `[out, in]`.
    pub fn linear(&mut self, x: Value, weight: Value, bias: Option<Value>) -> Value {
        self.linear_add(x, weight, bias, None)
    }

    /// `x Wᵀ + bias + residual`.
    pub fn linear_add(
        &mut self,
        x: Value,
        weight: Value,
        bias: Option<Value>,
        residual: Option<Value>,
    ) -> Value {
        let (shape, w) = (self.shape(x), self.shape(weight));
        assert_eq!(w.rank(), 2, "a weight must be a matrix, not {w}");
        assert_eq!(shape.last(), w.dim(1), "x {shape} and the weight {w} do not match");
        let mut inputs = vec![x, weight];
        if let Some(bias) = bias {
            assert_eq!(self.shape(bias).len(), w.dim(0), "a bias must have one element per output channel");
            inputs.push(bias);
        }
        let out = shape.with_last(w.dim(0));
        if let Some(residual) = residual {
            assert_eq!(
                self.shape(residual).len(),
                out.len(),
                "the residual must have the shape of the output"
            );
            inputs.push(residual);
        }
        let op = Linear { bias: bias.is_some(), residual: residual.is_some() };
        let dtype = self.info(x).dtype;
        self.push_one(op, &inputs, Spec::new(out, dtype))
    }
}

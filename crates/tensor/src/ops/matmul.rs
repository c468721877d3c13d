//! Batched matrix products of activations, with either operand transposed.

use super::linear::element;
use crate::cpu::matrix::{Matrix, Threads, product};
use crate::cuda::gemm::{self, Gemm, Operands};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Inputs: a `[n, m, k]` (`[n, k, m]` if transposed), b `[n, k, p]` (`[n, p, k]`). Output: `[n, m, p]`. The
/// gradients are products of the same kind with one operand transposed.
#[derive(Clone, Copy, Debug)]
struct MatMul {
    a: bool,
    b: bool,
    backward: bool,
}

impl MatMul {
    /// Returns n, m, p, k.
    fn sizes(self, a: Shape, b: Shape) -> (usize, usize, usize, usize) {
        let (m, k) = if self.a { (a.dim(2), a.dim(1)) } else { (a.dim(1), a.dim(2)) };
        let p = if self.b { b.dim(1) } else { b.dim(2) };
        (a.dim(0), m, p, k)
    }
}

fn turned(matrix: Matrix<'_>, turn: bool) -> Matrix<'_> {
    if turn { matrix.transposed() } else { matrix }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        if self.backward { "matmul'" } else { "matmul" }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (n, m, p, k) = self.sizes(io.shape(0), io.shape(1));
        let (a, b) = (io.f32(0), io.f32(1));
        let (columns_a, columns_b) = (io.shape(0).last(), io.shape(1).last());
        let add = io.has_base(0);
        let out = if add { io.accumulate(0) } else { io.take(0) };
        let one = |i: usize, out: &mut [f32], threads: Threads| {
            let a = turned(Matrix::rows(&a[i * m * k..][..m * k], columns_a), self.a);
            let b = turned(Matrix::rows(&b[i * k * p..][..k * p], columns_b), self.b);
            product((m, p, k), a, b, out, p, add, 1.0, threads);
        };
        if n == 1 {
            one(0, out, Threads::All);
        } else {
            out.par_chunks_mut(m * p).enumerate().for_each(|(i, out)| one(i, out, Threads::One));
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, m, p, k) = self.sizes(io.shape(0), io.shape(1));
        let side = |shape: Shape, turn: bool| {
            let matrix = gemm::Matrix::packed(shape.last()).every((shape.dim(1) * shape.dim(2)) as i64);
            if turn { matrix.transpose() } else { matrix }
        };
        let gemm = Gemm {
            batch: n,
            a: side(io.shape(0), self.a),
            b: side(io.shape(1), self.b),
            c_batch_stride: (m * p) as i64,
            output: element(io.output_dtype(0)),
            accumulate: io.base(0) != 0,
            tf32: io.cuda.tf32(),
            ..Gemm::packed(m, p, k, element(io.dtype(0)))
        };
        let mut operands = Operands::new(io.input(0), io.input(1), io.output(0));
        operands.c = io.base(0);
        io.gemm(&gemm, &operands)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (a, b, dc) = (g.input(0), g.input(1), g.result_gradient());
        let product = |a: bool, b: bool| MatMul { a, b, backward: true };
        if g.wants(0) {
            let target = g.target(0);
            // With C = A B: dA = dC Bᵀ, and if A is stored transposed, (dA)ᵀ = B dCᵀ.
            match self.a {
                false => g.push(product(false, !self.b), &[dc, b], &[target]),
                true => g.push(product(self.b, true), &[b, dc], &[target]),
            }
        }
        if g.wants(1) {
            let target = g.target(1);
            match self.b {
                false => g.push(product(!self.a, false), &[a, dc], &[target]),
                true => g.push(product(true, self.a), &[dc, a], &[target]),
            }
        }
    }
}

impl Tape {
    /// Batched product `a b`: a `[n, m, k]`, or `[n, k, m]` if `transposed.0`; b `[n, k, p]`, or `[n, p, k]` if
    /// `transposed.1`; the output is `[n, m, p]`.
    pub fn matmul(&mut self, a: Value, b: Value, transposed: (bool, bool)) -> Value {
        let (left, right) = (self.shape(a), self.shape(b));
        assert!(left.rank() == 3 && right.rank() == 3, "a batch of matrices must have three dimensions");
        assert_eq!(left.dim(0), right.dim(0), "{left} and {right} must have the same batch size");
        let op = MatMul { a: transposed.0, b: transposed.1, backward: false };
        let (n, m, p, k) = op.sizes(left, right);
        let inner = if op.b { right.dim(2) } else { right.dim(1) };
        assert_eq!(k, inner, "{left} and {right} do not match");
        assert!(k > 0, "the summed dimension is empty");
        let dtype = self.info(a).dtype;
        assert!(
            dtype == self.info(b).dtype && dtype != DType::I32,
            "both operands must have the same float type"
        );
        self.push_one(op, &[a, b], Spec::new([n, m, p], dtype))
    }
}

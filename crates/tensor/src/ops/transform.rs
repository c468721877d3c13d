//! Product with a constant matrix in full f32 precision: filter banks and, on a GPU, Fourier transforms, where
//! rounding to TF32 or bf16 would drown the quiet bins next to a loud one.

use crate::cpu::matrix::{Matrix, Threads, product};
use crate::cuda::gemm::{self, Element, Gemm, Operands};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Inputs: x `[.., k]`, the matrix `[n, k]`. Output: `[.., n]`.
#[derive(Debug)]
pub(super) struct Transform;

impl Op for Transform {
    fn name(&self) -> &'static str {
        "transform"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, k, n) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).dim(0));
        let (x, matrix) = (Matrix::rows(io.f32(0), k), Matrix::rows(io.f32(1), k).transposed());
        product((rows, n, k), x, matrix, io.take(0), n, false, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, k, n) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).dim(0));
        let gemm = Gemm { b: gemm::Matrix::packed(k).transpose(), ..Gemm::packed(rows, n, k, Element::F32) };
        io.gemm(&gemm, &Operands::new(io.input(0), io.input(1), io.output(0)))
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let inputs = [g.result_gradient(), g.input(1)];
        let target = g.target(0);
        g.push(TransformBackward, &inputs, &[target]);
    }
}

/// Inputs: dy `[.., n]`, the matrix `[n, k]`. Output: dx `[.., k]`.
#[derive(Debug)]
pub(super) struct TransformBackward;

impl Op for TransformBackward {
    fn name(&self) -> &'static str {
        "transform'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let (dy, matrix) = (Matrix::rows(io.f32(0), n), Matrix::rows(io.f32(1), k));
        let add = io.has_base(0);
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        product((rows, k, n), dy, matrix, dx, k, add, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n, k) = (io.shape(0).rows(), io.shape(0).last(), io.shape(1).last());
        let gemm = Gemm { accumulate: io.base(0) != 0, ..Gemm::packed(rows, k, n, Element::F32) };
        let mut operands = Operands::new(io.input(0), io.input(1), io.output(0));
        operands.c = io.base(0);
        io.gemm(&gemm, &operands)
    }
}

impl Tape {
    /// `x Mᵀ` with x `[.., k]` and the constant M `[n, k]`, both f32, computed in full f32 precision.
    pub fn transform(&mut self, x: Value, matrix: Value) -> Value {
        let (shape, m) = (self.shape(x), self.info(matrix));
        assert!(
            m.shape.rank() == 2 && m.shape.dim(1) == shape.last(),
            "x {shape} and {} do not match",
            m.shape
        );
        assert!(!m.differentiable, "a transform's matrix must be a constant");
        let f32s = [m.dtype, self.info(x).dtype] == [DType::F32; 2];
        assert!(f32s, "both operands of a transform must be f32");
        let spec = Spec::new(shape.with_last(m.shape.dim(0)), DType::F32);
        self.push_one(Transform, &[x, matrix], spec)
    }
}

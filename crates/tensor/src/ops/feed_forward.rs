//! The feed-forward layer of a transformer block: `gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂ + residual`. One operation, so that
//! GELU and its derivative are applied in the epilogue of the matrix products while the values are in registers.

use crate::args;
use crate::cpu::matrix::{Matrix, Threads, product};
use crate::cpu::vector;
use crate::cuda::gemm::{self, Epilogue, Gemm, Operands};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::ops::activation::{Activation, Function};
use crate::ops::linear::{InputGradient, WeightGradient, column_sum, element};
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use std::sync::Arc;

/// Inputs: x `[.., c]`, W₁ `[h, c]`, b₁ `[h]`, W₂ `[n, h]`, b₂ `[n]`, residual `[.., n]` if any. Outputs: y `[..,
/// n]`, the hidden layer after GELU, and before it.
#[derive(Debug)]
struct FeedForward {
    residual: bool,
}

/// Whether the library's epilogues apply: in bf16, with rows of a multiple of 8.
fn fused(io: &CudaIo<'_>, hidden: usize) -> bool {
    io.dtype(0) == DType::Bf16 && hidden.is_multiple_of(8)
}

impl Op for FeedForward {
    fn name(&self) -> &'static str {
        "feed_forward"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let (h, n) = (io.shape(1).dim(0), io.shape(3).dim(0));
        let [x, w1, b1, w2, b2] = [0, 1, 2, 3, 4].map(|i| io.f32(i));
        let residual = self.residual.then(|| io.f32(5));
        let (y, hidden, before) = (io.take(0), io.take(1), io.take(2));
        vector::each_row(before, h, |_, row| row.copy_from_slice(b1));
        let (x, w1) = (Matrix::rows(x, c), Matrix::rows(w1, c).transposed());
        product((rows, h, c), x, w1, before, h, true, 1.0, Threads::All);
        vector::map(before, hidden, vector::gelu_tanh);
        vector::each_row(y, n, |i, row| match residual {
            Some(r) => row.iter_mut().zip(&r[i * n..]).zip(b2).for_each(|((y, r), b)| *y = r + b),
            None => row.copy_from_slice(b2),
        });
        let (hidden, w2) = (Matrix::rows(hidden, h), Matrix::rows(w2, h).transposed());
        product((rows, n, h), hidden, w2, y, n, true, 1.0, Threads::All);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, c) = (io.shape(0).rows(), io.shape(0).last());
        let (h, n) = (io.shape(1).dim(0), io.shape(3).dim(0));
        let (y, hidden, before) = (io.output(0), io.output(1), io.output(2));
        let up = Gemm {
            b: gemm::Matrix::packed(c).transpose(),
            tf32: io.cuda.tf32(),
            epilogue: Epilogue::GeluAuxBias,
            ..Gemm::packed(rows, h, c, element(io.dtype(0)))
        };
        if fused(io, h) {
            let operands = Operands::new(io.input(0), io.input(1), hidden).bias(io.input(2)).aux(before);
            io.gemm(&up, &operands)?;
        } else {
            let operands = Operands::new(io.input(0), io.input(1), before).bias(io.input(2));
            io.gemm(&Gemm { epilogue: Epilogue::Bias, ..up }, &operands)?;
            Activation(Function::GeluTanh).launch(io, hidden, before, rows * h)?;
        }
        let down = Gemm {
            b: gemm::Matrix::packed(h).transpose(),
            accumulate: self.residual,
            tf32: io.cuda.tf32(),
            epilogue: Epilogue::Bias,
            ..Gemm::packed(rows, n, h, element(io.dtype(0)))
        };
        let mut operands = Operands::new(hidden, io.input(3), y).bias(io.input(4));
        if self.residual {
            operands.c = io.input(5);
        }
        io.gemm(&down, &operands)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        if g.wants(3) {
            let hidden = g.output(1);
            let target = g.target(3);
            g.push(WeightGradient, &[dy, hidden], &[target]);
        }
        if g.wants(4) {
            let target = g.target(4);
            column_sum(g, dy, target);
        }
        let (w2, before) = (g.input(3), g.output(2));
        let (shape, dtype) = (g.tape().shape(before), g.tape().info(before).dtype);
        let dh = g.tape().push_one(HiddenGradient, &[dy, w2, before], Spec::constant(shape, dtype));
        if g.wants(1) {
            let x = g.input(0);
            let target = g.target(1);
            g.push(WeightGradient, &[dh, x], &[target]);
        }
        if g.wants(2) {
            let target = g.target(2);
            column_sum(g, dh, target);
        }
        if g.wants(0) {
            let w1 = g.input(1);
            let target = g.target(0);
            g.push(InputGradient, &[dh, w1], &[target]);
        }
        if self.residual {
            g.pass(5, dy);
        }
    }

    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        (which == 1).then(|| {
            let op: Arc<dyn Op> = Arc::new(Activation(Function::GeluTanh));
            (op, vec![node.outputs[2]])
        })
    }
}

/// `(dy W₂) · gelu'(before)`. Inputs: dy `[.., n]`, W₂ `[n, h]`, before `[.., h]`.
#[derive(Debug)]
struct HiddenGradient;

impl Op for HiddenGradient {
    fn name(&self) -> &'static str {
        "feed_forward'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (rows, n, h) = (io.shape(0).rows(), io.shape(0).last(), io.shape(2).last());
        let (dy, w2, before) = (Matrix::rows(io.f32(0), n), Matrix::rows(io.f32(1), h), io.f32(2));
        let dh = io.take(0);
        product((rows, h, n), dy, w2, dh, h, false, 1.0, Threads::All);
        vector::multiply_map(before, dh, vector::gelu_tanh_slope);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (rows, n, h) = (io.shape(0).rows(), io.shape(0).last(), io.shape(2).last());
        let gemm = Gemm {
            tf32: io.cuda.tf32(),
            epilogue: Epilogue::DGelu,
            ..Gemm::packed(rows, h, n, element(io.dtype(0)))
        };
        let operands = Operands::new(io.input(0), io.input(1), io.output(0));
        if fused(io, h) {
            return io.gemm(&gemm, &operands.aux(io.input(2)));
        }
        io.gemm(&Gemm { epilogue: Epilogue::None, ..gemm }, &operands)?;
        let name = format!("activation_backward_{}", io.dtype(0).suffix());
        let elements = rows * h;
        // In place: a thread reads its own elements before it writes them.
        let args = args![io.output(0), 0u64, io.input(2), io.output(0), elements as i64, 0i32, 0f32];
        io.launch(&name, Launch::each(elements.div_ceil(8)), &args)
    }
}

/// Weight `[out, in]` and bias `[out]` of a layer.
pub type Layer = (Value, Value);

impl Tape {
    /// `gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂ + residual`, with the tanh form of GELU.
    pub fn feed_forward(&mut self, x: Value, up: Layer, down: Layer, residual: Option<Value>) -> Value {
        let (shape, w1, w2) = (self.shape(x), self.shape(up.0), self.shape(down.0));
        assert_eq!(shape.last(), w1.dim(1), "x {shape} and the first weight {w1} do not match");
        assert_eq!(w1.dim(0), w2.dim(1), "the weights {w1} and {w2} do not match");
        let out = shape.with_last(w2.dim(0));
        let mut inputs = vec![x, up.0, up.1, down.0, down.1];
        if let Some(residual) = residual {
            assert_eq!(
                self.shape(residual).len(),
                out.len(),
                "the residual must have the shape of the output"
            );
            inputs.push(residual);
        }
        let dtype = self.info(x).dtype;
        let hidden = Spec::new(shape.with_last(w1.dim(0)), dtype);
        let op = FeedForward { residual: residual.is_some() };
        self.push(op, &inputs, &[Spec::new(out, dtype), hidden, hidden])[0]
    }
}

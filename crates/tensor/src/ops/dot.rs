//! `Σ x · w + plus`: the scalar of a test, or of a fixed linear loss.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

const PARTS: usize = 256;

/// Inputs: x, w f32 of the same size, a scalar to add if any. Outputs: the sum, workspace.
#[derive(Debug)]
struct Dot;

impl Op for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let sum: f64 = io.f32(0).iter().zip(io.f32(1)).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
        let plus = if io.inputs() > 2 { f64::from(io.f32(2)[0]) } else { 0.0 };
        io.take(0)[0] = (sum + plus) as f32;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let parts = PARTS.min(n.div_ceil(256)).max(1);
        let plus = if io.inputs() > 2 { io.input(2) } else { 0 };
        let name = format!("dot_{}", float(io.dtype(0)).suffix());
        io.launch(&name, Launch::line(parts, 256), &args![io.output(1), io.input(0), io.input(1), n as i64])?;
        io.launch("dot_parts", Launch::line(1, 256), &args![io.output(0), plus, io.output(1), parts])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let d = g.result_gradient();
        if g.wants(0) {
            let w = g.input(1);
            let target = g.target(0);
            g.push(Scaled, &[w, d], &[target]);
        }
        if g.inputs() > 2 {
            g.pass(2, d);
        }
    }
}

/// `base + w · d`, d a scalar in device memory.
#[derive(Debug)]
struct Scaled;

impl Op for Scaled {
    fn name(&self) -> &'static str {
        "dot'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (w, d) = (io.f32(0), io.f32(1)[0]);
        for (x, w) in io.accumulate(0).iter_mut().zip(w) {
            *x += w * d;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let name = format!("dot_backward_{}", float(io.output_dtype(0)).suffix());
        let args = args![io.output(0), io.base(0), io.input(0), io.input(1), n as i64];
        io.launch(&name, Launch::each(n), &args)
    }
}

impl Tape {
    /// `Σ x · w + plus`; `w` gets no gradient.
    pub fn dot(&mut self, x: Value, w: Value, plus: Option<Value>) -> Value {
        assert_eq!(self.shape(x).len(), self.shape(w).len(), "both operands must have the same size");
        let inputs: Vec<Value> = [x, w].into_iter().chain(plus).collect();
        let space = Spec::constant([PARTS], DType::F32);
        self.push(Dot, &inputs, &[Spec::new([1], DType::F32), space])[0]
    }
}

//! GEGLU: the first half of the channels, gated by GELU (erf) of the second.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::activation::Function;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use std::sync::Arc;

/// Input: x `[.., 2n]`. Output: `[.., n]`.
#[derive(Clone, Copy, Debug)]
struct Geglu;

impl Op for Geglu {
    fn name(&self) -> &'static str {
        "geglu"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, n) = (io.f32(0), io.output_shape(0).last());
        vector::each_row(io.take(0), n, |i, y| {
            let (a, g) = x[2 * i * n..][..2 * n].split_at(n);
            for ((y, a), &g) in y.iter_mut().zip(a).zip(g) {
                *y = a * Function::GeluErf.value(g);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (count, n) = (io.output_shape(0).len(), io.output_shape(0).last());
        let name = format!("geglu_forward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), count as i64, n];
        io.launch(&name, Launch::each(count.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (x, dy) = (g.input(0), g.result_gradient());
        let target = g.target(0);
        g.push(GegluBackward, &[x, dy], &[target]);
    }

    fn recompute(&self, _: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        Some((Arc::new(*self), node.inputs.clone()))
    }
}

/// Inputs: x `[.., 2n]`, dy. Output: dx.
#[derive(Debug)]
struct GegluBackward;

impl Op for GegluBackward {
    fn name(&self) -> &'static str {
        "geglu'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, dy, n) = (io.f32(0), io.f32(1), io.shape(0).last() / 2);
        vector::each_row(io.accumulate(0), 2 * n, |i, dx| {
            let (a, g) = x[2 * i * n..][..2 * n].split_at(n);
            let (da, dg) = dx.split_at_mut(n);
            for (j, dy) in dy[i * n..][..n].iter().enumerate() {
                da[j] += dy * Function::GeluErf.value(g[j]);
                dg[j] += dy * a[j] * Function::GeluErf.slope_at(g[j]);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (count, n) = (io.shape(0).len() / 2, io.shape(0).last() / 2);
        let name = format!("geglu_backward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.base(0), io.input(0), io.input(1), count as i64, n];
        io.launch(&name, Launch::each(count.div_ceil(8)), &args)
    }
}

impl Tape {
    /// `x[..n] * gelu(x[n..])` of rows of 2n: the first half is the value, the second the gate; GELU by erf.
    pub fn geglu(&mut self, x: Value) -> Value {
        let info = self.info(x);
        let c = info.shape.last();
        assert!(c.is_multiple_of(2), "GEGLU needs an even number of channels, not {c}");
        self.check_gradient_type(x);
        let spec = Spec::new(info.shape.with_last(c / 2), float(info.dtype));
        self.push_one(Geglu, &[x], spec)
    }
}

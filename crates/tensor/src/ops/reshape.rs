//! The same memory under another shape.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::Shape;
use crate::tape::{Gradients, Tape, Value};
use std::sync::Arc;

#[derive(Debug)]
struct Reshape;

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn cpu(&self, _: &mut CpuIo<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn cuda(&self, _: &CudaIo<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (gradient, shape) = (g.result_gradient(), g.input_shape(0));
        let view = g.tape().view(gradient, 0, shape);
        g.pass(0, view);
    }
}

impl Tape {
    /// `x` under another shape of the same size; no data is moved.
    pub fn reshape(&mut self, x: Value, shape: impl Into<Shape>) -> Value {
        let shape = shape.into();
        assert_eq!(self.shape(x).len(), shape.len(), "{} cannot be reshaped to {shape}", self.shape(x));
        let view = self.view(x, 0, shape);
        self.push_into(Arc::new(Reshape), &[x], &[view], &[None]);
        view
    }
}

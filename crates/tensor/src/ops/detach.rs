//! A value that blocks gradients.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::tape::{Gradients, Tape, Value};
use std::sync::Arc;

#[derive(Debug)]
struct Detach;

impl Op for Detach {
    fn name(&self) -> &'static str {
        "detach"
    }

    fn cpu(&self, _: &mut CpuIo<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn cuda(&self, _: &CudaIo<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn backward(&self, _: &mut Gradients<'_>) {}
}

impl Tape {
    /// `x` as a constant: no data is moved, and no gradient flows back.
    pub fn detach(&mut self, x: Value) -> Value {
        let view = self.view(x, 0, self.shape(x));
        self.values[view.0 as usize].differentiable = false;
        self.push_into(Arc::new(Detach), &[x], &[view], &[None]);
        view
    }
}

//! Where gradients start: the weight the host gives the loss.

use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::ops::fill;
use crate::shape::DType;
use crate::step::control;
use crate::tape::{Flat, Spec, Tape, Value};

#[derive(Debug)]
struct Seed;

impl Op for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let weight = io.f32(0)[control::WEIGHT];
        io.take(0)[0] = weight;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        fill::copy_bytes(io, io.output(0), io.input(0) + 4 * control::WEIGHT as u64, 4)
    }
}

/// The gradient of a loss with respect to itself.
pub(crate) fn seed(tape: &mut Tape, loss: Value) -> Value {
    assert_eq!(tape.info(loss).dtype, DType::F32, "a loss is one f32");
    let control = tape.flat(Flat::Control);
    tape.push_one(Seed, &[control], Spec::constant([1], DType::F32))
}

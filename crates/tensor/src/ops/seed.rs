//! Start of the backward pass: the loss weight given by the host. A loss that is not finite makes every gradient
//! NaN, so that one check of the gradient norm detects it on every replica.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::step::control;
use crate::tape::{EngineBuffer, Spec, Tape, Value};

#[derive(Debug)]
struct Seed;

impl Op for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let seed = io.f32(0)[control::WEIGHT] + 0.0 * io.f32(1)[0];
        io.take(0)[0] = seed;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let weight = io.input(0) + 4 * control::WEIGHT as u64;
        io.launch("seed", Launch::line(1, 1), &args![io.output(0), weight, io.input(1)])
    }
}

/// The gradient of a loss with respect to itself.
pub(crate) fn seed(tape: &mut Tape, loss: Value) -> Value {
    assert_eq!(tape.info(loss).dtype, DType::F32, "a loss must be one f32");
    let control = tape.engine_buffer(EngineBuffer::Control);
    tape.push_one(Seed, &[control, loss], Spec::constant([1], DType::F32))
}

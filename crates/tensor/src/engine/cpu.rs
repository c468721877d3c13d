//! Runs a program on the CPU, one operation after another, each on all cores where that pays.

use super::checked::Findings;
use super::{Engine, Mode, Program};
use crate::collective::Collective;
use crate::error::Error;
use crate::op::{CpuIo, Slice, SliceMut};
use crate::shape::DType;
use crate::tape::{Node, Tape, Value};
use std::time::{Duration, Instant};

pub(super) fn run(engine: &Engine, program: &mut Program) -> Result<Findings, Error> {
    let mut found = Findings::default();
    if engine.mode == Mode::Checked {
        engine.poison_scratch()?;
        for (n, node) in program.tape.nodes.iter().enumerate() {
            step(&program.tape, &program.addresses, engine.collective.as_deref(), node)?;
            found.check_outputs(&engine.backend, program, n)?;
        }
        program.runs += 1;
        return Ok(found);
    }
    let (tape, addresses, collective) = (&program.tape, &program.addresses[..], engine.collective.as_deref());
    let all = || tape.nodes.iter().try_for_each(|node| step(tape, addresses, collective, node));
    match collective {
        // On a pool thread: work that a pool thread hands out needs no wake-up, and a step hands out hundreds of
        // pieces.
        None => rayon::scope(|_| all())?,
        // Replicas wait for each other and must not block the pool threads the others need to arrive.
        Some(_) => all()?,
    }
    program.runs += 1;
    Ok(found)
}

pub(super) fn profile(engine: &Engine, program: &mut Program) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::with_capacity(program.tape.nodes.len());
    for n in 0..program.tape.nodes.len() {
        let start = Instant::now();
        step(&program.tape, &program.addresses, engine.collective.as_deref(), &program.tape.nodes[n])?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn step(
    tape: &Tape,
    addresses: &[u64],
    collective: Option<&dyn Collective>,
    node: &Node,
) -> Result<(), Error> {
    let at = |value: Value| {
        let info = tape.info(value);
        (addresses[value.0 as usize], info.shape.len(), info.dtype)
    };
    let inputs = node.inputs.iter().map(|&value| {
        let (address, len, dtype) = at(value);
        // SAFETY: the plan reserves a value's memory from its first writer to its last reader, in buffers that live
        // as long as the engine; an output never shares memory with an input (only with its base).
        unsafe {
            match dtype {
                DType::F32 => Slice::F32(std::slice::from_raw_parts(address as *const f32, len)),
                DType::I32 => Slice::I32(std::slice::from_raw_parts(address as *const i32, len)),
                DType::Bf16 => panic!("the CPU computes in f32"),
            }
        }
    });
    let inputs = inputs.collect();
    let mut outputs = Vec::with_capacity(node.outputs.len());
    for (&value, base) in node.outputs.iter().zip(&node.bases) {
        let (address, len, dtype) = at(value);
        // SAFETY: as above; the outputs of one operation are distinct.
        outputs.push(unsafe {
            match dtype {
                DType::F32 => {
                    let data = std::slice::from_raw_parts_mut(address as *mut f32, len);
                    if let Some(base) = base {
                        let (from, ..) = at(*base);
                        if from != address {
                            data.copy_from_slice(std::slice::from_raw_parts(from as *const f32, len));
                        }
                    }
                    SliceMut::F32 { data, has_base: base.is_some() }
                }
                DType::I32 => SliceMut::I32(std::slice::from_raw_parts_mut(address as *mut i32, len)),
                DType::Bf16 => panic!("the CPU computes in f32"),
            }
        });
    }
    let mut io = CpuIo {
        inputs,
        outputs,
        input_shapes: node.inputs.iter().map(|&v| tape.shape(v)).collect(),
        output_shapes: node.outputs.iter().map(|&v| tape.shape(v)).collect(),
        collective,
    };
    node.op.cpu(&mut io)
}

//! Running a program on CUDA: kernel by kernel, recorded, or replayed.

use super::{Engine, Mode, Program};
use crate::cuda::Cuda;
use crate::cuda::graph::Graph;
use crate::cuda::launch::{CudaIo, Tensor};
use crate::error::Error;
use crate::tape::{Node, Value};
use cudarc::driver::{result, sys};
use std::time::Duration;

pub(super) fn run(engine: &Engine, program: &mut Program, cuda: &Cuda) -> Result<(), Error> {
    if engine.mode == Mode::Eager || program.runs == 0 {
        // The first run also makes what a recording must not: chosen algorithms, shared memory granted.
        queue(engine, program, cuda)?;
        if program.runs == 0 {
            cuda.save_choices()?;
        }
    } else {
        if program.graph.is_none() {
            program.graph = Some(Graph::capture(cuda, || queue(engine, program, cuda))?);
        }
        if let Some(graph) = &program.graph {
            graph.launch(cuda)?;
        }
    }
    program.runs += 1;
    Ok(())
}

fn queue(engine: &Engine, program: &Program, cuda: &Cuda) -> Result<(), Error> {
    program.tape.nodes.iter().try_for_each(|node| step(engine, program, cuda, node))
}

fn step(engine: &Engine, program: &Program, cuda: &Cuda, node: &Node) -> Result<(), Error> {
    let tensor = |value: &Value| {
        let info = program.tape.info(*value);
        Tensor { address: program.addresses[value.0 as usize], shape: info.shape, dtype: info.dtype }
    };
    let io = CudaIo {
        cuda,
        inputs: node.inputs.iter().map(tensor).collect(),
        outputs: node.outputs.iter().map(tensor).collect(),
        bases: node.bases.iter().map(|b| b.map_or(0, |b| program.addresses[b.0 as usize])).collect(),
        collective: engine.nccl.as_ref(),
    };
    node.op.cuda(&io)
}

pub(super) fn profile(engine: &Engine, program: &Program, cuda: &Cuda) -> Result<Vec<Duration>, Error> {
    cuda.bind()?;
    let event = || {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .map_err(|e| Error::driver("make an event", e))
    };
    let nodes = &program.tape.nodes;
    let events: Vec<sys::CUevent> = (0..=nodes.len()).map(|_| event()).collect::<Result<_, _>>()?;
    // SAFETY: events and stream are ours.
    let record = |i: usize| {
        unsafe { result::event::record(events[i], cuda.stream()) }
            .map_err(|e| Error::driver("mark a time", e))
    };
    record(0)?;
    for (n, node) in nodes.iter().enumerate() {
        step(engine, program, cuda, node)?;
        record(n + 1)?;
    }
    cuda.synchronize()?;
    let mut times = Vec::with_capacity(nodes.len());
    for pair in events.windows(2) {
        // SAFETY: both events are recorded and over.
        let ms = unsafe { result::event::elapsed(pair[0], pair[1]) }
            .map_err(|e| Error::driver("read a time", e))?;
        times.push(Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3));
    }
    for event in events {
        // SAFETY: made above, destroyed once.
        let _ = unsafe { result::event::destroy(event) };
    }
    Ok(times)
}

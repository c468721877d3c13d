//! Runs a program on CUDA: kernel by kernel, captured, or replayed.

use super::checked::Findings;
use super::{Engine, Mode, Program};
use crate::cuda::Cuda;
use crate::cuda::context::StreamKind;
use crate::cuda::graph::Graph;
use crate::cuda::launch::{CudaIo, Tensor};
use crate::error::Error;
use crate::tape::{Node, Value};
use cudarc::driver::{result, sys};
use std::time::Duration;

pub(super) fn run(engine: &Engine, program: &mut Program, cuda: &Cuda) -> Result<Findings, Error> {
    let mut found = Findings::default();
    if engine.mode == Mode::Checked {
        engine.poison_scratch()?;
        for (n, node) in program.tape.nodes.iter().enumerate() {
            step(engine, program, cuda, node, StreamKind::Main)?;
            found.check_outputs(&engine.backend, program, n)?;
        }
        if program.runs == 0 {
            cuda.save_choices();
        }
    } else if program.runs == 0 {
        // The first run does what must not happen during capture: choosing algorithms and raising shared memory
        // limits. It is also the only run that times algorithms, so it uses one stream.
        program.tape.nodes.iter().try_for_each(|node| step(engine, program, cuda, node, StreamKind::Main))?;
        cuda.save_choices();
    } else if engine.mode == Mode::Eager || engine.sums_on_host() {
        queue(engine, program, cuda)?;
    } else {
        if program.graph.is_none() {
            program.graph = Some(Graph::capture(cuda, || queue(engine, program, cuda))?);
        }
        if let Some(graph) = &program.graph {
            graph.launch(cuda)?;
        }
    }
    program.runs += 1;
    Ok(found)
}

/// Queues every operation on its scheduled stream.
fn queue(engine: &Engine, program: &Program, cuda: &Cuda) -> Result<(), Error> {
    let schedule = &program.schedule;
    let (mut waited, mut queued) = (0, 0);
    for (n, node) in program.tape.nodes.iter().enumerate() {
        if schedule.waits_for[n] > waited {
            cuda.wait_for_side(schedule.waits_for[n] - 1)?;
            waited = schedule.waits_for[n];
        }
        match schedule.side_index[n] {
            None => step(engine, program, cuda, node, StreamKind::Main)?,
            Some(i) => {
                cuda.start_side(i)?;
                step(engine, program, cuda, node, StreamKind::Side)?;
                cuda.end_side(i)?;
                queued = i + 1;
            }
        }
    }
    // A capture must end on the stream it began on.
    if queued > waited {
        cuda.wait_for_side(queued - 1)?;
    }
    Ok(())
}

fn step(
    engine: &Engine,
    program: &Program,
    cuda: &Cuda,
    node: &Node,
    stream_kind: StreamKind,
) -> Result<(), Error> {
    let tensor = |value: &Value| {
        let info = program.tape.info(*value);
        Tensor { address: program.addresses[value.0 as usize], shape: info.shape, dtype: info.dtype }
    };
    let io = CudaIo {
        cuda,
        stream_kind,
        inputs: node.inputs.iter().map(tensor).collect(),
        outputs: node.outputs.iter().map(tensor).collect(),
        bases: node.bases.iter().map(|b| b.map_or(0, |b| program.addresses[b.0 as usize])).collect(),
        collective: engine.nccl.as_deref(),
        host_collective: engine.collective.as_deref(),
    };
    node.op.cuda(&io)
}

pub(super) fn profile(engine: &Engine, program: &Program, cuda: &Cuda) -> Result<Vec<Duration>, Error> {
    cuda.bind()?;
    let event = || {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .map_err(|e| Error::driver("create an event", e))
    };
    let nodes = &program.tape.nodes;
    let events: Vec<sys::CUevent> = (0..=nodes.len()).map(|_| event()).collect::<Result<_, _>>()?;
    let record = |i: usize| {
        // SAFETY: the events and the stream belong to this function and this device.
        unsafe { result::event::record(events[i], cuda.stream()) }
            .map_err(|e| Error::driver("record an event", e))
    };
    record(0)?;
    for (n, node) in nodes.iter().enumerate() {
        step(engine, program, cuda, node, StreamKind::Main)?;
        record(n + 1)?;
    }
    cuda.synchronize()?;
    let mut times = Vec::with_capacity(nodes.len());
    for pair in events.windows(2) {
        // SAFETY: both events are recorded and complete.
        let ms = unsafe { result::event::elapsed(pair[0], pair[1]) }
            .map_err(|e| Error::driver("read the time between two events", e))?;
        times.push(Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3));
    }
    for event in events {
        // SAFETY: created above, destroyed once.
        let _ = unsafe { result::event::destroy(event) };
    }
    Ok(times)
}

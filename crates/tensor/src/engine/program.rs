//! A tape prepared to run on an engine.

use super::buffer::Buffer;
use super::{Backend, Engine, Streams, fits};
use crate::cuda::graph::Graph;
use crate::error::Error;
use crate::memory::{MemoryNeed, MemoryPlan};
use crate::schedule::{Schedule, SideWork};
use crate::shape::DType;
use crate::tape::{EngineBuffer, Storage, Tape, Value};
use half::bf16;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

/// A tape with its memory, which can be run repeatedly.
#[derive(Debug)]
pub struct Program {
    pub(super) tape: Tape,
    pub(super) schedule: Schedule,
    pub(super) plan: MemoryPlan,
    pub(super) inputs: Buffer,
    pub(super) addresses: Vec<u64>,
    /// Engine generation the addresses belong to; `None` before the first run.
    generation: Option<u64>,
    pub(super) graph: Option<Graph>,
    pub(super) runs: u64,
    /// Values that are read; computed on first use, in checked runs.
    pub(super) read: OnceLock<HashSet<Value>>,
}

/// Time of one operation in a profiled run.
#[derive(Clone, Debug)]
pub struct OpTime {
    /// Name of the operation.
    pub op: &'static str,
    /// Scope in the model; scopes of the backward pass end in `'`.
    pub scope: String,
    /// Shape of its first output.
    pub shape: String,
    /// Time on the device.
    pub time: Duration,
}

impl Program {
    /// The tape it was loaded from.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Its memory plan.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Whether it has run since its memory was last moved. On a GPU, the first run chooses algorithms.
    pub fn has_run(&self) -> bool {
        self.runs > 0
    }

    /// Number of kernels and copies in the captured graph; `None` before capture.
    pub fn captured_nodes(&self) -> Option<usize> {
        self.graph.as_ref().map(Graph::nodes)
    }

    /// Device address of an input.
    fn input_address(&self, value: Value) -> u64 {
        match self.plan.inputs[value.0 as usize] {
            Some(offset) => self.inputs.address() + offset as u64,
            None => panic!("not an input"),
        }
    }
}

/// Stream assignment of a tape on a GPU, or on the CPU.
pub(super) fn schedule_on(gpu: bool, streams: Streams, tape: &Tape) -> Schedule {
    match (gpu, streams) {
        (true, Streams::One) => Schedule::with_side_stream(tape, SideWork::Reductions),
        (true, Streams::Two) => Schedule::with_side_stream(tape, SideWork::ReductionsAndGradients),
        (false, _) => Schedule::serial(tape),
    }
}

impl Engine {
    /// Memory the engine would hold with a program of this plan.
    pub fn need_with(&self, plan: &MemoryPlan) -> MemoryNeed {
        let now = self.memory();
        MemoryNeed {
            scratch: now.scratch.max(plan.scratch_bytes),
            inputs: now.inputs + plan.input_bytes,
            ..now
        }
    }

    /// Prepares a tape: allocates its inputs, and scratch memory for the largest program so far.
    pub fn load(&mut self, tape: Tape) -> Result<Program, Error> {
        assert_eq!(tape.precision, self.precision, "tape and engine must have the same precision");
        let schedule = self.schedule_of(&tape);
        let plan = MemoryPlan::scheduled(&tape, &schedule);
        let need = self.need_with(&plan);
        self.grow(&need, plan.scratch_bytes)?;
        let inputs = Buffer::new(&self.backend, plan.input_bytes)?;
        self.inputs += plan.input_bytes;
        let addresses = Vec::new();
        Ok(Program {
            tape,
            schedule,
            plan,
            inputs,
            addresses,
            generation: None,
            graph: None,
            runs: 0,
            read: OnceLock::new(),
        })
    }

    fn schedule_of(&self, tape: &Tape) -> Schedule {
        schedule_on(matches!(self.backend, Backend::Cuda(_)), self.streams, tape)
    }

    /// Memory plan of a tape on this engine.
    pub fn plan_of(&self, tape: &Tape) -> MemoryPlan {
        MemoryPlan::scheduled(tape, &self.schedule_of(tape))
    }

    /// Allocates scratch memory for the largest of several plans at once. Otherwise every larger program loaded
    /// later would move the scratch memory, and all graphs captured before would have to be captured again.
    pub fn reserve<'a>(&mut self, plans: impl IntoIterator<Item = &'a MemoryPlan>) -> Result<(), Error> {
        let bytes = plans.into_iter().map(|plan| plan.scratch_bytes).max().unwrap_or(0);
        let now = self.memory();
        let need = MemoryNeed { scratch: now.scratch.max(bytes), ..now };
        self.grow(&need, bytes)
    }

    fn grow(&mut self, need: &MemoryNeed, scratch: usize) -> Result<(), Error> {
        let grows = scratch > self.scratch.bytes();
        // The old scratch memory is freed first: only the difference must be available.
        let freed = if grows { self.scratch.bytes() } else { 0 };
        fits(&self.backend, need, (need.total() - self.memory().total()).saturating_sub(freed))?;
        if grows {
            self.synchronize()?;
            self.scratch = Buffer::new(&self.backend, 0)?;
            self.scratch = Buffer::new(&self.backend, scratch)?;
            self.generation += 1;
        }
        Ok(())
    }

    /// Looks up addresses, again after the scratch buffer has moved.
    pub(super) fn prepare(&self, program: &mut Program) -> Result<(), Error> {
        if program.generation == Some(self.generation) {
            return Ok(());
        }
        let count = program.tape.values.len();
        program.addresses = (0..count).map(|v| self.address(program, Value(v as u32))).collect();
        program.generation = Some(self.generation);
        program.graph = None;
        program.runs = 0;
        Ok(())
    }

    fn address(&self, program: &Program, value: Value) -> u64 {
        let info = program.tape.info(value);
        let v = value.0 as usize;
        let at = |flat: EngineBuffer, element: usize, dtype: DType| {
            self.arenas.buffer(flat).address() + (element * dtype.size()) as u64
        };
        match info.storage {
            // A value that is neither written nor read has no offset.
            Storage::Scratch => {
                program.plan.scratch[v].map_or(0, |offset| self.scratch.address() + offset as u64)
            }
            Storage::Input => program.input_address(value),
            Storage::View { of, start } => self.address(program, of) + (start * info.dtype.size()) as u64,
            Storage::Master(id) => at(EngineBuffer::Master, self.layout.get(id).offset, DType::F32),
            Storage::Work(id) => at(EngineBuffer::Work, self.layout.get(id).offset, info.dtype),
            Storage::Gradient(id) => at(EngineBuffer::Gradients, self.layout.get(id).offset, DType::F32),
            Storage::EngineBuffer(kind) => at(kind, 0, info.dtype),
        }
    }

    /// Fills a float input, converting to its element type.
    pub fn write(&self, program: &Program, value: Value, data: &[f32]) -> Result<(), Error> {
        let info = program.tape.info(value);
        assert_eq!(info.shape.len(), data.len(), "the input holds {}", crate::memory::describe(info.shape));
        let offset = input_offset(program, value);
        match info.dtype {
            DType::F32 => self.put(program, offset, bytemuck::cast_slice(data)),
            DType::Bf16 => {
                let rounded: Vec<bf16> = data.iter().map(|&x| bf16::from_f32(x)).collect();
                self.put(program, offset, bytemuck::cast_slice(&rounded))
            }
            DType::I32 => panic!("the input holds integers"),
        }
    }

    /// Fills an integer input.
    pub fn write_i32(&self, program: &Program, value: Value, data: &[i32]) -> Result<(), Error> {
        let info = program.tape.info(value);
        assert_eq!(info.dtype, DType::I32, "the input holds floats");
        assert_eq!(info.shape.len(), data.len(), "the input holds {}", crate::memory::describe(info.shape));
        self.put(program, input_offset(program, value), bytemuck::cast_slice(data))
    }

    /// On a GPU the copy is asynchronous; it is ordered between the previous and the next run.
    fn put(&self, program: &Program, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        match self.staging.send(program.inputs.address() + offset as u64, bytes)? {
            true => Ok(()),
            false => program.inputs.write(offset, bytes),
        }
    }

    /// Reads a kept value (or an input) as f32 after a run.
    pub fn read(&self, program: &Program, value: Value) -> Result<Vec<f32>, Error> {
        let info = program.tape.info(value);
        let bytes = self.read_bytes(program, value)?;
        Ok(match info.dtype {
            DType::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            DType::Bf16 => {
                bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            DType::I32 => panic!("the value holds integers"),
        })
    }

    /// Reads a kept integer value after a run.
    pub fn read_i32(&self, program: &Program, value: Value) -> Result<Vec<i32>, Error> {
        assert_eq!(program.tape.info(value).dtype, DType::I32, "the value holds floats");
        let bytes = self.read_bytes(program, value)?;
        Ok(bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn read_bytes(&self, program: &Program, value: Value) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.location(program, value).1.len()];
        self.read_into(program, value, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the raw bytes of a kept value after a run; `into` must have exactly its size.
    pub(super) fn read_into(&self, program: &Program, value: Value, into: &mut [u8]) -> Result<(), Error> {
        let (buffer, range) = self.location(program, value);
        buffer.read(range, into)
    }

    /// Device address and size in bytes of a kept value after a run.
    pub(super) fn result_address(&self, program: &Program, value: Value) -> (u64, usize) {
        let (buffer, range) = self.location(program, value);
        (buffer.address() + range.start as u64, range.len())
    }

    /// Buffer and byte range of a value after a run.
    fn location<'a>(&'a self, program: &'a Program, value: Value) -> (&'a Buffer, std::ops::Range<usize>) {
        let info = program.tape.info(value);
        let (mut root, mut start) = (value, 0);
        while let Storage::View { of, start: s } = program.tape.info(root).storage {
            start += s * info.dtype.size();
            root = of;
        }
        let root_info = program.tape.info(root);
        let (buffer, offset) = match root_info.storage {
            Storage::Input => (&program.inputs, input_offset(program, root)),
            Storage::Scratch => {
                let kept = program.tape.kept.contains(&value) || program.tape.kept.contains(&root);
                assert!(kept, "only kept values can be read after a run");
                (&self.scratch, program.plan.scratch[root.0 as usize].unwrap_or(0))
            }
            Storage::Master(id) => (self.arenas.buffer(EngineBuffer::Master), self.layout.get(id).offset * 4),
            Storage::Work(id) => {
                (self.arenas.buffer(EngineBuffer::Work), self.layout.get(id).offset * info.dtype.size())
            }
            Storage::Gradient(id) => {
                (self.arenas.buffer(EngineBuffer::Gradients), self.layout.get(id).offset * 4)
            }
            Storage::EngineBuffer(flat) => (self.arenas.buffer(flat), 0),
            Storage::View { .. } => panic!("a view's root is not a view"),
        };
        let start = offset + start;
        (buffer, start..start + info.shape.len() * info.dtype.size())
    }

    /// Runs a program once, operation by operation, and times each one on the device.
    pub fn profile(
        &mut self,
        program: &mut Program,
        control: &crate::step::Control,
    ) -> Result<Vec<OpTime>, Error> {
        self.prepare(program)?;
        self.arenas.buffer(EngineBuffer::Control).write_f32(0, &control.encode())?;
        let times = match self.backend.clone() {
            Backend::Cpu => super::cpu::profile(self, program)?,
            Backend::Cuda(cuda) => super::cuda::profile(self, program, &cuda)?,
        };
        let tape = &program.tape;
        Ok(tape
            .nodes
            .iter()
            .zip(times)
            .map(|(node, time)| OpTime {
                op: node.op.name(),
                scope: node.scope.to_string(),
                shape: node.outputs.first().map_or(String::new(), |&v| tape.shape(v).to_string()),
                time,
            })
            .collect())
    }
}

fn input_offset(program: &Program, value: Value) -> usize {
    program.plan.inputs[value.0 as usize].unwrap_or_else(|| panic!("not an input of this program"))
}

//! A tape made ready to run on an engine.

use super::buffer::Buffer;
use super::{Backend, Engine, Streams, fits};
use crate::cuda::graph::Graph;
use crate::error::Error;
use crate::memory::{MemoryNeed, MemoryPlan};
use crate::schedule::{Aside, Schedule};
use crate::shape::DType;
use crate::tape::{Flat, Storage, Tape, Value};
use half::bf16;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

/// A tape with memory: it can be run again and again.
#[derive(Debug)]
pub struct Program {
    pub(super) tape: Tape,
    pub(super) schedule: Schedule,
    pub(super) plan: MemoryPlan,
    pub(super) inputs: Buffer,
    pub(super) addresses: Vec<u64>,
    /// The engine's generation the addresses are of; none before the first run.
    generation: Option<u64>,
    pub(super) graph: Option<Graph>,
    pub(super) runs: u64,
    /// Values that somebody reads; found out when every result is looked at.
    pub(super) read: OnceLock<HashSet<Value>>,
}

/// The time of one operation in a profiled run.
#[derive(Clone, Debug)]
pub struct OpTime {
    /// The operation.
    pub op: &'static str,
    /// Where in the model; a backward pass's scopes end in `'`.
    pub scope: String,
    /// The shape of its first result.
    pub shape: String,
    /// How long it took on the device.
    pub time: Duration,
}

impl Program {
    /// The tape it was made of.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// How its memory is planned.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// How many kernels and copies its recorded form holds, once there is one.
    pub fn recorded(&self) -> Option<usize> {
        self.graph.as_ref().map(Graph::nodes)
    }

    /// The address of an input on its device, for whoever fills it there.
    pub fn input_address(&self, value: Value) -> u64 {
        match self.plan.inputs[value.0 as usize] {
            Some(offset) => self.inputs.address() + offset as u64,
            None => panic!("not an input"),
        }
    }
}

/// The order a tape runs in on a GPU, or on the processor.
pub(super) fn schedule_on(gpu: bool, streams: Streams, tape: &Tape) -> Schedule {
    match (gpu, streams) {
        (true, Streams::One) => Schedule::of(tape, Aside::Reductions),
        (true, Streams::Two) => Schedule::of(tape, Aside::Gradients),
        (false, _) => Schedule::serial(tape),
    }
}

impl Engine {
    /// What the engine would hold with a program of this plan.
    pub fn need_with(&self, plan: &MemoryPlan) -> MemoryNeed {
        let now = self.memory();
        MemoryNeed {
            scratch: now.scratch.max(plan.scratch_bytes),
            inputs: now.inputs + plan.input_bytes,
            ..now
        }
    }

    /// Makes a tape ready: memory for its inputs, and scratch for the largest program so far.
    pub fn load(&mut self, tape: Tape) -> Result<Program, Error> {
        assert_eq!(tape.precision, self.precision, "a tape runs on an engine of its own precision");
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

    /// The memory a tape will take here.
    pub fn plan_of(&self, tape: &Tape) -> MemoryPlan {
        MemoryPlan::scheduled(tape, &self.schedule_of(tape))
    }

    /// Takes scratch memory for the largest of several plans at once. Programs loaded later find it there; without it
    /// every larger one would move the memory, and all that were recorded before would have to be recorded again.
    pub fn reserve<'a>(&mut self, plans: impl IntoIterator<Item = &'a MemoryPlan>) -> Result<(), Error> {
        let bytes = plans.into_iter().map(|plan| plan.scratch_bytes).max().unwrap_or(0);
        let now = self.memory();
        let need = MemoryNeed { scratch: now.scratch.max(bytes), ..now };
        self.grow(&need, bytes)
    }

    fn grow(&mut self, need: &MemoryNeed, scratch: usize) -> Result<(), Error> {
        let grows = scratch > self.scratch.bytes();
        // The old scratch is given back first: only the difference must be free.
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

    /// Looks addresses up, again where the scratch buffer has moved.
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
        let at = |flat: Flat, element: usize, dtype: DType| {
            self.arenas.flat(flat).address() + (element * dtype.size()) as u64
        };
        match info.storage {
            // A value nobody wrote or reads has no place.
            Storage::Scratch => {
                program.plan.scratch[v].map_or(0, |offset| self.scratch.address() + offset as u64)
            }
            Storage::Input => program.input_address(value),
            Storage::View { of, start } => self.address(program, of) + (start * info.dtype.size()) as u64,
            Storage::Master(id) => at(Flat::Master, self.layout.get(id).offset, DType::F32),
            Storage::Work(id) => at(Flat::Work, self.layout.get(id).offset, info.dtype),
            Storage::Gradient(id) => at(Flat::Gradients, self.layout.get(id).offset, DType::F32),
            Storage::Flat(flat) => at(flat, 0, info.dtype),
        }
    }

    /// Fills a float input, rounding to its type.
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

    /// On a GPU the bytes are on their way when this returns, and arrive between the runs before and after.
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

    /// Reads a kept value as it lies there, into as many bytes as it has.
    pub(super) fn read_into(&self, program: &Program, value: Value, into: &mut [u8]) -> Result<(), Error> {
        let (buffer, range) = self.location(program, value);
        buffer.read(range, into)
    }

    /// Where a kept value lies on the device after a run, and how many bytes it has.
    pub(super) fn result_address(&self, program: &Program, value: Value) -> (u64, usize) {
        let (buffer, range) = self.location(program, value);
        (buffer.address() + range.start as u64, range.len())
    }

    /// The memory a value has after a run.
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
                assert!(kept, "only values that were kept can be read after a run");
                (&self.scratch, program.plan.scratch[root.0 as usize].unwrap_or(0))
            }
            Storage::Master(id) => (self.arenas.flat(Flat::Master), self.layout.get(id).offset * 4),
            Storage::Work(id) => {
                (self.arenas.flat(Flat::Work), self.layout.get(id).offset * info.dtype.size())
            }
            Storage::Gradient(id) => (self.arenas.flat(Flat::Gradients), self.layout.get(id).offset * 4),
            Storage::Flat(flat) => (self.arenas.flat(flat), 0),
            Storage::View { .. } => panic!("a view's root is not a view"),
        };
        let start = offset + start;
        (buffer, start..start + info.shape.len() * info.dtype.size())
    }

    /// Runs a program once, operation by operation, and times each on the device.
    pub fn profile(
        &mut self,
        program: &mut Program,
        control: &crate::step::Control,
    ) -> Result<Vec<OpTime>, Error> {
        self.prepare(program)?;
        self.arenas.flat(Flat::Control).write_f32(0, &control.encode())?;
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

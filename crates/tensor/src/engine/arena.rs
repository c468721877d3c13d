//! The flat arenas: master weights, working copy, gradients, moments, moving average. A checkpoint stores these
//! buffers.

use super::buffer::Buffer;
use super::{Backend, Engine, Training};
use crate::cuda::Cuda;
use crate::error::Error;
use crate::memory::MemoryNeed;
use crate::parameters::{Init, Layout, ParameterId};
use crate::random::Stream;
use crate::shape::DType;
use crate::tape::{EngineBuffer, Precision, buffer_len};
use half::bf16;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A buffer that a checkpoint stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arena {
    /// Master weights of all parameters.
    Weights,
    /// Gradients of the trained parameters.
    Gradients,
    /// Adam's first moment.
    Moment1,
    /// Adam's second moment.
    Moment2,
    /// The moving average of the trained weights.
    Average,
}

/// Engine state that persists across steps, besides the arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineState {
    /// Number of good steps so far.
    pub steps: u64,
}

#[derive(Debug)]
pub(crate) struct Arenas {
    buffers: Vec<(EngineBuffer, Buffer)>,
    precision: Precision,
    empty: Buffer,
}

fn held_buffers(precision: Precision, training: Training) -> Vec<EngineBuffer> {
    let mut kinds =
        vec![EngineBuffer::Master, EngineBuffer::Control, EngineBuffer::Report, EngineBuffer::Counters];
    if precision == Precision::Bf16 {
        kinds.push(EngineBuffer::Work);
    }
    if training != Training::None {
        kinds.extend([
            EngineBuffer::Gradients,
            EngineBuffer::Moment1,
            EngineBuffer::Moment2,
            EngineBuffer::Groups,
        ]);
    }
    if training == Training::AdamWithAverage {
        kinds.push(EngineBuffer::Average);
    }
    kinds
}

fn add(need: &mut MemoryNeed, kind: EngineBuffer, bytes: usize) {
    match kind {
        EngineBuffer::Master => need.weights += bytes,
        EngineBuffer::Work => need.working_copy += bytes,
        EngineBuffer::Gradients => need.gradients += bytes,
        EngineBuffer::Moment1 | EngineBuffer::Moment2 => need.moments += bytes,
        EngineBuffer::Average => need.average += bytes,
        EngineBuffer::Groups | EngineBuffer::Control | EngineBuffer::Report | EngineBuffer::Counters => {
            need.inputs += bytes
        }
    }
}

/// Memory the arenas of a layout need.
pub(crate) fn need(layout: &Layout, precision: Precision, training: Training) -> MemoryNeed {
    let mut need = MemoryNeed::default();
    for kind in held_buffers(precision, training) {
        let (len, dtype) = buffer_len(kind, layout, precision);
        add(&mut need, kind, len * dtype.size());
    }
    need
}

impl Arenas {
    pub fn new(
        backend: &Backend,
        layout: &Layout,
        precision: Precision,
        training: Training,
    ) -> Result<Arenas, Error> {
        let mut buffers = Vec::new();
        for kind in held_buffers(precision, training) {
            let (len, dtype) = buffer_len(kind, layout, precision);
            buffers.push((kind, Buffer::new(backend, len * dtype.size())?));
        }
        let arenas = Arenas { buffers, precision, empty: Buffer::new(backend, 0)? };
        if training != Training::None {
            let groups: Vec<i32> = layout.chunk_groups().into_iter().map(i32::from).collect();
            arenas.buffer(EngineBuffer::Groups).write(0, bytemuck::cast_slice(&groups))?;
        }
        Ok(arenas)
    }

    pub fn has(&self, kind: EngineBuffer) -> bool {
        self.buffers.iter().any(|(f, _)| *f == kind)
    }

    pub fn buffer(&self, kind: EngineBuffer) -> &Buffer {
        let kind = if kind == EngineBuffer::Work && self.precision == Precision::F32 {
            EngineBuffer::Master
        } else {
            kind
        };
        self.buffers.iter().find(|(f, _)| *f == kind).map_or(&self.empty, |(_, buffer)| buffer)
    }

    /// A mutable arena; `None` where the engine does not hold it.
    pub fn buffer_mut(&mut self, kind: EngineBuffer) -> Option<&mut Buffer> {
        self.buffers.iter_mut().find(|(f, _)| *f == kind).map(|(_, buffer)| buffer)
    }

    pub fn need(&self) -> MemoryNeed {
        let mut need = MemoryNeed::default();
        for (kind, buffer) in &self.buffers {
            add(&mut need, *kind, buffer.bytes());
        }
        need
    }
}

impl Engine {
    /// Fills every parameter with its initial values: a pure function of the seed and the parameter's name.
    pub(super) fn initialise(&mut self, seed: u64) -> Result<(), Error> {
        let mut weights = vec![0f32; self.layout.len()];
        let layout = std::sync::Arc::clone(&self.layout);
        for (_, parameter) in layout.parameters() {
            let hash = blake3::hash(parameter.name.as_bytes());
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.as_bytes()[..8]);
            let key = seed ^ u64::from_le_bytes(bytes);
            let slice = &mut weights[parameter.range()];
            // Chunks of a parameter have their own random streams, so the result does not depend on the number of
            // threads.
            slice.par_chunks_mut(1 << 16).enumerate().for_each(|(i, piece)| {
                let mut stream =
                    Stream::new(key.wrapping_add((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                for x in piece {
                    *x = match parameter.init {
                        Init::Zeros => 0.0,
                        Init::Constant(c) => c,
                        Init::Normal(deviation) => deviation * stream.normal(),
                        Init::Uniform(bound) => bound * (2.0 * stream.uniform() - 1.0),
                    };
                }
            });
        }
        self.write_arena(Arena::Weights, &weights)?;
        if self.arenas.has(EngineBuffer::Average) {
            self.write_arena(Arena::Average, &weights[..self.layout.trained_len()])?;
        }
        Ok(())
    }

    /// Whether the engine holds an arena.
    pub fn holds(&self, arena: Arena) -> bool {
        self.arenas.has(match arena {
            Arena::Weights => EngineBuffer::Master,
            Arena::Gradients => EngineBuffer::Gradients,
            Arena::Moment1 => EngineBuffer::Moment1,
            Arena::Moment2 => EngineBuffer::Moment2,
            Arena::Average => EngineBuffer::Average,
        })
    }

    /// Copies a whole arena to the host, in f32.
    pub fn read_arena(&self, arena: Arena) -> Result<Vec<f32>, Error> {
        let (kind, len) = self.arena(arena)?;
        self.arenas.buffer(kind).read_f32(0..len)
    }

    /// Replaces a whole arena. Writing the weights updates the working copy too.
    pub fn write_arena(&mut self, arena: Arena, data: &[f32]) -> Result<(), Error> {
        let (kind, len) = self.arena(arena)?;
        assert_eq!(len, data.len(), "an arena must be written as a whole");
        self.write_floats(kind, 0, data)
    }

    /// Replaces an arena by that of rank 0 on every joined replica. All replicas call it together; without a group
    /// it does nothing.
    pub fn broadcast_arena(&mut self, arena: Arena) -> Result<(), Error> {
        let (kind, len) = self.arena(arena)?;
        if let Some(nccl) = self.nccl.clone()
            && let Backend::Cuda(cuda) = self.backend.clone()
        {
            cuda.bind()?;
            // SAFETY: the arena holds `len` f32 values, and nothing else uses it until the stream is synchronised.
            unsafe { nccl.broadcast(self.arenas.buffer(kind).address(), len, 0, cuda.stream()) }?;
            cuda.synchronize()?;
            if arena == Arena::Weights && nccl.rank() > 0 {
                // Updates the working copy.
                let data = self.read_arena(arena)?;
                self.write_arena(arena, &data)?;
            }
        } else if let Some(collective) = self.collective.clone() {
            let mut data = self.read_arena(arena)?;
            collective.broadcast(&mut data, 0)?;
            if collective.rank() > 0 {
                self.write_arena(arena, &data)?;
            }
        }
        Ok(())
    }

    /// Copies one parameter's weights to the host.
    pub fn read_parameter(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        self.arenas.buffer(EngineBuffer::Master).read_f32(self.layout.get(id).range())
    }

    /// Replaces one parameter's weights.
    pub fn write_parameter(&mut self, id: ParameterId, data: &[f32]) -> Result<(), Error> {
        let range: Range<usize> = self.layout.get(id).range();
        assert_eq!(range.len(), data.len(), "{} has a different size", self.layout.get(id).name);
        self.write_floats(EngineBuffer::Master, range.start, data)
    }

    /// Device address of a parameter's f32 weights; `None` if they are not on the device opened by `cuda`, or not
    /// `count` elements.
    pub(crate) fn parameter_on(&self, cuda: &Arc<Cuda>, id: ParameterId, count: usize) -> Option<u64> {
        let range = self.layout.get(id).range();
        let is_there = self.cuda().is_some_and(|own| Arc::ptr_eq(own, cuda)) && range.len() == count;
        is_there.then(|| self.arenas.buffer(EngineBuffer::Master).address() + 4 * range.start as u64)
    }

    /// Copies one parameter's gradient to the host.
    pub fn read_gradient(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        self.arenas.buffer(EngineBuffer::Gradients).read_f32(self.layout.get(id).range())
    }

    /// Reads the state that persists across steps.
    pub fn state(&self) -> Result<EngineState, Error> {
        let counters = self.arenas.buffer(EngineBuffer::Counters).read_f32(0..crate::step::SLOTS)?;
        Ok(EngineState { steps: counters[crate::step::counter::STEPS] as u64 })
    }

    /// Restores the state that persists across steps.
    pub fn set_state(&mut self, state: EngineState) -> Result<(), Error> {
        let mut counters = [0.0; crate::step::SLOTS];
        counters[crate::step::counter::STEPS] = state.steps as f32;
        self.arenas.buffer(EngineBuffer::Counters).write_f32(0, &counters)
    }

    fn arena(&self, arena: Arena) -> Result<(EngineBuffer, usize), Error> {
        let (kind, len) = match arena {
            Arena::Weights => (EngineBuffer::Master, self.layout.len()),
            Arena::Gradients => (EngineBuffer::Gradients, self.layout.trained_len()),
            Arena::Moment1 => (EngineBuffer::Moment1, self.layout.trained_len()),
            Arena::Moment2 => (EngineBuffer::Moment2, self.layout.trained_len()),
            Arena::Average => (EngineBuffer::Average, self.layout.trained_len()),
        };
        if !self.arenas.has(kind) {
            return Err(Error::Unsupported(format!("this engine was created without {arena:?}")));
        }
        Ok((kind, len))
    }

    fn write_floats(&mut self, kind: EngineBuffer, start: usize, data: &[f32]) -> Result<(), Error> {
        self.arenas.buffer(kind).write_f32(start, data)?;
        if kind == EngineBuffer::Master && self.precision.dtype() == DType::Bf16 {
            let rounded: Vec<bf16> = data.par_iter().map(|&x| bf16::from_f32(x)).collect();
            self.arenas.buffer(EngineBuffer::Work).write(start * 2, bytemuck::cast_slice(&rounded))?;
        }
        Ok(())
    }
}

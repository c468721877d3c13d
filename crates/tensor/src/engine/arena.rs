//! The flat arenas: master weights, working copy, gradients, moments, average. A checkpoint is these buffers.

use super::buffer::Buffer;
use super::{Backend, Engine, Training};
use crate::cuda::Cuda;
use crate::error::Error;
use crate::memory::MemoryNeed;
use crate::parameters::{Init, Layout, ParameterId};
use crate::random::Stream;
use crate::shape::DType;
use crate::tape::{Flat, Precision, flat_len};
use half::bf16;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A buffer that a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arena {
    /// Master weights, of all parameters.
    Weights,
    /// Gradients, of the trained parameters.
    Gradients,
    /// Adam's first moment.
    Moment1,
    /// Adam's second moment.
    Moment2,
    /// The moving average.
    Average,
}

/// What outlives a step beside the arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Good steps so far.
    pub steps: u64,
}

#[derive(Debug)]
pub(crate) struct Arenas {
    buffers: Vec<(Flat, Buffer)>,
    precision: Precision,
    empty: Buffer,
}

fn held(precision: Precision, training: Training) -> Vec<Flat> {
    let mut flats = vec![Flat::Master, Flat::Control, Flat::Report, Flat::Counters];
    if precision == Precision::Bf16 {
        flats.push(Flat::Work);
    }
    if training != Training::None {
        flats.extend([Flat::Gradients, Flat::Moment1, Flat::Moment2, Flat::Groups]);
    }
    if training == Training::AdamWithAverage {
        flats.push(Flat::Average);
    }
    flats
}

fn add(need: &mut MemoryNeed, flat: Flat, bytes: usize) {
    match flat {
        Flat::Master => need.weights += bytes,
        Flat::Work => need.working_copy += bytes,
        Flat::Gradients => need.gradients += bytes,
        Flat::Moment1 | Flat::Moment2 => need.moments += bytes,
        Flat::Average => need.average += bytes,
        Flat::Groups | Flat::Control | Flat::Report | Flat::Counters => need.inputs += bytes,
    }
}

/// What the arenas of a layout will take.
pub(crate) fn need(layout: &Layout, precision: Precision, training: Training) -> MemoryNeed {
    let mut need = MemoryNeed::default();
    for flat in held(precision, training) {
        let (len, dtype) = flat_len(flat, layout, precision);
        add(&mut need, flat, len * dtype.size());
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
        for flat in held(precision, training) {
            let (len, dtype) = flat_len(flat, layout, precision);
            buffers.push((flat, Buffer::new(backend, len * dtype.size())?));
        }
        let arenas = Arenas { buffers, precision, empty: Buffer::new(backend, 0)? };
        if training != Training::None {
            let groups: Vec<i32> = layout.chunk_groups().into_iter().map(i32::from).collect();
            arenas.flat(Flat::Groups).write(0, bytemuck::cast_slice(&groups))?;
        }
        Ok(arenas)
    }

    pub fn has(&self, flat: Flat) -> bool {
        self.buffers.iter().any(|(f, _)| *f == flat)
    }

    pub fn flat(&self, flat: Flat) -> &Buffer {
        let flat = if flat == Flat::Work && self.precision == Precision::F32 { Flat::Master } else { flat };
        self.buffers.iter().find(|(f, _)| *f == flat).map_or(&self.empty, |(_, buffer)| buffer)
    }

    /// An arena to be written in place; none where it is not held.
    pub fn flat_mut(&mut self, flat: Flat) -> Option<&mut Buffer> {
        self.buffers.iter_mut().find(|(f, _)| *f == flat).map(|(_, buffer)| buffer)
    }

    pub fn need(&self) -> MemoryNeed {
        let mut need = MemoryNeed::default();
        for (flat, buffer) in &self.buffers {
            add(&mut need, *flat, buffer.bytes());
        }
        need
    }
}

impl Engine {
    /// Fills every parameter with its initial values: a pure function of the seed and its name.
    pub(super) fn initialise(&mut self, seed: u64) -> Result<(), Error> {
        let mut weights = vec![0f32; self.layout.len()];
        let layout = std::sync::Arc::clone(&self.layout);
        for (_, parameter) in layout.parameters() {
            let hash = blake3::hash(parameter.name.as_bytes());
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.as_bytes()[..8]);
            let key = seed ^ u64::from_le_bytes(bytes);
            let slice = &mut weights[parameter.range()];
            // Pieces of one parameter have streams of their own, so that any number of threads gives the same.
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
        if self.arenas.has(Flat::Average) {
            self.write_arena(Arena::Average, &weights[..self.layout.trained_len()])?;
        }
        Ok(())
    }

    /// Whether an arena is kept.
    pub fn holds(&self, arena: Arena) -> bool {
        self.arenas.has(match arena {
            Arena::Weights => Flat::Master,
            Arena::Gradients => Flat::Gradients,
            Arena::Moment1 => Flat::Moment1,
            Arena::Moment2 => Flat::Moment2,
            Arena::Average => Flat::Average,
        })
    }

    /// Copies a whole arena out, in f32.
    pub fn read_arena(&self, arena: Arena) -> Result<Vec<f32>, Error> {
        let (flat, len) = self.arena(arena)?;
        self.arenas.flat(flat).read_f32(0..len)
    }

    /// Copies a whole arena in. The working copy follows the weights.
    pub fn write_arena(&mut self, arena: Arena, data: &[f32]) -> Result<(), Error> {
        let (flat, len) = self.arena(arena)?;
        assert_eq!(len, data.len(), "an arena is written as a whole");
        self.write_floats(flat, 0, data)
    }

    /// An arena becomes that of rank 0, on every replica that has joined; all call it at the same time. Alone it does nothing.
    pub fn copy_arena_from_first(&mut self, arena: Arena) -> Result<(), Error> {
        let (flat, len) = self.arena(arena)?;
        if let Some(nccl) = self.nccl.clone()
            && let Backend::Cuda(cuda) = self.backend.clone()
        {
            cuda.bind()?;
            // SAFETY: the arena holds `len` f32, and nothing else uses it until the stream is waited for.
            unsafe { nccl.broadcast(self.arenas.flat(flat).address(), len, 0, cuda.stream()) }?;
            cuda.synchronize()?;
            if arena == Arena::Weights && nccl.rank() > 0 {
                // The working copy follows.
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

    /// One parameter's weights.
    pub fn read_parameter(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        self.arenas.flat(Flat::Master).read_f32(self.layout.get(id).range())
    }

    /// Replaces one parameter's weights.
    pub fn write_parameter(&mut self, id: ParameterId, data: &[f32]) -> Result<(), Error> {
        let range: Range<usize> = self.layout.get(id).range();
        assert_eq!(range.len(), data.len(), "{} has another size", self.layout.get(id).name);
        self.write_floats(Flat::Master, range.start, data)
    }

    /// Where the f32 weights of a parameter of so many numbers are in the memory of the device that `cuda` has open; none
    /// where they are elsewhere or others.
    pub(crate) fn parameter_on(&self, cuda: &Arc<Cuda>, id: ParameterId, count: usize) -> Option<u64> {
        let range = self.layout.get(id).range();
        let is_there = self.cuda().is_some_and(|own| Arc::ptr_eq(own, cuda)) && range.len() == count;
        is_there.then(|| self.arenas.flat(Flat::Master).address() + 4 * range.start as u64)
    }

    /// One parameter's gradient.
    pub fn read_gradient(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        self.arenas.flat(Flat::Gradients).read_f32(self.layout.get(id).range())
    }

    /// What outlives a step.
    pub fn state(&self) -> Result<State, Error> {
        let counters = self.arenas.flat(Flat::Counters).read_f32(0..crate::step::SLOTS)?;
        Ok(State { steps: counters[crate::step::counter::STEPS] as u64 })
    }

    /// Restores what outlives a step.
    pub fn set_state(&mut self, state: State) -> Result<(), Error> {
        let mut counters = [0.0; crate::step::SLOTS];
        counters[crate::step::counter::STEPS] = state.steps as f32;
        self.arenas.flat(Flat::Counters).write_f32(0, &counters)
    }

    fn arena(&self, arena: Arena) -> Result<(Flat, usize), Error> {
        let (flat, len) = match arena {
            Arena::Weights => (Flat::Master, self.layout.len()),
            Arena::Gradients => (Flat::Gradients, self.layout.trained_len()),
            Arena::Moment1 => (Flat::Moment1, self.layout.trained_len()),
            Arena::Moment2 => (Flat::Moment2, self.layout.trained_len()),
            Arena::Average => (Flat::Average, self.layout.trained_len()),
        };
        if !self.arenas.has(flat) {
            return Err(Error::Unsupported(format!("this engine was made without {arena:?}")));
        }
        Ok((flat, len))
    }

    fn write_floats(&mut self, flat: Flat, start: usize, data: &[f32]) -> Result<(), Error> {
        self.arenas.flat(flat).write_f32(start, data)?;
        if flat == Flat::Master && self.precision.dtype() == DType::Bf16 {
            let rounded: Vec<bf16> = data.par_iter().map(|&x| bf16::from_f32(x)).collect();
            self.arenas.flat(Flat::Work).write(start * 2, bytemuck::cast_slice(&rounded))?;
        }
        Ok(())
    }
}

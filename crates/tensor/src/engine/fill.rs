//! Writes weights on all cores: directly into the arena on the CPU; for a GPU into page-locked memory, one half of
//! which is copied while the other is written.

use super::buffer::Buffer;
use super::{Backend, Engine};
use crate::cuda::Cuda;
use crate::cuda::memory::PinnedMemory;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::shape::DType;
use crate::tape::EngineBuffer;
use cudarc::driver::result;
use half::bf16;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Floats written before they are copied to a GPU, unless a single parameter is larger.
const PIECE: usize = 8 << 20;

impl Engine {
    /// Replaces the weights of parameters. `fill` is called with each index into `ids` and the slice to write, on
    /// many threads and in any order. `ids` must not contain duplicates. If `fill` fails, the weights are left
    /// partly overwritten.
    pub fn fill_parameters<E: From<Error> + Send>(
        &mut self,
        ids: &[ParameterId],
        fill: impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let mut places: Vec<(usize, Range<usize>)> =
            ids.iter().map(|&id| self.layout.get(id).range()).enumerate().collect();
        places.sort_by_key(|(_, range)| range.start);
        assert!(
            places.windows(2).all(|pair| pair[0].1.end <= pair[1].1.start),
            "`ids` contains a parameter twice"
        );
        match &self.backend {
            Backend::Cpu => {
                let mut slices = Vec::with_capacity(places.len());
                let mut rest =
                    self.arenas.buffer_mut(EngineBuffer::Master).map_or(&mut [][..], Buffer::host_f32);
                let mut at = 0;
                for (index, range) in places {
                    let (_, from) = rest.split_at_mut(range.start - at);
                    let (slice, after) = from.split_at_mut(range.len());
                    slices.push((index, slice));
                    (rest, at) = (after, range.end);
                }
                // Largest first: otherwise a single thread would process the largest one at the end.
                slices.sort_by_key(|(_, slice)| std::cmp::Reverse(slice.len()));
                slices.into_par_iter().try_for_each(|(index, slice)| fill(index, slice))
            }
            Backend::Cuda(cuda) => {
                let cuda = Arc::clone(cuda);
                let rounded = self.precision.dtype() == DType::Bf16;
                let master = self.arenas.buffer(EngineBuffer::Master);
                let work = rounded.then(|| self.arenas.buffer(EngineBuffer::Work));
                cuda.bind()?;
                let largest = places.iter().map(|(_, range)| range.len()).max().unwrap_or(0);
                let room = largest.max(PIECE);
                let mut halves = [Half::new(room, rounded)?, Half::new(room, rounded)?];
                let filled = through_pinned(&cuda, (master, work), (&mut halves, room), &places, &fill);
                // Also after an error: copies may still be running from memory that is freed now.
                cuda.synchronize()?;
                filled
            }
        }
    }
}

/// Half of the page-locked memory: one half is copied while the other is written.
struct Half {
    floats: PinnedMemory,
    rounded: PinnedMemory,
}

impl Half {
    fn new(floats: usize, rounded: bool) -> Result<Half, Error> {
        Ok(Half {
            floats: PinnedMemory::new(4 * floats)?,
            rounded: PinnedMemory::new(if rounded { 2 * floats } else { 0 })?,
        })
    }
}

fn through_pinned<E: From<Error> + Send>(
    cuda: &Cuda,
    (master, work): (&Buffer, Option<&Buffer>),
    (halves, room): (&mut [Half; 2], usize),
    places: &[(usize, Range<usize>)],
    fill: &(impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync),
) -> Result<(), E> {
    let (mut start, mut turn) = (0, 0);
    while start < places.len() {
        let mut end = start;
        let mut floats = 0;
        while end < places.len() && floats + places[end].1.len() <= room {
            floats += places[end].1.len();
            end += 1;
        }
        let group = &places[start..end];
        let half = &mut halves[turn];
        // The other half may still be copied; copies from this one are finished.
        let all: &mut [f32] = bytemuck::cast_slice_mut(half.floats.as_mut_slice());
        let mut slices = Vec::with_capacity(group.len());
        let mut rest = &mut all[..floats];
        for (index, range) in group {
            let (slice, after) = rest.split_at_mut(range.len());
            slices.push((*index, slice));
            rest = after;
        }
        slices.into_par_iter().try_for_each(|(index, slice)| fill(index, slice))?;
        if work.is_some() {
            let from: &[f32] = &bytemuck::cast_slice(half.floats.as_slice())[..floats];
            let to: &mut [bf16] = &mut bytemuck::cast_slice_mut(half.rounded.as_mut_slice())[..floats];
            to.par_iter_mut().zip(from).for_each(|(to, from)| *to = bf16::from_f32(*from));
        }
        // The copy of the other half is finished: it is written next.
        cuda.synchronize()?;
        let mut at = 0;
        for (_, range) in group {
            send(cuda, master, 4 * range.start, &half.floats.as_slice()[4 * at..4 * (at + range.len())])?;
            if let Some(work) = work {
                send(cuda, work, 2 * range.start, &half.rounded.as_slice()[2 * at..2 * (at + range.len())])?;
            }
            at += range.len();
        }
        (start, turn) = (end, 1 - turn);
    }
    Ok(())
}

/// Queues a copy; the caller keeps the bytes alive until the stream is synchronised.
fn send(cuda: &Cuda, to: &Buffer, offset: usize, bytes: &[u8]) -> Result<(), Error> {
    assert!(offset + bytes.len() <= to.bytes(), "a write of {} bytes at {offset} is too long", bytes.len());
    // SAFETY: the range is inside the allocation; the caller synchronises before the bytes are overwritten or
    // freed.
    unsafe { result::memcpy_htod_async(to.address() + offset as u64, bytes, cuda.stream()) }
        .map_err(|error| Error::driver("copy weights to the device", error))
}

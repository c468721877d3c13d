//! Attention of new rows to all earlier rows, whose keys and values stay in a state parameter from run to run. The
//! position of the new rows is read on the device, so that one captured program works at every position. Forward
//! only.
//!
//! | value | shape | type |
//! |---|---|---|
//! | qkv | `[batch, new, 3 * width]`: all queries, then all keys, then all values | activations |
//! | cache | `[batch, room, 2 * width]`: all keys, then all values | f32 |
//! | position | `[1]`: the position of the first new row | i32 |
//! | output | `[batch, new, width]` | activations |

use crate::args;
use crate::cpu::attention::{Head, KeyMask, QUERY_BLOCK, Workspace};
use crate::cpu::matrix::Matrix;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Spec, Tape, Value};
use rayon::prelude::*;
use std::sync::Arc;

/// Threads per block, and therefore the maximum head size on CUDA.
const THREADS: usize = 256;

/// Inputs: qkv, position. Output: the cache, of which only the new rows are written. A separate operation, because
/// on the CPU no operation may read and write the same memory.
#[derive(Debug)]
struct CacheRows;

/// The position of the first of `new` rows in a cache of `room` rows.
fn checked_position(position: &[i32], new: usize, room: usize) -> Result<usize, Error> {
    let at = usize::try_from(position[0]).ok().filter(|at| at + new <= room);
    at.ok_or_else(|| {
        Error::Unsupported(format!(
            "{new} rows at position {} do not fit a cache of {room} rows",
            position[0]
        ))
    })
}

impl Op for CacheRows {
    fn name(&self) -> &'static str {
        "cache_rows"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (qkv, new, row) = (io.f32(0), io.shape(0).dim(1), io.shape(0).last());
        let (room, pair) = (io.output_shape(0).dim(1), io.output_shape(0).last());
        let at = checked_position(io.i32(1), new, room)?;
        let items = io.take(0).chunks_exact_mut(room * pair).zip(qkv.chunks_exact(new * row));
        for (cache, qkv) in items {
            for (cache, qkv) in cache[at * pair..].chunks_exact_mut(pair).zip(qkv.chunks_exact(row)) {
                cache.copy_from_slice(&qkv[row - pair..]);
            }
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (shape, cache) = (io.shape(0), io.output_shape(0));
        let (batch, new, room, width) = (shape.dim(0), shape.dim(1), cache.dim(1), cache.last() / 2);
        let name = format!("cache_rows_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), io.input(1), batch, new, room, width];
        io.launch(&name, Launch::each(batch * new * 2 * width), &args)
    }

    fn is_long(&self) -> bool {
        false
    }
}

/// Inputs: qkv, cache with the new rows in it, position. Output: the attention of the new rows.
#[derive(Debug)]
struct CachedAttention {
    heads: usize,
}

impl Op for CachedAttention {
    fn name(&self) -> &'static str {
        "cached_attention"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (qkv, cache, shape) = (io.f32(0), io.f32(1), io.shape(0));
        let (new, row) = (shape.dim(1), shape.last());
        let (room, width) = (io.shape(1).dim(1), row / 3);
        let keys = checked_position(io.i32(2), new, room)? + new;
        let size = width / self.heads;
        let key_mask = KeyMask { queries: new, keys, causal: true, length: keys, visible: None };
        let head_outputs: Vec<Vec<f32>> = (0..shape.dim(0) * self.heads)
            .into_par_iter()
            .map_init(Workspace::default, |space, i| {
                let (item, channel) = (i / self.heads, i % self.heads * size);
                let cache = &cache[item * room * 2 * width + channel..];
                let head = Head {
                    q: Matrix::strided(&qkv[item * new * row + channel..], row),
                    k: Matrix::strided(cache, 2 * width),
                    v: Matrix::strided(&cache[width..], 2 * width),
                    size,
                    scale: 1.0 / (size as f32).sqrt(),
                };
                let (mut out, mut logs) = (vec![0f32; new * size], [0f32; QUERY_BLOCK]);
                for (i, out) in out.chunks_mut(QUERY_BLOCK * size).enumerate() {
                    let rows = out.len() / size;
                    let queries = i * QUERY_BLOCK..i * QUERY_BLOCK + rows;
                    head.forward(&key_mask, queries, space, (out, size), &mut logs[..rows]);
                }
                out
            })
            .collect();
        let out = io.take(0);
        for (i, head_outputs) in head_outputs.iter().enumerate() {
            let (item, channel) = (i / self.heads, i % self.heads * size);
            for (t, row) in head_outputs.chunks_exact(size).enumerate() {
                out[(item * new + t) * width + channel..][..size].copy_from_slice(row);
            }
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let shape = io.shape(0);
        let (batch, new, room, width) = (shape.dim(0), shape.dim(1), io.shape(1).dim(1), shape.last() / 3);
        let size = width / self.heads;
        if size > THREADS {
            return Err(Error::Unsupported(format!(
                "cached attention with heads of {size} channels: CUDA supports at most {THREADS}"
            )));
        }
        let name = format!("cached_attention_{}", float(io.dtype(0)).suffix());
        let scale = 1.0 / (size as f32).sqrt();
        let args =
            args![io.output(0), io.input(0), io.input(1), io.input(2), new, room, self.heads, size, scale];
        // A query, its scores, and the parts of its output.
        let shared = 4 * (size + room + THREADS);
        let launch = Launch::line(batch * self.heads * new, THREADS as u32).shared(shared);
        io.launch(&name, launch, &args)
    }
}

impl Tape {
    /// Attention of `qkv` to the rows before `position` and, causally, to itself: see the table in the module
    /// documentation. `cache` is `Tape::master` of a state parameter; afterwards it holds the keys and values of
    /// the new rows, whatever else the tape does. The scale is `1 / sqrt(width / heads)`.
    pub fn cached_attention(&mut self, qkv: Value, cache: Value, position: Value, heads: usize) -> Value {
        let (shape, room) = (self.shape(qkv), self.shape(cache));
        assert_eq!(shape.rank(), 3, "attention is over [batch, time, channels], not {shape}");
        let width = shape.last() / 3;
        assert_eq!(shape.last() % (3 * heads), 0, "{shape} is not queries, keys and values of {heads} heads");
        let fits = room.rank() == 3 && room.dim(0) == shape.dim(0) && room.last() == 2 * width;
        assert!(fits, "a cache {room} does not hold keys and values of {shape}");
        assert_eq!(self.info(cache).dtype, DType::F32, "a cache must be f32");
        assert_eq!(self.info(position).dtype, DType::I32, "a position must be i32");
        assert_eq!(self.shape(position).len(), 1, "all items share one position");
        self.push_into(Arc::new(CacheRows), &[qkv, position], &[cache], &[None]);
        let spec = Spec::constant([shape.dim(0), shape.dim(1), width], self.info(qkv).dtype);
        self.push_one(CachedAttention { heads }, &[qkv, cache, position], spec)
    }
}

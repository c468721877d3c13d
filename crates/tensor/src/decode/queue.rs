//! Queues the kernels of a step, in order.

use super::buffers::seen_words;
use super::sizes::{DecodeSizes, Product, stride};
use super::{CAPTURED_STEPS, Decoder, MAX_STEPS};
use crate::args;
use crate::cuda::context::StreamKind;
use crate::cuda::graph::Graph;
use crate::cuda::launch::{Arg, CudaIo, Launch};
use crate::error::Error;

/// Destination of a product's sums; mirrors `decode_linear.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Target {
    floats: u64,
    rounded: u64,
    keys: u64,
    values: u64,
    heads: i32,
    size: i32,
    room: i32,
    stride: i32,
    scale: f32,
    unused: i32,
}

/// Partial results of the attention; mirrors `decode_linear.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Parts {
    parts: u64,
    weights: u64,
    heads: i32,
    size: i32,
    room: i32,
    chunks: i32,
}

/// Input rows of a product.
#[derive(Clone, Copy)]
enum Source {
    /// The residual stream after a number of norms, whose parameters are at the given offset.
    Normed(usize, usize),
    /// bf16 rows at an address.
    Address(u64),
    /// Partial results of the attention, merged on the fly.
    Merged,
}

/// Up to this many rows, each block of a product computes the norms of all rows; more rows use separate norm
/// kernels.
const FUSED_ROWS: usize = 16;
/// Up to this many rows, a network of XTTS-v2's sizes uses kernels specialised for it.
const FEW_ROWS: usize = 2;
/// From this many rows on, one block attends to all chunks; fewer where a kernel with independent warps exists.
const WHOLE_ROWS: usize = 16;
const STREAMED_ROWS: usize = 8;
/// Head sizes that have such kernels.
const STREAMED_HEADS: [usize; 2] = [32, 64];
/// Elements of padding between rows in shared memory.
const PADDING: usize = 32;
/// Features per block of `decode_split`.
const SPLIT_FEATURES: usize = 64;

/// Candidates of the sampling kernel, each with a sum, a key and an id.
const CANDIDATES: usize = 2048;

impl Decoder {
    /// Runs `steps` steps of `batch` rows: the first time kernel by kernel, later as captured graphs.
    pub(super) fn run_steps(&mut self, batch: usize, steps: usize) -> Result<(), Error> {
        debug_assert!(steps <= MAX_STEPS);
        self.launch(
            "decode_embed",
            Launch::line(batch, 256),
            &args![
                self.buffers.rows.address(),
                self.buffers.x.address(),
                self.floats(self.offsets.audio_table),
                self.floats(self.offsets.audio_positions),
                self.sizes.width
            ],
        )?;
        let mut left = steps;
        if !self.warm.contains(&(batch, false)) {
            self.queue_step(batch)?;
            self.warm.push((batch, false));
            left -= 1;
        }
        while left > 0 {
            let together = if left >= CAPTURED_STEPS { CAPTURED_STEPS } else { 1 };
            if !self.graphs.contains_key(&(batch, together)) {
                let graph =
                    Graph::capture(&self.cuda, || (0..together).try_for_each(|_| self.queue_step(batch)))?;
                self.graphs.insert((batch, together), graph);
            }
            self.graphs[&(batch, together)].launch(&self.cuda)?;
            left -= together;
        }
        Ok(())
    }

    /// Runs `batch` rows of a prompt.
    pub(super) fn run_prompt(&mut self, batch: usize) -> Result<(), Error> {
        self.launch(
            "decode_prompt",
            Launch::line(batch, 256),
            &args![
                self.buffers.prompt_rows.address(),
                self.buffers.x.address(),
                self.buffers.voice.address(),
                self.sizes.latents,
                self.floats(self.offsets.text_table),
                self.floats(self.offsets.text_positions),
                self.sizes.width
            ],
        )?;
        let rows = self.buffers.prompt_rows.address();
        if !self.warm.contains(&(batch, true)) {
            self.warm.push((batch, true));
            return self.queue_blocks(rows, batch, false);
        }
        if !self.graphs.contains_key(&(batch, 0)) {
            let graph = Graph::capture(&self.cuda, || self.queue_blocks(rows, batch, false))?;
            self.graphs.insert((batch, 0), graph);
        }
        self.graphs[&(batch, 0)].launch(&self.cuda)
    }

    /// Queues the conversion of f32 values on the device to bf16.
    pub(super) fn round(&self, to: u64, from: u64, count: usize) -> Result<(), Error> {
        self.launch("cast_f32_bf16", Launch::each(count.div_ceil(4)), &args![to, 0u64, from, count as i64])
    }

    fn floats(&self, at: usize) -> u64 {
        self.buffers.floats.address() + 4 * at as u64
    }

    fn launch(&self, kernel: &str, launch: Launch, args: &[Arg]) -> Result<(), Error> {
        // All kernels partition an SM's memory in the same way: between kernels that differ, an SM has to drain.
        self.cuda.allow_shared(self.cuda.function(kernel)?, launch.shared)?;
        let (inputs, outputs, bases) = (Vec::new(), Vec::new(), Vec::new());
        CudaIo {
            cuda: &self.cuda,
            stream_kind: StreamKind::Main,
            inputs,
            outputs,
            bases,
            collective: None,
            host_collective: None,
        }
        .launch(kernel, launch, args)
    }

    fn queue_step(&self, batch: usize) -> Result<(), Error> {
        let buffers = &self.buffers;
        let rows = buffers.rows.address();
        self.queue_blocks(rows, batch, true)?;
        let to = Target { floats: buffers.logits.address(), ..Target::default() };
        let source = match batch > FUSED_ROWS {
            true => Source::Address(buffers.normed.address()),
            false => Source::Normed(self.offsets.last_norms, 2),
        };
        self.product("head", rows, batch, &self.offsets.head, source, to)?;
        let vocabulary = self.sizes.vocabulary;
        let shared = CANDIDATES * (8 + 8 + 4) + 256 * 4 + vocabulary * 4;
        self.launch(
            "decode_sample",
            Launch::line(batch, 512).shared(shared),
            &args![
                rows,
                batch,
                buffers.logits.address(),
                vocabulary,
                self.sizes.stop,
                buffers.samplings.address(),
                buffers.uniforms.address(),
                self.sizes.positions,
                buffers.seen.address(),
                seen_words(vocabulary),
                buffers.codes.address(),
                buffers.x.address(),
                self.floats(self.offsets.audio_table),
                self.floats(self.offsets.audio_positions),
                self.sizes.width
            ],
        )
    }

    /// Queues all blocks. For batches of many rows also the norms after them if `with_head`: `normed` is the input
    /// of the head.
    fn queue_blocks(&self, rows: u64, batch: usize, with_head: bool) -> Result<(), Error> {
        let buffers = &self.buffers;
        let many = batch > FUSED_ROWS;
        let [normed, attended, inner] =
            [&buffers.normed, &buffers.attended, &buffers.inner].map(|memory| memory.address());
        let residual = Target { floats: buffers.x.address(), ..Target::default() };
        let up = Target { rounded: inner, stride: stride(self.sizes.inner) as i32, ..Target::default() };
        if many {
            self.norm(rows, batch, self.offsets.blocks[0].norm1)?;
        }
        for (layer, block) in self.offsets.blocks.iter().enumerate() {
            let after = |norm: usize| if many { Source::Address(normed) } else { Source::Normed(norm, 1) };
            self.queue_attention(rows, batch, layer, after(block.norm1))?;
            if many {
                self.split(rows, batch, &block.out, attended, (block.norm2, 1))?;
            } else if self.is_few(batch) {
                self.product("out", rows, batch, &block.out, Source::Merged, residual)?;
            } else {
                self.product("down", rows, batch, &block.out, Source::Address(attended), residual)?;
            }
            self.product("up", rows, batch, &block.up, after(block.norm2), up)?;
            if many {
                let norms = match self.offsets.blocks.get(layer + 1) {
                    Some(next) => (next.norm1, 1),
                    None => (self.offsets.last_norms, if with_head { 2 } else { 0 }),
                };
                self.split(rows, batch, &block.down, inner, norms)?;
            } else {
                self.product("down", rows, batch, &block.down, Source::Address(inner), residual)?;
            }
        }
        Ok(())
    }

    /// Whether the kernels for few rows apply: their sizes are fixed at compile time.
    fn is_few(&self, batch: usize) -> bool {
        let DecodeSizes { width, inner, .. } = self.sizes;
        batch <= FEW_ROWS && (width, inner, self.sizes.head_size()) == (1024, 4096, 64)
    }

    /// Queues queries, keys and values, and their attention: as partial results, or merged.
    fn queue_attention(&self, rows: u64, batch: usize, layer: usize, source: Source) -> Result<(), Error> {
        let (buffers, sizes, block) = (&self.buffers, &self.sizes, &self.offsets.blocks[layer]);
        let (heads, size, room, chunks) =
            (sizes.heads, sizes.head_size(), sizes.rows_per_slot(), sizes.chunks());
        let cache = (sizes.slots * room * sizes.width * 2) as u64;
        let [keys, values] =
            [&buffers.keys, &buffers.values].map(|memory| memory.address() + layer as u64 * cache);
        let queries = buffers.queries.address();
        let qkv = Target {
            floats: queries,
            keys,
            values,
            heads: heads as i32,
            size: size as i32,
            room: room as i32,
            // Scores are exponents of two.
            scale: std::f32::consts::LOG2_E / (size as f32).sqrt(),
            ..Target::default()
        };
        self.product("qkv", rows, batch, &block.qkv, source, qkv)?;
        let (attended, row) = (buffers.attended.address(), stride(sizes.width));
        if batch >= STREAMED_ROWS && STREAMED_HEADS.contains(&size) {
            return self.launch(
                &format!("decode_attend_streams_{size}"),
                Launch::grid(heads, batch, 1, 128),
                &args![rows, queries, keys, values, attended, heads, room, row],
            );
        }
        if batch >= WHOLE_ROWS {
            return self.launch(
                &format!("decode_attend_whole_{size}"),
                Launch::grid(heads, batch, 1, 256),
                &args![rows, queries, keys, values, attended, heads, room, row],
            );
        }
        let (parts, weights) = (buffers.parts.address(), buffers.part_weights.address());
        self.launch(
            &format!("decode_attend_{size}"),
            Launch::grid(chunks, heads, batch, 256),
            &args![rows, queries, keys, values, parts, weights, heads, room, chunks],
        )?;
        if self.is_few(batch) {
            return Ok(());
        }
        self.launch(
            "decode_merge",
            Launch::grid(heads.div_ceil(4), batch, 1, 128),
            &args![rows, parts, weights, attended, heads, size, room, chunks, row],
        )
    }

    fn norm(&self, rows: u64, batch: usize, norm: usize) -> Result<(), Error> {
        let (buffers, width) = (&self.buffers, self.sizes.width);
        let (x, normed, latents) = (buffers.x.address(), buffers.normed.address(), buffers.latents.address());
        self.launch(
            "decode_norm",
            Launch::line(batch, 256),
            &args![rows, batch, x, self.floats(norm), 1usize, normed, latents, width, stride(width)],
        )
    }

    /// Queues a product that is added to the residual stream, and the norms after it (their offset and number).
    fn split(
        &self,
        rows: u64,
        batch: usize,
        product: &Product,
        given: u64,
        (norm, norms): (usize, usize),
    ) -> Result<(), Error> {
        let (buffers, width, splits) = (&self.buffers, self.sizes.width, product.splits());
        let each = (product.stride() / 32).div_ceil(splits);
        let matrix = buffers.rounded.address() + 2 * product.matrix as u64;
        self.launch(
            &format!("decode_split_{batch}"),
            Launch::grid(product.features.div_ceil(SPLIT_FEATURES), splits, 1, 256)
                .shared(batch * (each * 32 + PADDING) * 2),
            &args![matrix, given, buffers.sums.address(), batch, product.features, product.stride()],
        )?;
        self.launch(
            "decode_reduce",
            Launch::line(batch, 256),
            &args![
                rows,
                batch,
                buffers.x.address(),
                buffers.sums.address(),
                splits,
                self.floats(product.bias),
                self.floats(norm),
                norms,
                buffers.normed.address(),
                buffers.latents.address(),
                width,
                stride(width)
            ],
        )
    }

    /// Queues one of the kernels of `decode_linear.cu`, by its name without the number of rows.
    fn product(
        &self,
        kernel: &str,
        rows: u64,
        batch: usize,
        product: &Product,
        source: Source,
        to: Target,
    ) -> Result<(), Error> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let (given, norm, norms) = match source {
            Source::Normed(norm, norms) => (0, self.floats(norm), norms),
            Source::Address(given) => (given, 0, 0),
            Source::Merged => (0, 0, 0),
        };
        let tile = if self.is_few(batch) { FEW_ROWS } else { batch.max(8) };
        // Features per block, in units of eight.
        let columns = match kernel {
            "qkv" | "up" => {
                if batch > FUSED_ROWS {
                    4
                } else {
                    2
                }
            }
            _ => 1,
        };
        let warps = product.splits();
        // Shared memory for rows, for norms unless threads hold theirs in registers, and for sums.
        let is_shared = given == 0 || batch <= 8;
        let rows_there = if is_shared { batch * (product.stride() + PADDING) * 2 } else { 0 };
        let norms_there = if tile == FEW_ROWS { 0 } else { norms * 2 * sizes.width * 4 };
        let across = 8 * if columns > 1 { columns + 1 } else { columns };
        let sums_there = warps * batch.max(16) * across * 4;
        let parts = Parts {
            parts: buffers.parts.address(),
            weights: buffers.part_weights.address(),
            heads: sizes.heads as i32,
            size: sizes.head_size() as i32,
            room: sizes.rows_per_slot() as i32,
            chunks: sizes.chunks() as i32,
        };
        self.launch(
            &format!("decode_{kernel}_{tile}"),
            Launch::line(product.features.div_ceil(8 * columns), 32 * warps as u32)
                .shared(rows_there + norms_there + sums_there),
            &args![
                rows,
                batch,
                buffers.rounded.address() + 2 * product.matrix as u64,
                self.floats(product.bias),
                given,
                buffers.x.address(),
                norm,
                buffers.latents.address(),
                product.features,
                sizes.width,
                product.stride(),
                Arg::from_pod(&to),
                Arg::from_pod(&parts)
            ],
        )
    }
}

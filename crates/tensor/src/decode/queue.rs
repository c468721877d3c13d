//! The kernels of a step, in their order.

use super::buffers::words;
use super::sizes::{Product, stride};
use super::{Decoder, MOST_STEPS, RECORDED_STEPS};
use crate::args;
use crate::cuda::context::Side;
use crate::cuda::graph::Graph;
use crate::cuda::launch::{Arg, CudaIo, Launch};
use crate::error::Error;

/// What becomes of the sums of a product, as `decode_linear.cu` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Target {
    floats: u64,
    rounded: u64,
    keys: u64,
    values: u64,
    kind: i32,
    heads: i32,
    size: i32,
    room: i32,
    stride: i32,
    scale: f32,
}

const TO_QKV: i32 = 0;
const TO_GELU: i32 = 1;
const TO_RESIDUAL: i32 = 2;
const TO_LOGITS: i32 = 3;

/// Parts of the attention, as `decode_linear.cu` has them.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Parts {
    parts: u64,
    weights: u64,
    heads: i32,
    size: i32,
    room: i32,
    stretches: i32,
}

/// What the rows of a product are.
#[derive(Clone, Copy)]
enum Source {
    /// The residual stream after a norm.
    Normed(usize),
    /// The residual stream after both norms behind the blocks.
    Headed,
    /// bf16 at an address.
    Given(u64),
    /// Parts of the attention.
    Merged,
}

/// Up to so many rows, each block of a product computes the norms of all rows; more rows have kernels of their own.
const FUSED_ROWS: usize = 16;
/// Up to so many rows, each block of the product behind an attention merges its parts.
const MERGED_ROWS: usize = 2;
/// Elements between rows in shared memory.
const PADDING: usize = 32;
/// Features of a block of `decode_split`.
const SPLIT_FEATURES: usize = 64;

/// Candidates of the kernel that draws, each with a sum, a key and an id.
const CANDIDATES: usize = 2048;

impl Decoder {
    /// Runs `steps` steps of `batch` rows: the first of a batch kernel by kernel, later ones recorded.
    pub(super) fn run_steps(&mut self, batch: usize, steps: usize) -> Result<(), Error> {
        debug_assert!(steps <= MOST_STEPS);
        self.launch(
            "decode_embed",
            Launch::line(batch, 256),
            &args![
                self.buffers.rows.address(),
                self.buffers.x.address(),
                self.floats(self.places.audio_table),
                self.floats(self.places.audio_positions),
                self.sizes.width
            ],
        )?;
        let mut left = steps;
        if !self.recording {
            return (0..steps).try_for_each(|_| self.queue_step(batch));
        }
        if !self.warm.contains(&(batch, false)) {
            self.queue_step(batch)?;
            self.warm.push((batch, false));
            left -= 1;
        }
        while left > 0 {
            let together = if left >= RECORDED_STEPS { RECORDED_STEPS } else { 1 };
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
                self.buffers.text.address(),
                self.floats(self.places.text_table),
                self.floats(self.places.text_positions),
                self.sizes.width
            ],
        )?;
        let rows = self.buffers.prompt_rows.address();
        if !self.recording || !self.warm.contains(&(batch, true)) {
            self.warm.push((batch, true));
            return self.queue_blocks(rows, batch, false);
        }
        if !self.graphs.contains_key(&(batch, 0)) {
            let graph = Graph::capture(&self.cuda, || self.queue_blocks(rows, batch, false))?;
            self.graphs.insert((batch, 0), graph);
        }
        self.graphs[&(batch, 0)].launch(&self.cuda)
    }

    fn floats(&self, at: usize) -> u64 {
        self.buffers.floats.address() + 4 * at as u64
    }

    fn launch(&self, kernel: &str, launch: Launch, args: &[Arg]) -> Result<(), Error> {
        // All of them divide an SM's memory in the same way: between kernels that do not, an SM has to run empty.
        self.cuda.allow_shared(self.cuda.function(kernel)?, launch.shared)?;
        let (inputs, outputs, bases) = (Vec::new(), Vec::new(), Vec::new());
        CudaIo { cuda: &self.cuda, side: Side::Main, inputs, outputs, bases, collective: None }
            .launch(kernel, launch, args)
    }

    fn queue_step(&self, batch: usize) -> Result<(), Error> {
        let buffers = &self.buffers;
        let rows = buffers.rows.address();
        self.queue_blocks(rows, batch, true)?;
        let to = Target { floats: buffers.logits.address(), kind: TO_LOGITS, ..Target::default() };
        let source =
            if batch > FUSED_ROWS { Source::Given(buffers.normed.address()) } else { Source::Headed };
        self.product(rows, batch, &self.places.head, source, to)?;
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
                self.sizes.places,
                buffers.seen.address(),
                words(vocabulary),
                buffers.codes.address(),
                buffers.x.address(),
                self.floats(self.places.audio_table),
                self.floats(self.places.audio_positions),
                self.sizes.width
            ],
        )
    }

    /// All blocks. In batches of many rows the norms behind them too, if asked for: `normed` is what the head takes.
    fn queue_blocks(&self, rows: u64, batch: usize, with_head: bool) -> Result<(), Error> {
        let buffers = &self.buffers;
        let many = batch > FUSED_ROWS;
        let normed = Source::Given(buffers.normed.address());
        if many {
            self.norm(rows, batch, self.places.blocks[0].norm1)?;
        }
        for (layer, block) in self.places.blocks.iter().enumerate() {
            let source = if many { normed } else { Source::Normed(block.norm1) };
            self.queue_attention(rows, batch, layer, source)?;
            let residual = Target { floats: buffers.x.address(), kind: TO_RESIDUAL, ..Target::default() };
            let attended = Source::Given(buffers.attended.address());
            if many {
                self.split(rows, batch, &block.out, buffers.attended.address(), (block.norm2, 1))?;
            } else {
                let source = if batch <= MERGED_ROWS { Source::Merged } else { attended };
                self.product(rows, batch, &block.out, source, residual)?;
            }
            let up = Target {
                rounded: buffers.inner.address(),
                kind: TO_GELU,
                stride: stride(self.sizes.inner) as i32,
                ..Target::default()
            };
            let source = if many { normed } else { Source::Normed(block.norm2) };
            self.product(rows, batch, &block.up, source, up)?;
            if many {
                let norms = match self.places.blocks.get(layer + 1) {
                    Some(next) => (next.norm1, 1),
                    None => (self.places.last_norms, if with_head { 2 } else { 0 }),
                };
                self.split(rows, batch, &block.down, buffers.inner.address(), norms)?;
            } else {
                self.product(rows, batch, &block.down, Source::Given(buffers.inner.address()), residual)?;
            }
        }
        Ok(())
    }

    /// Queries, keys and values, and what they see, as parts or (in batches of more than a few rows) merged.
    fn queue_attention(&self, rows: u64, batch: usize, layer: usize, source: Source) -> Result<(), Error> {
        let (buffers, sizes, block) = (&self.buffers, &self.sizes, &self.places.blocks[layer]);
        let (heads, size, room, stretches) =
            (sizes.heads, sizes.head_size(), sizes.room(), sizes.stretches());
        let cache = (sizes.slots * room * sizes.width * 2) as u64;
        let [keys, values] =
            [&buffers.keys, &buffers.values].map(|memory| memory.address() + layer as u64 * cache);
        let qkv = Target {
            floats: buffers.queries.address(),
            keys,
            values,
            kind: TO_QKV,
            heads: heads as i32,
            size: size as i32,
            room: room as i32,
            // Scores are powers of two.
            scale: std::f32::consts::LOG2_E / (size as f32).sqrt(),
            ..Target::default()
        };
        self.product(rows, batch, &block.qkv, source, qkv)?;
        let (parts, weights) = (buffers.parts.address(), buffers.part_weights.address());
        self.launch(
            &format!("decode_attend_{}", size / 8),
            Launch::grid(stretches, heads, batch, 256),
            &args![rows, buffers.queries.address(), keys, values, parts, weights, heads, room, stretches],
        )?;
        if batch <= MERGED_ROWS {
            return Ok(());
        }
        let (attended, row) = (buffers.attended.address(), stride(sizes.width));
        self.launch(
            "decode_merge",
            Launch::grid(heads.div_ceil(4), batch, 1, 128),
            &args![rows, parts, weights, attended, heads, size, room, stretches, row],
        )
    }

    fn norm(&self, rows: u64, batch: usize, norm: usize) -> Result<(), Error> {
        let (buffers, width) = (&self.buffers, self.sizes.width);
        let (x, normed, latents) = (buffers.x.address(), buffers.normed.address(), buffers.latents.address());
        self.launch(
            "decode_norm",
            Launch::line(batch, 32),
            &args![rows, batch, x, self.floats(norm), 1usize, normed, latents, width, stride(width)],
        )
    }

    /// A product that is added to the residual stream, and the norms behind it (where they lie, and how many).
    fn split(
        &self,
        rows: u64,
        batch: usize,
        product: &Product,
        given: u64,
        (norm, norms): (usize, usize),
    ) -> Result<(), Error> {
        let (buffers, width, stretches) = (&self.buffers, self.sizes.width, product.stretches());
        let each = (product.stride() / 32).div_ceil(stretches);
        let matrix = buffers.rounded.address() + 2 * product.matrix as u64;
        self.launch(
            &format!("decode_split_{batch}"),
            Launch::grid(product.features.div_ceil(SPLIT_FEATURES), stretches, 1, 256)
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
                stretches,
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

    fn product(
        &self,
        rows: u64,
        batch: usize,
        product: &Product,
        source: Source,
        to: Target,
    ) -> Result<(), Error> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let tile = batch.max(8);
        // The kernel's name, features of a block in eights, norms, whether rows go through shared memory.
        let (kind, columns, norms, is_shared) = match source {
            Source::Normed(_) => ("norm", 2, 1, true),
            Source::Headed => ("head", 1, 2, true),
            Source::Merged => ("merged", 1, 0, true),
            Source::Given(_) if batch > FUSED_ROWS => ("broad", 4, 0, false),
            Source::Given(_) => ("narrow", 1, 0, batch <= 8),
        };
        let (given, norm) = match source {
            Source::Given(given) => (given, 0),
            Source::Normed(norm) => (0, self.floats(norm)),
            Source::Headed => (0, self.floats(self.places.last_norms)),
            Source::Merged => (0, 0),
        };
        let warps = product.stretches();
        let rows_there = if is_shared { batch * (product.stride() + PADDING) * 2 } else { 0 };
        let norms_there = norms * 2 * sizes.width * 4;
        let sums_there = warps * tile.max(16) * columns * 8 * 4;
        let parts = Parts {
            parts: buffers.parts.address(),
            weights: buffers.part_weights.address(),
            heads: sizes.heads as i32,
            size: sizes.head_size() as i32,
            room: sizes.room() as i32,
            stretches: sizes.stretches() as i32,
        };
        self.launch(
            &format!("decode_linear_{kind}_{tile}"),
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
                Arg::of(&to),
                Arg::of(&parts)
            ],
        )
    }
}

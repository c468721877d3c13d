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

/// What the rows of a product are.
#[derive(Clone, Copy)]
enum Source {
    /// The residual stream after so many norms, which lie at an address.
    Normed(u64, usize),
    /// bf16 at an address.
    Given(u64),
}

/// Up to so many rows norms are computed by every block of the product behind them; more have a kernel of their own.
const FUSED_ROWS: usize = 16;
/// Rows and columns of a kernel's tile of shared memory in front of the sums.
const TILE_ROWS: usize = 16;

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
            return self.queue_blocks(rows, batch);
        }
        if !self.graphs.contains_key(&(batch, 0)) {
            let graph = Graph::capture(&self.cuda, || self.queue_blocks(rows, batch))?;
            self.graphs.insert((batch, 0), graph);
        }
        self.graphs[&(batch, 0)].launch(&self.cuda)
    }

    fn floats(&self, at: usize) -> u64 {
        self.buffers.floats.address() + 4 * at as u64
    }

    fn launch(&self, kernel: &str, launch: Launch, args: &[Arg]) -> Result<(), Error> {
        let (inputs, outputs, bases) = (Vec::new(), Vec::new(), Vec::new());
        CudaIo { cuda: &self.cuda, side: Side::Main, inputs, outputs, bases, collective: None }
            .launch(kernel, launch, args)
    }

    fn queue_step(&self, batch: usize) -> Result<(), Error> {
        let buffers = &self.buffers;
        let rows = buffers.rows.address();
        self.queue_blocks(rows, batch)?;
        let to = Target { floats: buffers.logits.address(), kind: TO_LOGITS, ..Target::default() };
        let source = Source::Normed(self.floats(self.places.last_norms), 2);
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

    fn queue_blocks(&self, rows: u64, batch: usize) -> Result<(), Error> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let (heads, size, room, stretches) =
            (sizes.heads, sizes.head_size(), sizes.room(), sizes.stretches());
        let cache = (sizes.slots * room * sizes.width * 2) as u64;
        for (layer, block) in self.places.blocks.iter().enumerate() {
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
            self.product(rows, batch, &block.qkv, Source::Normed(self.floats(block.norm1), 1), qkv)?;
            self.launch(
                &format!("decode_attend_{}", size / 8),
                Launch::grid(stretches, heads, batch, 128),
                &args![
                    rows,
                    buffers.queries.address(),
                    keys,
                    values,
                    buffers.parts.address(),
                    buffers.part_weights.address(),
                    heads,
                    room,
                    stretches
                ],
            )?;
            self.launch(
                "decode_merge",
                Launch::grid(heads.div_ceil(4), batch, 1, 128),
                &args![
                    rows,
                    buffers.parts.address(),
                    buffers.part_weights.address(),
                    buffers.attended.address(),
                    heads,
                    size,
                    room,
                    stretches,
                    stride(sizes.width)
                ],
            )?;
            let residual = Target { floats: buffers.x.address(), kind: TO_RESIDUAL, ..Target::default() };
            self.product(rows, batch, &block.out, Source::Given(buffers.attended.address()), residual)?;
            let up = Target {
                rounded: buffers.inner.address(),
                kind: TO_GELU,
                stride: stride(sizes.inner) as i32,
                ..Target::default()
            };
            self.product(rows, batch, &block.up, Source::Normed(self.floats(block.norm2), 1), up)?;
            self.product(rows, batch, &block.down, Source::Given(buffers.inner.address()), residual)?;
        }
        Ok(())
    }

    fn product(
        &self,
        rows: u64,
        batch: usize,
        product: &Product,
        source: Source,
        to: Target,
    ) -> Result<(), Error> {
        let (buffers, width) = (&self.buffers, self.sizes.width);
        let tile = batch.max(8);
        let mut source = source;
        if let (Source::Normed(norm, norms), true) = (source, batch > FUSED_ROWS) {
            self.launch(
                "decode_norm",
                Launch::line(batch, 32),
                &args![
                    rows,
                    batch,
                    buffers.x.address(),
                    norm,
                    norms,
                    buffers.normed.address(),
                    buffers.latents.address(),
                    width,
                    stride(width)
                ],
            )?;
            source = Source::Given(buffers.normed.address());
        }
        // The name, features of a block in eights, norms and the address of either kind of source.
        let (kind, columns, given, norm) = match source {
            Source::Normed(norm, 1) => ("norm", 2, 0, norm),
            Source::Normed(norm, _) => ("head", 1, 0, norm),
            Source::Given(given) if batch > FUSED_ROWS && (to.kind == TO_QKV || to.kind == TO_GELU) => {
                ("broad", 4, given, 0)
            }
            Source::Given(given) => ("narrow", 1, given, 0),
        };
        // Sums are cut where warps meet, so the number of warps is the matrix's alone.
        let warps = if product.inputs > 2 * width { 16 } else { 8 };
        let normed = if given == 0 { TILE_ROWS * (product.stride() + 8) * 2 } else { 0 };
        let shared = normed + warps * tile.max(TILE_ROWS) * columns * 8 * 4;
        self.launch(
            &format!("decode_linear_{kind}_{tile}"),
            Launch::line(product.features.div_ceil(8 * columns), 32 * warps as u32).shared(shared),
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
                width,
                product.stride(),
                Arg::of(&to)
            ],
        )
    }
}

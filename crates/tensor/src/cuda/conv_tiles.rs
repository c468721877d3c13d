//! Convolutions over time on tensor cores, in bf16: selects a tile for each shape and launches `conv1d.cu`,
//! `conv1d_weight.cu` and `conv1d_single.cu`. The tile tables match those in the kernel files, which document the
//! algorithms.

use super::launch::{Arg, CudaIo, Launch};
use crate::args;
use crate::error::Error;
use crate::ops::geometry::Geometry;
use bytemuck::{Pod, Zeroable};

/// Shared memory per block in bytes: Hopper and Blackwell, the A100, and every other GPU with bf16.
const SHARED: [usize; 3] = [232_448, 166_912, 101_376];

/// The sums of a weight gradient are split as for a device of this size on every device. The bits then do not
/// depend on the device, and the workspace is known before a device is opened.
const MULTIPROCESSORS: usize = 132;

/// Mirrors `ConvShape` in `conv1d.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct ConvShape {
    rows: i32,
    n: i32,
    channels: i32,
    taps: i32,
    dilation: i32,
    outer: i32,
    outer_step: i32,
    x_pitch: i32,
    x_offset: i32,
    x_limit: i32,
    y_pitch: i32,
    y_offset: i32,
    y_limit: i32,
    period: i32,
    act_out: i32,
    cond_bf16: i32,
    slope_in: f32,
    slope_out: f32,
    slope_mask: f32,
    scale: f32,
    residual_scale: f32,
}

/// Mirrors `WeightGradShape` in `conv1d_weight.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct WeightShape {
    batch: i32,
    rows: i32,
    m: i32,
    channels: i32,
    taps: i32,
    dilation: i32,
    x_pitch: i32,
    x_offset: i32,
    x_limit: i32,
    splits: i32,
    bias: i32,
    slope_dy: f32,
    slope_x: f32,
}

/// Mirrors `SingleShape` in `conv1d_single.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct SingleShape {
    length: i32,
    rows: i32,
    n: i32,
    taps: i32,
    stride: i32,
    step: i32,
    offset: i32,
    act_out: i32,
    slope_in: f32,
    slope_out: f32,
    slope_mask: f32,
    scale: f32,
    residual_scale: f32,
}

/// A kernel of `conv1d.cu`.
#[derive(Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    depth: usize,
    warps: usize,
    taps: usize,
    stages: usize,
    /// Blocks a multiprocessor should hold.
    blocks: usize,
}

const fn tile(
    [rows, columns, depth]: [usize; 3],
    warps: usize,
    taps: usize,
    stages: usize,
    blocks: usize,
) -> Tile {
    Tile { rows, columns, depth, warps, taps, stages, blocks }
}

const WAVE: &[Tile] = &[tile([256, 8, 32], 4, 4, 3, 4)];
const NARROW: &[Tile] = &[tile([256, 32, 32], 4, 4, 3, 3), tile([128, 32, 32], 4, 4, 3, 4)];
const DEEP: &[Tile] = &[tile([64, 32, 64], 8, 1, 4, 2)];
const MIDDLE: &[Tile] = &[
    tile([256, 64, 64], 4, 1, 4, 2),
    tile([128, 64, 64], 4, 1, 4, 2),
    tile([64, 64, 64], 4, 1, 4, 3),
    tile([64, 32, 64], 8, 1, 4, 2),
];
const BROAD: &[Tile] = &[
    tile([128, 128, 64], 4, 1, 3, 2),
    tile([128, 64, 64], 4, 1, 4, 2),
    tile([64, 64, 64], 4, 1, 4, 3),
    tile([64, 32, 64], 8, 1, 4, 2),
];
/// For shapes that fit no other tile: long halos.
const SMALL: Tile = tile([32, 32, 64], 4, 1, 4, 4);

impl Tile {
    fn name(&self) -> String {
        format!("conv1d_forward_bf16_{}x{}x{}", self.rows, self.columns, self.depth)
    }

    fn shared(&self, p: &ConvShape) -> usize {
        let (taps, dilation) = (p.taps as usize, p.dilation as usize);
        let groups = taps.div_ceil(self.taps);
        let tiles = p.outer as usize * (p.channels as usize).div_ceil(self.depth);
        let slots = tiles.min((self.stages - 2 + groups) / groups + 1);
        let x = slots * (self.rows + (taps - 1) * dilation) * self.depth * 2;
        (x + self.stages * self.taps * self.columns * self.depth * 2).max(36 << 10)
    }

    fn grid(&self, p: &ConvShape) -> (usize, usize) {
        ((p.n as usize).div_ceil(self.columns), (p.rows as usize).div_ceil(self.rows))
    }

    /// Picks the largest tile that still gives every multiprocessor its blocks.
    fn pick(p: &ConvShape, batch: usize, shared: usize, multiprocessors: usize) -> &'static Tile {
        let tiles = match (p.n, p.channels) {
            (..=8, _) => WAVE,
            (..=32, ..=32) => NARROW,
            (..=32, _) => DEEP,
            (..=64, _) => MIDDLE,
            _ => BROAD,
        };
        let fitting = || tiles.iter().filter(|t| t.shared(p) <= shared);
        let enough = |t: &&Tile| {
            let (x, y) = t.grid(p);
            let blocks = batch * x * y;
            4 * blocks >= 3 * multiprocessors * t.blocks || (t.blocks <= 2 && blocks >= multiprocessors)
        };
        fitting().find(enough).or_else(|| fitting().next_back()).unwrap_or(&SMALL)
    }
}

/// A kernel of `conv1d_weight.cu`.
#[derive(Debug)]
struct WeightTile {
    m: usize,
    channels: usize,
    taps: usize,
    warps: usize,
    rows: usize,
    stages: usize,
    blocks: usize,
}

const fn weight_tile(
    [m, channels, taps]: [usize; 3],
    warps: usize,
    rows: usize,
    stages: usize,
    blocks: usize,
) -> WeightTile {
    WeightTile { m, channels, taps, warps, rows, stages, blocks }
}

static WEIGHT_128X64X4: WeightTile = weight_tile([128, 64, 4], 8, 64, 4, 1);
static WEIGHT_128X64X3: WeightTile = weight_tile([128, 64, 3], 8, 64, 4, 1);
static WEIGHT_128X256X1: WeightTile = weight_tile([128, 256, 1], 8, 64, 4, 1);
static WEIGHT_64X64X4: WeightTile = weight_tile([64, 64, 4], 4, 64, 4, 2);
static WEIGHT_64X64X3: WeightTile = weight_tile([64, 64, 3], 4, 64, 4, 2);
static WEIGHT_64X128X1: WeightTile = weight_tile([64, 128, 1], 4, 64, 4, 2);
static WEIGHT_32X32X12: WeightTile = weight_tile([32, 32, 12], 4, 128, 3, 3);
static WEIGHT_32X32X8: WeightTile = weight_tile([32, 32, 8], 4, 128, 3, 2);
static WEIGHT_32X32X3: WeightTile = weight_tile([32, 32, 3], 4, 128, 4, 3);

impl WeightTile {
    fn name(&self) -> String {
        format!("conv1d_weight_grad_bf16_{}x{}x{}", self.m, self.channels, self.taps)
    }

    fn shared(&self, p: &WeightShape) -> usize {
        let x = (self.rows + (self.taps - 1) * p.dilation as usize) * self.channels;
        self.stages * (self.rows * self.m + x) * 2
    }

    /// Blocks per split of the rows.
    fn columns(&self, p: &WeightShape) -> usize {
        let channels = (p.channels as usize).div_ceil(self.channels);
        (p.taps as usize).div_ceil(self.taps) * channels * (p.m as usize).div_ceil(self.m)
    }

    fn pick(p: &WeightShape, shared: usize) -> &'static WeightTile {
        let first = match (p.taps, p.m, p.channels) {
            (1, 128.., 256..) => &WEIGHT_128X256X1,
            (1, ..) => &WEIGHT_64X128X1,
            (..=3, ..=32, ..=32) => &WEIGHT_32X32X3,
            (..=8, ..=32, ..=32) => &WEIGHT_32X32X8,
            (_, ..=32, ..=32) => &WEIGHT_32X32X12,
            (..=3, ..=64, _) => &WEIGHT_64X64X3,
            (_, ..=64, _) => &WEIGHT_64X64X4,
            (..=3, ..) => &WEIGHT_128X64X3,
            _ => &WEIGHT_128X64X4,
        };
        if first.shared(p) <= shared { first } else { &WEIGHT_64X64X4 }
    }

    /// Number of splits of the rows: one full wave of blocks, or two where one would leave more than 15 % of the
    /// device idle.
    fn splits(&self, p: &WeightShape) -> usize {
        let (slots, columns) = (MULTIPROCESSORS * self.blocks, self.columns(p));
        let chunks = p.batch as usize * (p.rows as usize).div_ceil(self.rows);
        let (one, two) = ((slots / columns).max(1), (2 * slots / columns).max(1));
        let idle = 100 * columns * one < 85 * slots;
        let better = 100 * columns * two >= 170 * slots || columns > slots / 2;
        (if idle && better { two } else { one }).clamp(1, chunks.clamp(1, 512))
    }
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or_else(|_| panic!("a size of {value} does not fit a kernel's int"))
}

/// From `[length, channels]` to `[rows, n]`, where row `s` reads from `s * stride + offset` on.
fn view(
    g: &Geometry,
    [length, channels]: [usize; 2],
    [rows, n]: [usize; 2],
    stride: usize,
    offset: isize,
) -> ConvShape {
    let (taps, dilation) = (g.taps(), g.dilation[0]);
    let (channels, n) = (int(channels), int(n));
    let mut p = ConvShape {
        rows: int(rows),
        n,
        channels,
        taps: int(taps),
        dilation: int(dilation),
        outer: 1,
        outer_step: 0,
        x_pitch: int(stride) * channels,
        x_offset: offset as i32 * channels,
        x_limit: int(length) * channels,
        y_pitch: n,
        y_offset: 0,
        y_limit: int(rows) * n,
        period: n,
        act_out: 0,
        cond_bf16: 1,
        slope_in: 1.0,
        slope_out: 1.0,
        slope_mask: 1.0,
        scale: 1.0,
        residual_scale: 1.0,
    };
    if stride > 1 {
        // Neighbouring taps are adjacent in memory: treat them as one tap with all their channels.
        (p.channels, p.taps) = (int(taps) * channels, 1);
    }
    p
}

fn down_view(g: &Geometry) -> ConvShape {
    let (from, to) = ([g.input[0], g.channels], [g.output[0], g.filters]);
    view(g, from, to, g.stride[0], -(g.padding[0] as isize))
}

fn up_view(g: &Geometry) -> ConvShape {
    let (from, to) = ([g.output[0], g.filters], [g.input[0], g.channels]);
    let (stride, padding) = (g.stride[0], g.padding[0]);
    if stride == 1 {
        let span = g.dilation[0] * (g.taps() - 1);
        return view(g, from, to, 1, padding as isize - span as isize);
    }
    // All phases of the stride at once, as the columns of one product.
    let (taps, channels) = (g.taps().div_ceil(stride), int(g.channels));
    ConvShape {
        rows: int((g.input[0] + padding).div_ceil(stride)),
        n: int(stride) * channels,
        taps: int(taps),
        y_pitch: int(stride) * channels,
        y_offset: -int(padding) * channels,
        ..view(g, from, to, 1, 1 - taps as isize)
    }
}

fn weight_view(g: &Geometry) -> WeightShape {
    let (stride, channels) = (int(g.stride[0]), int(g.channels));
    let mut p = WeightShape {
        batch: int(g.batch),
        rows: int(g.output[0]),
        m: int(g.filters),
        channels,
        taps: int(g.taps()),
        dilation: int(g.dilation[0]),
        x_pitch: stride * channels,
        x_offset: -int(g.padding[0]) * channels,
        x_limit: int(g.input[0]) * channels,
        splits: 1,
        bias: 0,
        slope_dy: 1.0,
        slope_x: 1.0,
    };
    if stride > 1 {
        (p.channels, p.taps) = (int(g.taps()) * channels, 1);
    }
    p
}

/// Whether there are kernels for a convolution, forward and backward. `single` allows a single filter.
pub(crate) fn fits(g: &Geometry, single: bool) -> bool {
    let bytes = SHARED[2];
    let sizes = [g.input[0] * g.channels, g.output[0] * g.filters, g.filters * g.row() * 2];
    let wave = single && g.filters == 1 && g.stride[0] == 1 && g.channels <= 2048 && 4 * g.row() <= 48 << 10;
    g.one_dimensional()
        && g.channels.is_multiple_of(8)
        && (g.filters.is_multiple_of(8) || wave)
        && (g.stride[0] == 1 || g.dilation[0] == 1)
        // The kernels use 32-bit positions, which may exceed the ends by a tile.
        && sizes.iter().all(|&size| size < 1 << 30)
        && SMALL.shared(&down_view(g)) <= bytes
        && SMALL.shared(&up_view(g)) <= bytes
        && WEIGHT_64X64X4.shared(&weight_view(g)) <= bytes
}

/// Workspace of `Tiles::up` in bf16 elements: the re-laid weights.
pub(crate) fn up_workspace_len(g: &Geometry) -> usize {
    g.filters * g.channels * g.taps().next_multiple_of(g.stride[0])
}

/// Workspace of `Tiles::weights` in f32 elements.
pub(crate) fn weight_workspace_len(g: &Geometry) -> usize {
    let p = weight_view(g);
    if p.m == 1 {
        return SINGLE_SPLITS * g.row();
    }
    let splits = SHARED.iter().map(|&shared| WeightTile::pick(&p, shared).splits(&p)).max();
    splits.unwrap_or(1) * (g.filters * g.row() + g.filters)
}

/// Number of splits of the rows for a single filter.
const SINGLE_SPLITS: usize = 4 * MULTIPROCESSORS;

/// Addends and mask of an output, as addresses; 0 means none. `residual` and `base` are both added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    pub bias: u64,
    pub per_item: u64,
    pub residual: u64,
    pub base: u64,
    /// Where this is negative, the output is multiplied by `mask_slope`.
    pub mask: u64,
}

/// Arguments shared by the passes.
pub(crate) struct Tiles<'a> {
    pub io: &'a CudaIo<'a>,
    pub geometry: &'a Geometry,
    pub scale: f32,
    /// Slope of the leaky ReLU applied to the input.
    pub slope: f32,
    pub mask_slope: f32,
    pub space: u64,
}

impl Tiles<'_> {
    fn shared(&self) -> usize {
        match self.io.cuda.capability() {
            (9 | 10, _) => SHARED[0],
            (8, 0 | 7) => SHARED[1],
            _ => SHARED[2],
        }
    }

    fn run(&self, p: ConvShape, x: u64, w: u64, y: u64, added: Added) -> Result<(), Error> {
        let (batch, multiprocessors) = (self.geometry.batch, self.io.multiprocessors());
        let p = ConvShape { scale: self.scale, slope_in: self.slope, slope_mask: self.mask_slope, ..p };
        let tile = Tile::pick(&p, batch, self.shared(), multiprocessors);
        let (columns, rows) = tile.grid(&p);
        let launch = Launch::grid(columns, rows, batch, 32 * tile.warps as u32).shared(tile.shared(&p));
        let Added { bias, per_item, residual, base, mask } = added;
        let args = args![x, w, bias, per_item, residual, mask, base, y, Arg::from_pod(&p)];
        self.io.launch(&tile.name(), launch, &args)
    }

    /// `y = scale * conv(leaky(x)) + ..`.
    pub fn down(&self, x: u64, w: u64, y: u64, added: Added) -> Result<(), Error> {
        self.run(down_view(self.geometry), x, w, y, added)
    }

    /// `x = scale * convᵀ(leaky(y)) + ..`.
    pub fn up(&self, y: u64, w: u64, x: u64, added: Added) -> Result<(), Error> {
        let g = self.geometry;
        let (taps, stride) = (g.taps(), g.stride[0]);
        let phases = stride * taps.div_ceil(stride);
        let launch = Launch::grid(g.filters.div_ceil(32), g.channels.div_ceil(32), phases, 256);
        let args = args![w, self.space, g.filters, taps, g.channels, stride];
        self.io.launch("conv1d_weight_transpose_bf16", launch, &args)?;
        if g.filters > 1 {
            let p = ConvShape { period: int(g.channels), ..up_view(g) };
            return self.run(p, y, self.space, x, added);
        }
        let dilation = int(g.dilation[0]);
        let p = SingleShape {
            length: int(g.output[0]),
            rows: int(g.input[0]),
            n: int(g.channels),
            taps: int(taps),
            stride: 1,
            step: dilation,
            offset: int(g.padding[0]) - (int(taps) - 1) * dilation,
            act_out: 0,
            slope_in: self.slope,
            slope_out: 1.0,
            slope_mask: self.mask_slope,
            scale: self.scale,
            residual_scale: 1.0,
        };
        let rows = 4 * (256 / (g.channels / 8));
        let launch = Launch::grid(g.input[0].div_ceil(rows), g.batch, 1, 256).shared(4 * g.row());
        let Added { bias, residual, base, mask, .. } = added;
        let args = args![y, self.space, bias, residual, mask, base, x, Arg::from_pod(&p)];
        self.io.launch("conv1d_single_forward_bf16", launch, &args)
    }

    /// `dw = base + scale * Σ yᵀ columns(x)`, and the sums of `y` if requested (`bias`: output and base). The leaky
    /// ReLU applies to the convolved side: to `x`, or to `y` for a transposed convolution.
    pub fn weights(
        &self,
        [y, x]: [u64; 2],
        [dw, base]: [u64; 2],
        bias: Option<[u64; 2]>,
        transposed: bool,
    ) -> Result<(), Error> {
        let g = self.geometry;
        let n = g.filters * g.row();
        let (slope_dy, slope_x) = if transposed { (self.slope, 1.0) } else { (1.0, self.slope) };
        if g.filters == 1 {
            let p = SingleShape {
                length: int(g.output[0]),
                rows: int(g.input[0]),
                n: int(g.channels),
                taps: int(g.taps()),
                stride: 1,
                step: -int(g.dilation[0]),
                offset: int(g.padding[0]),
                act_out: 0,
                slope_in: slope_dy,
                slope_out: slope_x,
                slope_mask: 1.0,
                scale: 1.0,
                residual_scale: 1.0,
            };
            let launch = Launch::grid(g.channels.div_ceil(256), SINGLE_SPLITS, g.taps().div_ceil(8), 256);
            let args = args![x, y, self.space, g.batch, g.channels, 1, Arg::from_pod(&p)];
            self.io.launch("conv1d_single_weight_grad_bf16", launch, &args)?;
            return self.sum([dw, base], [0, 0], n, 0, n, SINGLE_SPLITS);
        }
        let mut p = weight_view(g);
        let tile = WeightTile::pick(&p, self.shared());
        let splits = tile.splits(&p);
        (p.splits, p.bias, p.slope_dy, p.slope_x) =
            (int(splits), i32::from(bias.is_some()), slope_dy, slope_x);
        let launch =
            Launch::grid(tile.columns(&p), splits, 1, 32 * tile.warps as u32).shared(tile.shared(&p));
        self.io.launch(&tile.name(), launch, &args![y, x, self.space, Arg::from_pod(&p)])?;
        let sums = if bias.is_some() { g.filters } else { 0 };
        self.sum([dw, base], bias.unwrap_or_default(), n, sums, n + g.filters, splits)
    }

    fn sum(
        &self,
        [first, first_base]: [u64; 2],
        [second, second_base]: [u64; 2],
        n_first: usize,
        n_second: usize,
        stride: usize,
        splits: usize,
    ) -> Result<(), Error> {
        let launch = Launch::line((n_first + n_second).div_ceil(32), 256);
        let sizes = args![n_first, n_second, stride, splits, self.scale];
        let addresses = args![self.space, first, first_base, second, second_base];
        self.io.launch("shares_sum_f32", launch, &[&addresses[..], &sizes[..]].concat())
    }
}

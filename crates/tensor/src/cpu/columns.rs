//! The three passes of a convolution on the CPU, as products of im2col columns with the weights.
//!
//! In one dimension the columns need not be materialised: an output position reads `taps * channels` neighbours of
//! a padded copy, and the next position reads the same one stride further on. The padded copy is therefore the
//! matrix, with overlapping rows (`Line`). In two dimensions, with groups, and for short items, columns are materialised.
//!
//! Work is split at fixed positions and partial sums are added in order, so the number of threads does not change
//! the bits.

use super::matrix::{Matrix, Threads, product};
use crate::ops::geometry::{Geometry, Piece};
use rayon::prelude::*;
use std::cell::Cell;

/// Elements of columns a core processes at a time, chosen to stay in its cache.
const PIECE: usize = 1 << 18;

/// With fewer rows, a product would mostly move the weights.
const MIN_ROWS: usize = 256;

/// With fewer channels in the product's other dimension, materialised columns would mostly be copied.
const MIN_WIDTH: usize = 64;

/// From this many pieces on, each piece is processed by one thread; fewer are processed one by one, each by all
/// threads.
const PARALLEL_PIECES: usize = 8;

/// Number of partial sums of a weight gradient.
const PARTIAL_SUMS: usize = 16;

/// With more weights than this, partial sums would cost more than they gain.
const MAX_SPLIT_WEIGHTS: usize = 1 << 18;

thread_local! {
    static SPACE: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Thread-local memory that is reused from call to call; its initial contents are unspecified.
fn with_buffer<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken, not borrowed: a thread that waits inside `work` may start another piece, which then allocates its own.
    let mut space = SPACE.take();
    if space.len() < len {
        space.resize(len, 0.0);
    }
    let result = work(&mut space[..len]);
    SPACE.set(space);
    result
}

/// Whether a convolution reads overlapping rows of each item. Where items are short, each of their products would mostly move
/// the weights, so the columns of several items are materialised for one product.
fn overlaps(g: &Geometry, width: usize) -> bool {
    g.one_dimensional() && (g.output[0] >= MIN_ROWS || width < MIN_WIDTH)
}

/// `out (+)= scale * conv(x)`: from the geometry's input to its output.
pub(crate) fn down(g: &Geometry, x: &[f32], w: &[f32], out: &mut [f32], add: bool, scale: f32) {
    if g.direct() {
        return from_columns(g, x, w, out, add, scale, Threads::All);
    }
    if overlaps(g, g.filters) {
        return Line::of(g).apply(x, w, out, add, scale);
    }
    let pieces = g.output_pieces(PIECE, MIN_ROWS);
    let pieces = pieces.into_iter().map(|p| (p.count() * g.output[1] * g.filters, p)).collect();
    each_piece(out, pieces, |piece, out, threads| {
        with_buffer(piece.count() * g.output[1] * g.row(), |columns| {
            fill(g, x, piece, columns);
            from_columns(g, columns, w, out, add, scale, threads);
        });
    });
}

/// `out (+)= scale * convᵀ(y)`: from the geometry's output to its input.
pub(crate) fn up(g: &Geometry, y: &[f32], w: &[f32], out: &mut [f32], add: bool, scale: f32) {
    if g.direct() {
        return to_columns(g, y, w, out, add, scale, Threads::All);
    }
    if overlaps(g, g.channels) && g.stride[0] == 1 {
        return Line::of(g).transposed().apply(y, &flipped(g, w), out, add, scale);
    }
    let read = g.output[1] * g.filters;
    let pieces = g.input_pieces(PIECE, MIN_ROWS);
    let pieces = pieces.into_iter().map(|p| (p.0.count() * g.input[1] * g.channels, p)).collect();
    each_piece(out, pieces, |(to, from), out, threads| {
        let y = &y[from.start(g.output[0]) * read..][..from.count() * read];
        with_buffer(from.count() * g.output[1] * g.row(), |columns| {
            to_columns(g, y, w, columns, false, scale, threads);
            gather(g, columns, from, to, out, add);
        });
    });
}

/// `out (+)= scale * Σ yᵀ columns(x)`: the weight gradient.
pub(crate) fn weights(g: &Geometry, y: &[f32], x: &[f32], out: &mut [f32], add: bool, scale: f32) {
    if g.direct() {
        return weight_product(g, y, x, out, add, scale, Threads::All);
    }
    if overlaps(g, g.filters) {
        let line = Line::of(g);
        return sum_over(line.pieces(), out, add, |piece, out, add, threads| {
            line.weights(piece, x, y, out, add, scale, threads);
        });
    }
    let width = g.output[1] * g.filters;
    sum_over(g.output_pieces(PIECE, MIN_ROWS), out, add, |piece, out, add, threads| {
        let y = &y[piece.start(g.output[0]) * width..][..piece.count() * width];
        with_buffer(piece.count() * g.output[1] * g.row(), |columns| {
            fill(g, x, piece, columns);
            weight_product(g, y, columns, out, add, scale, threads);
        });
    });
}

/// Processes consecutive ranges of `out`, whose lengths are given.
fn each_piece<P: Send + Sync>(
    mut out: &mut [f32],
    pieces: Vec<(usize, P)>,
    work: impl Fn(&P, &mut [f32], Threads) + Sync,
) {
    let mut parts = Vec::with_capacity(pieces.len());
    for (len, piece) in pieces {
        let (part, rest) = out.split_at_mut(len);
        parts.push((piece, part));
        out = rest;
    }
    if parts.len() < PARALLEL_PIECES {
        parts.into_iter().for_each(|(piece, part)| work(&piece, part, Threads::All));
    } else {
        parts.into_par_iter().for_each(|(piece, part)| work(&piece, part, Threads::One));
    }
}

/// Sums over pieces: `work(piece, out, add, threads)` writes `out`, or adds to it.
fn sum_over<P: Sync>(
    pieces: Vec<P>,
    out: &mut [f32],
    add: bool,
    work: impl Fn(&P, &mut [f32], bool, Threads) + Sync,
) {
    if pieces.len() < PARALLEL_PIECES || out.len() > MAX_SPLIT_WEIGHTS {
        for (i, piece) in pieces.iter().enumerate() {
            work(piece, out, add || i > 0, Threads::All);
        }
        return;
    }
    let partial_sums: Vec<Vec<f32>> = pieces
        .par_chunks(pieces.len().div_ceil(PARTIAL_SUMS))
        .map(|chunk| {
            let mut sum = vec![0f32; out.len()];
            for (i, piece) in chunk.iter().enumerate() {
                work(piece, &mut sum, i > 0, Threads::One);
            }
            sum
        })
        .collect();
    if !add {
        out.fill(0.0);
    }
    for sum in partial_sums {
        out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
    }
}

/// `out[rows, filters] (+)= columns[rows, ..] wᵀ`, group by group.
fn from_columns(
    g: &Geometry,
    columns: &[f32],
    w: &[f32],
    out: &mut [f32],
    add: bool,
    scale: f32,
    threads: Threads,
) {
    let (depth, filters, rows) = (g.depth(), g.filters / g.groups, out.len() / g.filters);
    for group in 0..g.groups {
        let columns = Matrix::strided(&columns[group * depth..], g.row());
        let w = Matrix::rows(&w[group * filters * depth..], depth).transposed();
        let out = &mut out[group * filters..];
        product((rows, filters, depth), columns, w, out, g.filters, add, scale, threads);
    }
}

/// `columns[rows, ..] (+)= y[rows, filters] w`, group by group.
fn to_columns(
    g: &Geometry,
    y: &[f32],
    w: &[f32],
    columns: &mut [f32],
    add: bool,
    scale: f32,
    threads: Threads,
) {
    let (depth, filters, rows) = (g.depth(), g.filters / g.groups, y.len() / g.filters);
    for group in 0..g.groups {
        let y = Matrix::strided(&y[group * filters..], g.filters);
        let w = Matrix::rows(&w[group * filters * depth..], depth);
        let columns = &mut columns[group * depth..];
        product((rows, depth, filters), y, w, columns, g.row(), add, scale, threads);
    }
}

/// `w (+)= yᵀ columns`, group by group.
fn weight_product(
    g: &Geometry,
    y: &[f32],
    columns: &[f32],
    w: &mut [f32],
    add: bool,
    scale: f32,
    threads: Threads,
) {
    let (depth, filters, rows) = (g.depth(), g.filters / g.groups, y.len() / g.filters);
    for group in 0..g.groups {
        let y = Matrix::strided(&y[group * filters..], g.filters).transposed();
        let columns = Matrix::strided(&columns[group * depth..], g.row());
        let w = &mut w[group * filters * depth..][..filters * depth];
        product((filters, depth, rows), y, columns, w, depth, add, scale, threads);
    }
}

/// Input index that tap `tap` of output position `position` reads; `None` in the padding.
fn input_index(g: &Geometry, axis: usize, position: usize, tap: usize) -> Option<usize> {
    let at = position * g.stride[axis] + tap * g.dilation[axis];
    at.checked_sub(g.padding[axis]).filter(|&at| at < g.input[axis])
}

/// Materialises the columns of a piece.
fn fill(g: &Geometry, x: &[f32], piece: &Piece, columns: &mut [f32]) {
    let (each, lines) = (g.channels / g.groups, piece.lines.len());
    columns.par_chunks_mut(g.output[1] * g.row()).enumerate().for_each(|(i, line)| {
        let (item, top) = (piece.items.start + i / lines, piece.lines.start + i % lines);
        for (left, row) in line.chunks_exact_mut(g.row()).enumerate() {
            for (i, to) in row.chunks_exact_mut(each).enumerate() {
                let (group, tap) = (i / g.taps(), i % g.taps());
                let at =
                    input_index(g, 0, top, tap / g.kernel[1]).zip(input_index(g, 1, left, tap % g.kernel[1]));
                match at {
                    Some((h, w)) => {
                        let from = ((item * g.input[0] + h) * g.input[1] + w) * g.channels + group * each;
                        to.copy_from_slice(&x[from..from + each]);
                    }
                    None => to.fill(0.0),
                }
            }
        }
    });
}

/// Output position whose tap `tap` reads input `at`, if there is one.
fn output_index(g: &Geometry, axis: usize, at: usize, tap: usize) -> Option<usize> {
    let shifted = (at + g.padding[axis]).checked_sub(tap * g.dilation[axis])?;
    let position = shifted / g.stride[axis];
    (shifted % g.stride[axis] == 0 && position < g.output[axis]).then_some(position)
}

/// For every input in `to`, sums the elements that the columns of `from` hold for it (col2im).
fn gather(g: &Geometry, columns: &[f32], from: &Piece, to: &Piece, out: &mut [f32], add: bool) {
    let (each, lines) = (g.channels / g.groups, to.lines.len());
    let work = |(i, line): (usize, &mut [f32])| {
        if !add {
            line.fill(0.0);
        }
        let (item, h) = (i / lines, to.lines.start + i % lines);
        for tap in 0..g.taps() {
            let Some(top) = output_index(g, 0, h, tap / g.kernel[1]) else { continue };
            let top = item * from.lines.len() + top - from.lines.start;
            for (w, row) in line.chunks_exact_mut(g.channels).enumerate() {
                let Some(left) = output_index(g, 1, w, tap % g.kernel[1]) else { continue };
                let columns = &columns[(top * g.output[1] + left) * g.row()..][..g.row()];
                for (group, to) in row.chunks_exact_mut(each).enumerate() {
                    let columns = &columns[(group * g.taps() + tap) * each..][..each];
                    to.iter_mut().zip(columns).for_each(|(to, from)| *to += from);
                }
            }
        }
    };
    out.par_chunks_mut(g.input[1] * g.channels).enumerate().with_min_len(8).for_each(work);
}

/// Weights of the convolution that is the transpose of one with stride 1: `[channels, taps, filters]`, last tap
/// first.
fn flipped(g: &Geometry, w: &[f32]) -> Vec<f32> {
    let (taps, c, f) = (g.taps(), g.channels, g.filters);
    let mut flipped = vec![0f32; w.len()];
    flipped.par_chunks_mut(taps * f).enumerate().for_each(|(channel, row)| {
        for (i, to) in row.iter_mut().enumerate() {
            let (tap, filter) = (i / f, i % f);
            *to = w[(filter * taps + taps - 1 - tap) * c + channel];
        }
    });
    flipped
}

/// A convolution in one dimension. Output position `o` reads input `o * stride + offset + tap * dilation`.
///
/// Every `dilation`-th position reads neighbours in a copy that holds every `dilation`-th input. There are
/// `dilation` such copies, each a matrix with overlapping rows: together one copy of the input, where columns would
/// be `taps` copies.
#[derive(Clone, Copy, Debug)]
struct Line {
    batch: usize,
    input: usize,
    output: usize,
    channels: usize,
    filters: usize,
    taps: usize,
    stride: usize,
    dilation: usize,
    offset: isize,
}

/// A range of output positions of one item.
struct Span {
    item: usize,
    from: usize,
    count: usize,
}

impl Line {
    fn of(g: &Geometry) -> Line {
        Line {
            batch: g.batch,
            input: g.input[0],
            output: g.output[0],
            channels: g.channels,
            filters: g.filters,
            taps: g.taps(),
            stride: g.stride[0],
            dilation: g.dilation[0],
            offset: -(g.padding[0] as isize),
        }
    }

    /// The transposed convolution, for a stride of 1.
    fn transposed(self) -> Line {
        let span = (self.dilation * (self.taps - 1)) as isize;
        Line {
            input: self.output,
            output: self.input,
            channels: self.filters,
            filters: self.channels,
            offset: -span - self.offset,
            ..self
        }
    }

    fn pieces(&self) -> Vec<Span> {
        // Enough pieces for every thread, also when the batch has few items.
        let each = self.output.div_ceil((2 * PARALLEL_PIECES).div_ceil(self.batch.max(1)));
        let count = (PIECE / (self.stride * self.channels)).min(each).max(MIN_ROWS);
        let starts = |item| (0..self.output).step_by(count).map(move |from| (item, from));
        let pieces = (0..self.batch).flat_map(starts);
        pieces.map(|(item, from)| Span { item, from, count: count.min(self.output - from) }).collect()
    }

    /// Calls `work(first, rows, columns)` for each matrix of a piece: row `i` belongs to output position
    /// `piece.from + first + i * dilation`.
    fn each_matrix(&self, piece: &Span, x: &[f32], mut work: impl FnMut(usize, usize, Matrix<'_>)) {
        let (c, step) = (self.channels, self.stride * self.channels);
        let x = &x[piece.item * self.input * c..][..self.input * c];
        for first in 0..self.dilation.min(piece.count) {
            let rows = (piece.count - first).div_ceil(self.dilation);
            let len = (rows - 1) * self.stride + self.taps;
            let start = ((piece.from + first) * self.stride) as isize + self.offset;
            if self.dilation == 1 && start >= 0 && start as usize + len <= self.input {
                work(first, rows, Matrix::strided(&x[start as usize * c..], step));
                continue;
            }
            with_buffer(len * c, |copy| {
                for (i, row) in copy.chunks_exact_mut(c).enumerate() {
                    let at = start + (i * self.dilation) as isize;
                    match usize::try_from(at).ok().filter(|&at| at < self.input) {
                        Some(at) => row.copy_from_slice(&x[at * c..][..c]),
                        None => row.fill(0.0),
                    }
                }
                work(first, rows, Matrix::strided(copy, step));
            });
        }
    }

    fn apply(&self, x: &[f32], w: &[f32], out: &mut [f32], add: bool, scale: f32) {
        let depth = self.taps * self.channels;
        let w = Matrix::rows(w, depth).transposed();
        let pieces = self.pieces().into_iter().map(|p| (p.count * self.filters, p)).collect();
        each_piece(out, pieces, |piece, out, threads| {
            self.each_matrix(piece, x, |first, rows, columns| {
                let (out, stride) = (&mut out[first * self.filters..], self.dilation * self.filters);
                product((rows, self.filters, depth), columns, w, out, stride, add, scale, threads);
            });
        });
    }

    #[expect(clippy::too_many_arguments, reason = "the shape of a matrix product")]
    fn weights(
        &self,
        piece: &Span,
        x: &[f32],
        y: &[f32],
        out: &mut [f32],
        add: bool,
        scale: f32,
        threads: Threads,
    ) {
        let (depth, f) = (self.taps * self.channels, self.filters);
        let y = &y[(piece.item * self.output + piece.from) * f..][..piece.count * f];
        self.each_matrix(piece, x, |first, rows, columns| {
            let y = Matrix::strided(&y[first * f..], self.dilation * f).transposed();
            let add = add || first > 0;
            product((f, depth, rows), y, columns, out, depth, add, scale, threads);
        });
    }
}

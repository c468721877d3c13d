//! Sizes and strides of a convolution, and how its columns are split into pieces of bounded size.
//!
//! The im2col columns of a convolution are a matrix with a row for every output position that holds everything the
//! position reads: `[rows, groups, taps, channels of a group]`. The convolution is one product of it with the
//! weights.

use std::ops::Range;

/// A convolution from `[batch, height, width, channels]` to `[batch, height', width', filters]` with weights
/// `[filters, kernel height, kernel width, channels / groups]`. In one dimension the height is time and the width
/// 1. A transposed convolution is described by the convolution it reverses: it goes from `output` to `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub batch: usize,
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub channels: usize,
    pub filters: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
}

/// Lines (an item's positions with one height) whose columns are in memory at once: of several whole items, or some
/// of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub items: Range<usize>,
    pub lines: Range<usize>,
}

impl Piece {
    /// Number of lines over all its items.
    pub fn count(&self) -> usize {
        self.items.len() * self.lines.len()
    }

    /// Its first line, counted over all items of `height` lines.
    pub fn start(&self, height: usize) -> usize {
        self.items.start * height + self.lines.start
    }
}

/// Number of positions of a kernel along one axis.
pub(crate) fn output_positions(
    input: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> usize {
    assert!(kernel > 0 && stride > 0 && dilation > 0, "kernel, stride and dilation must be at least 1");
    let (span, room) = (dilation * (kernel - 1) + 1, input + 2 * padding);
    assert!(room >= span, "a kernel that spans {span} does not fit {room} positions");
    (room - span) / stride + 1
}

impl Geometry {
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements one output of one group reads.
    pub fn depth(&self) -> usize {
        self.taps() * self.channels / self.groups
    }

    /// Elements of a row of columns, over all groups.
    pub fn row(&self) -> usize {
        self.taps() * self.channels
    }

    pub fn output_rows(&self) -> usize {
        self.batch * self.output[0] * self.output[1]
    }

    /// Whether the columns are the input itself.
    pub fn direct(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Whether it is along the height only, so that the taps of a position are a fixed stride apart.
    pub fn one_dimensional(&self) -> bool {
        self.kernel[1] == 1 && self.input[1] == 1 && self.padding[1] == 0 && self.groups == 1
    }

    /// The output split into pieces whose columns have about `bound` elements, and enough rows for an efficient
    /// product.
    pub fn output_pieces(&self, bound: usize, min_rows: usize) -> Vec<Piece> {
        let line = self.output[1] * self.row();
        let lines = (bound / line).max(min_rows.div_ceil(self.output[1]));
        if lines >= self.output[0] {
            return whole_items(self.batch, lines / self.output[0], self.output[0]);
        }
        let mut pieces = Vec::new();
        for item in 0..self.batch {
            for from in (0..self.output[0]).step_by(lines) {
                let to = (from + lines).min(self.output[0]);
                pieces.push(Piece { items: item..item + 1, lines: from..to });
            }
        }
        pieces
    }

    /// The input split into pieces, each with the piece of the output that reads it. Neighbours share some of the
    /// output: those columns are computed twice, so that every input is summed in one pass.
    pub fn input_pieces(&self, bound: usize, min_rows: usize) -> Vec<(Piece, Piece)> {
        let line = self.output[1] * self.row();
        let lines = (bound / line).max(min_rows.div_ceil(self.output[1]));
        if lines >= self.output[0] {
            let per = lines / self.output[0];
            let (inputs, outputs) =
                (whole_items(self.batch, per, self.input[0]), whole_items(self.batch, per, self.output[0]));
            return inputs.into_iter().zip(outputs).collect();
        }
        let shared = self.dilation[0] * (self.kernel[0] - 1);
        let lines = (lines * self.stride[0]).saturating_sub(shared).max(shared).max(self.stride[0]);
        let mut pieces = Vec::new();
        for item in 0..self.batch {
            for from in (0..self.input[0]).step_by(lines) {
                let lines = from..(from + lines).min(self.input[0]);
                let reached = self.readers(&lines);
                let items = item..item + 1;
                pieces.push((Piece { items: items.clone(), lines }, Piece { items, lines: reached }));
            }
        }
        pieces
    }

    /// The output lines that read any of these input lines.
    fn readers(&self, lines: &Range<usize>) -> Range<usize> {
        let shared = self.dilation[0] * (self.kernel[0] - 1);
        let from = (lines.start + self.padding[0]).saturating_sub(shared).div_ceil(self.stride[0]);
        let to = (lines.end - 1 + self.padding[0]) / self.stride[0] + 1;
        from.min(self.output[0])..to.min(self.output[0]).max(from.min(self.output[0]))
    }
}

fn whole_items(batch: usize, per: usize, lines: usize) -> Vec<Piece> {
    let per = per.max(1);
    let pieces = (0..batch).step_by(per);
    pieces.map(|from| Piece { items: from..(from + per).min(batch), lines: 0..lines }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(
        batch: usize,
        input: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
    ) -> Geometry {
        Geometry {
            batch,
            input: [input, 1],
            output: [output_positions(input, kernel, stride, padding, dilation), 1],
            channels: 4,
            filters: 6,
            kernel: [kernel, 1],
            stride: [stride, 1],
            padding: [padding, 0],
            dilation: [dilation, 1],
            groups: 1,
        }
    }

    #[test]
    fn pieces_cover_every_line_once_and_all_its_readers() {
        for geometry in [
            line(3, 50, 3, 1, 1, 1),
            line(2, 41, 5, 3, 2, 2),
            line(2, 33, 2, 4, 0, 1),
            line(5, 7, 7, 1, 3, 1),
        ] {
            for bound in [1, 60, 200, 1 << 20] {
                let mut lines = vec![0; geometry.batch * geometry.output[0]];
                for piece in geometry.output_pieces(bound, 1) {
                    let start = piece.start(geometry.output[0]);
                    lines[start..start + piece.count()].iter_mut().for_each(|n| *n += 1);
                }
                assert!(lines.iter().all(|&n| n == 1), "{geometry:?} bound {bound}: {lines:?}");
                let mut lines = vec![0; geometry.batch * geometry.input[0]];
                for (piece, from) in geometry.input_pieces(bound, 1) {
                    let start = piece.start(geometry.input[0]);
                    lines[start..start + piece.count()].iter_mut().for_each(|n| *n += 1);
                    assert_eq!(piece.items, from.items);
                    for out in 0..geometry.output[0] {
                        let mut reads = (0..geometry.kernel[0]).map(|tap| {
                            (out * geometry.stride[0] + tap * geometry.dilation[0])
                                .wrapping_sub(geometry.padding[0])
                        });
                        let needed = reads.any(|at| piece.lines.contains(&at));
                        assert!(!needed || from.lines.contains(&out), "{geometry:?} {piece:?} misses {out}");
                    }
                }
                assert!(lines.iter().all(|&n| n == 1), "{geometry:?} bound {bound}: {lines:?}");
            }
        }
    }
}

//! The three passes of a convolution of any shape on CUDA: im2col columns in workspace, and one cuBLASLt product
//! per piece, batched over the groups.

use super::gemm::{Gemm, Matrix, Operands};
use super::launch::{Arg, CudaIo, Launch};
use crate::args;
use crate::error::Error;
use crate::ops::geometry::{Geometry, Piece};
use crate::ops::linear::element;
use crate::shape::DType;

/// Bytes of columns in workspace at a time, unless a single line of the image needs more.
const SPACE: usize = 64 << 20;

/// Mirrors `ColumnsShape` in `columns.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Shape {
    height: i32,
    width: i32,
    channels: i32,
    groups: i32,
    input_first: i32,
    input_lines: i32,
    first: i32,
    lines: i32,
    out_width: i32,
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
    dilation: [i32; 2],
    wide: i32,
}

/// Arguments shared by the passes. Every address is that of a whole tensor; a base of 0 means none.
pub(crate) struct Columns<'a> {
    pub io: &'a CudaIo<'a>,
    pub geometry: &'a Geometry,
    /// Element type of activations and weights.
    pub dtype: DType,
    /// Address of a workspace of [`workspace_len`] elements.
    pub space: u64,
    /// Factor of every product.
    pub scale: f32,
}

/// Workspace the passes need, in elements.
pub(crate) fn workspace_len(g: &Geometry, dtype: DType) -> usize {
    if g.direct() {
        return 0;
    }
    let bound = SPACE / dtype.size();
    let down = g.output_pieces(bound, 1).into_iter();
    let up = g.input_pieces(bound, 1).into_iter().map(|(_, from)| from);
    let lines = down.chain(up).map(|piece| piece.count()).max();
    lines.unwrap_or(0) * g.output[1] * g.row()
}

impl Columns<'_> {
    fn bound(&self) -> usize {
        SPACE / self.dtype.size()
    }

    /// Address of element `i` of an activation tensor; 0 if the tensor is absent.
    fn at(&self, address: u64, i: usize) -> u64 {
        if address == 0 { 0 } else { address + (i * self.dtype.size()) as u64 }
    }

    fn shape(&self, input: &Piece, output: &Piece) -> Shape {
        let g = self.geometry;
        let pair = |v: [usize; 2]| v.map(|v| v as i32);
        let vector = 16 / self.dtype.size();
        Shape {
            height: g.input[0] as i32,
            width: g.input[1] as i32,
            channels: g.channels as i32,
            groups: g.groups as i32,
            input_first: input.lines.start as i32,
            input_lines: input.lines.len() as i32,
            first: output.lines.start as i32,
            lines: output.lines.len() as i32,
            out_width: g.output[1] as i32,
            kernel: pair(g.kernel),
            stride: pair(g.stride),
            padding: pair(g.padding),
            dilation: pair(g.dilation),
            wide: i32::from((g.channels / g.groups).is_multiple_of(vector)),
        }
    }

    fn threads(&self, elements: usize, shape: &Shape) -> usize {
        if shape.wide == 1 { elements / (16 / self.dtype.size()) } else { elements }
    }

    fn fill(&self, x: u64, piece: &Piece) -> Result<(), Error> {
        let g = self.geometry;
        let whole = Piece { items: piece.items.clone(), lines: 0..g.input[0] };
        let shape = self.shape(&whole, piece);
        let n = self.threads(piece.count() * g.output[1] * g.row(), &shape);
        let x = self.at(x, piece.items.start * g.input[0] * g.input[1] * g.channels);
        let name = format!("columns_fill_{}", self.dtype.suffix());
        self.io.launch(&name, Launch::each(n), &args![self.space, x, n, Arg::from_pod(&shape)])
    }

    /// The three products differ in which of columns, weights and output activations is the result.
    fn gemm(&self, (m, n, k): (usize, usize, usize), a: Matrix, b: Matrix) -> Gemm {
        let element = element(self.dtype);
        Gemm {
            batch: self.geometry.groups,
            a,
            b,
            tf32: self.io.cuda.tf32(),
            ..Gemm::packed(m, n, k, element)
        }
    }

    fn columns(&self) -> Matrix {
        let g = self.geometry;
        Matrix::packed(g.row()).every(g.depth() as i64)
    }

    fn weights(&self) -> Matrix {
        let g = self.geometry;
        Matrix::packed(g.depth()).every((g.filters / g.groups * g.depth()) as i64)
    }

    fn rows(&self) -> Matrix {
        let g = self.geometry;
        Matrix::packed(g.filters).every((g.filters / g.groups) as i64)
    }

    /// `y = base + scale * conv(x)`.
    pub fn down(&self, x: u64, w: u64, y: u64, base: u64) -> Result<(), Error> {
        let g = self.geometry;
        let product = |rows: usize, columns: u64, first: usize| {
            let sizes = (rows, g.filters / g.groups, g.depth());
            let gemm = Gemm {
                c_ld: g.filters,
                c_batch_stride: self.rows().batch_stride,
                accumulate: base != 0,
                ..self.gemm(sizes, self.columns(), self.weights().transpose())
            };
            let mut operands = Operands::new(columns, w, self.at(y, first * g.filters));
            operands.c = self.at(base, first * g.filters);
            operands.alpha = self.scale;
            self.io.gemm(&gemm, &operands)
        };
        if g.direct() {
            return product(g.output_rows(), x, 0);
        }
        for piece in g.output_pieces(self.bound(), 1) {
            self.fill(x, &piece)?;
            let first = piece.start(g.output[0]) * g.output[1];
            product(piece.count() * g.output[1], self.space, first)?;
        }
        Ok(())
    }

    /// `x = base + scale * convᵀ(y)`.
    pub fn up(&self, y: u64, w: u64, x: u64, base: u64) -> Result<(), Error> {
        let g = self.geometry;
        let product = |rows: usize, first: usize, columns: u64, base: u64| {
            let sizes = (rows, g.depth(), g.filters / g.groups);
            let gemm = Gemm {
                c_ld: g.row(),
                c_batch_stride: self.columns().batch_stride,
                accumulate: base != 0,
                ..self.gemm(sizes, self.rows(), self.weights())
            };
            let mut operands = Operands::new(self.at(y, first * g.filters), w, columns);
            operands.c = base;
            operands.alpha = self.scale;
            self.io.gemm(&gemm, &operands)
        };
        if g.direct() {
            return product(g.output_rows(), 0, x, base);
        }
        for (to, from) in g.input_pieces(self.bound(), 1) {
            let first = from.start(g.output[0]) * g.output[1];
            product(from.count() * g.output[1], first, self.space, 0)?;
            let (width, start) = (g.input[1] * g.channels, to.start(g.input[0]));
            let shape = self.shape(&to, &from);
            let n = self.threads(to.count() * width, &shape);
            let (x, base) = (self.at(x, start * width), self.at(base, start * width));
            let name = format!("columns_gather_{}", self.dtype.suffix());
            self.io.launch(&name, Launch::each(n), &args![x, base, self.space, n, Arg::from_pod(&shape)])?;
        }
        Ok(())
    }

    /// `dw = base + scale * yᵀ columns(x)` in f32, accumulated piece by piece.
    pub fn weight_gradient(&self, y: u64, x: u64, dw: u64, base: u64) -> Result<(), Error> {
        let g = self.geometry;
        let product = |rows: usize, first: usize, columns: u64, base: u64| {
            let sizes = (g.filters / g.groups, g.depth(), rows);
            let gemm = Gemm {
                c_ld: g.depth(),
                c_batch_stride: self.weights().batch_stride,
                output: element(DType::F32),
                accumulate: base != 0,
                ..self.gemm(sizes, self.rows().transpose(), self.columns())
            };
            let mut operands = Operands::new(self.at(y, first * g.filters), columns, dw);
            operands.c = base;
            operands.alpha = self.scale;
            self.io.gemm(&gemm, &operands)
        };
        if g.direct() {
            return product(g.output_rows(), 0, x, base);
        }
        for (i, piece) in g.output_pieces(self.bound(), 1).into_iter().enumerate() {
            self.fill(x, &piece)?;
            let first = piece.start(g.output[0]) * g.output[1];
            let base = if i == 0 { base } else { dw };
            product(piece.count() * g.output[1], first, self.space, base)?;
        }
        Ok(())
    }
}

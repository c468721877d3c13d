//! Several sequences as one, along time or along channels.

use crate::cpu::vector;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::slice::{self, Slice};
use crate::shape::Shape;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Inputs: parts, each seen as as many rows as the others; a row of the result is their rows one after the other.
#[derive(Clone, Debug)]
struct Concatenate {
    /// Lengths of the parts' rows.
    parts: Vec<usize>,
}

impl Concatenate {
    fn width(&self) -> usize {
        self.parts.iter().sum()
    }

    /// Where each part starts in a row, and its length.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.parts.iter().scan(0, |at, &len| {
            *at += len;
            Some((*at - len, len))
        })
    }
}

impl Op for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let parts: Vec<&[f32]> = (0..self.parts.len()).map(|i| io.f32(i)).collect();
        vector::each_row(io.take(0), self.width(), |row, y| {
            for ((from, len), part) in self.places().zip(&parts) {
                y[from..from + len].copy_from_slice(&part[row * len..][..len]);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.places().enumerate().try_for_each(|(i, (from, len))| {
            slice::copy(io, i, io.shape(i).len(), [len, self.width(), from, len, 0])
        })
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, width) = (g.of_result(), self.width());
        for (i, (from, len)) in self.places().enumerate() {
            if g.wants(i) {
                let target = g.target(i);
                g.push(Slice { width, from, len }, &[dy], &[target]);
            }
        }
    }
}

impl Tape {
    /// Sequences `[b, t_i, c]` one after the other, as `[b, Σ t_i, c]`.
    pub fn concatenate_time(&mut self, parts: &[Value]) -> Value {
        assert!(!parts.is_empty(), "there is nothing to put together");
        let first = self.shape(parts[0]);
        assert_eq!(first.rank(), 3, "sequences are [batch, time, channel], not {first}");
        let shapes: Vec<Shape> = parts.iter().map(|&p| self.shape(p)).collect();
        for shape in &shapes {
            let fits = shape.rank() == 3 && shape.dim(0) == first.dim(0) && shape.last() == first.last();
            assert!(fits, "{first} and {shape} differ in more than time");
        }
        let time = shapes.iter().map(|s| s.dim(1)).sum();
        let lens = shapes.iter().map(|s| s.dim(1) * s.last()).collect();
        self.concatenated(parts, lens, [first.dim(0), time, first.last()].into())
    }

    /// Values `[.., c_i]` side by side, as `[.., Σ c_i]`.
    pub fn concatenate_channels(&mut self, parts: &[Value]) -> Value {
        assert!(!parts.is_empty(), "there is nothing to put together");
        let first = self.shape(parts[0]);
        let shapes: Vec<Shape> = parts.iter().map(|&p| self.shape(p)).collect();
        for shape in &shapes {
            assert_eq!(
                shape.with_last(1),
                first.with_last(1),
                "{first} and {shape} differ in more than channels"
            );
        }
        let lens: Vec<usize> = shapes.iter().map(Shape::last).collect();
        let c = lens.iter().sum();
        self.concatenated(parts, lens, first.with_last(c))
    }

    fn concatenated(&mut self, parts: &[Value], lens: Vec<usize>, shape: Shape) -> Value {
        let dtype = float(self.info(parts[0]).dtype);
        for &part in parts {
            assert_eq!(self.info(part).dtype, dtype, "what is put together has one type");
            self.check_gradient_type(part);
        }
        self.push_one(Concatenate { parts: lens }, parts, Spec::new(shape, dtype))
    }
}

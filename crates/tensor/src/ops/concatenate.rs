//! Concatenation along time or along channels.

use crate::cpu::vector;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::slice::{self, Slice};
use crate::shape::Shape;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Inputs: parts with the same number of rows; an output row is their rows one after the other.
#[derive(Clone, Debug)]
struct Concatenate {
    /// Row lengths of the parts.
    parts: Vec<usize>,
}

impl Concatenate {
    fn width(&self) -> usize {
        self.parts.iter().sum()
    }

    /// Start of each part in an output row, and its length.
    fn spans(&self) -> impl Iterator<Item = (usize, usize)> {
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
            for ((from, len), part) in self.spans().zip(&parts) {
                y[from..from + len].copy_from_slice(&part[row * len..][..len]);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.spans().enumerate().try_for_each(|(i, (from, len))| {
            slice::copy(io, i, io.shape(i).len(), [len, self.width(), from, len, 0])
        })
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, width) = (g.result_gradient(), self.width());
        for (i, (from, len)) in self.spans().enumerate() {
            if g.wants(i) {
                let target = g.target(i);
                g.push(Slice { width, from, len }, &[dy], &[target]);
            }
        }
    }
}

impl Tape {
    /// Concatenates sequences `[b, t_i, c]` along time, to `[b, Σ t_i, c]`.
    pub fn concatenate_time(&mut self, parts: &[Value]) -> Value {
        assert!(!parts.is_empty(), "there is nothing to concatenate");
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

    /// Concatenates values `[.., c_i]` along channels, to `[.., Σ c_i]`.
    pub fn concatenate_channels(&mut self, parts: &[Value]) -> Value {
        assert!(!parts.is_empty(), "there is nothing to concatenate");
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
            assert_eq!(self.info(part).dtype, dtype, "concatenated values must have the same type");
            self.check_gradient_type(part);
        }
        self.push_one(Concatenate { parts: lens }, parts, Spec::new(shape, dtype))
    }
}

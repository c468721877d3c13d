//! Reductions to one number: sums and means of all elements, or of their distances to a target (`loss.rs`).

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Maximum number of blocks in the first pass.
const PARTS: usize = 1024;

/// The summed term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The elements themselves.
    Element,
    /// Their absolute difference to the other operand.
    Absolute,
    /// Their squared difference to the other operand.
    Square,
}

impl Term {
    fn code(self) -> i32 {
        match self {
            Term::Element => 0,
            Term::Absolute => 1,
            Term::Square => 2,
        }
    }

    #[inline(always)]
    fn value(self, x: f32, y: f32) -> f32 {
        match self {
            Term::Element => x,
            Term::Absolute => (x - y).abs(),
            Term::Square => (x - y) * (x - y),
        }
    }

    /// The derivative with respect to x; with respect to y it has the opposite sign.
    #[inline(always)]
    fn slope(self, x: f32, y: f32) -> f32 {
        match self {
            Term::Element => 1.0,
            Term::Absolute => f32::from(x > y) - f32::from(x < y),
            Term::Square => 2.0 * (x - y),
        }
    }
}

/// The other operand of a distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// The second input.
    Value,
    /// One number for all elements.
    Constant(f32),
}

/// Inputs: x, and the other operand if it is a value. Outputs: `scale * Σ term`, `[1]` f32; workspace.
#[derive(Clone, Copy, Debug)]
struct Reduce {
    term: Term,
    side: Operand,
    scale: f32,
}

impl Reduce {
    fn constant(&self) -> f32 {
        match self.side {
            Operand::Constant(constant) => constant,
            Operand::Value => 0.0,
        }
    }
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        match self.term {
            Term::Element => "sum",
            Term::Absolute => "absolute_distance",
            Term::Square => "square_distance",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        const PIECE: usize = 1 << 14;
        let x = io.f32(0);
        let sum = |(x, y): (&[f32], &[f32])| -> f64 {
            // f64 keeps the low digits of a long sum; split at fixed positions.
            x.iter().zip(y).map(|(&x, &y)| f64::from(self.term.value(x, y))).sum()
        };
        let parts: Vec<f64> = match self.side {
            Operand::Value => x.par_chunks(PIECE).zip(io.f32(1).par_chunks(PIECE)).map(sum).collect(),
            Operand::Constant(constant) => {
                let same = vec![constant; PIECE.min(x.len())];
                x.par_chunks(PIECE).map(|x| sum((x, &same))).collect()
            }
        };
        io.take(0)[0] = (f64::from(self.scale) * parts.iter().sum::<f64>()) as f32;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let parts = n.div_ceil(4096).clamp(1, PARTS);
        let name = format!("reduce_parts_{}", float(io.dtype(0)).suffix());
        let y = if self.side == Operand::Value { io.input(1) } else { 0 };
        let first = args![io.output(1), io.input(0), y, n as i64, self.term.code(), self.constant()];
        io.launch(&name, Launch::line(parts, 256), &first)?;
        let second = args![io.output(0), io.output(1), parts, self.scale];
        io.launch("reduce_together", Launch::line(1, 256), &second)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let d = g.result_gradient();
        for i in 0..g.inputs() {
            if !g.wants(i) {
                continue;
            }
            let mut inputs = vec![d];
            if self.term != Term::Element {
                inputs.extend((0..g.inputs()).map(|i| g.input(i)));
            }
            let target = g.target(i);
            let scale = if i == 0 { self.scale } else { -self.scale };
            g.push(ReduceBackward(Reduce { scale, ..*self }), &inputs, &[target]);
        }
    }
}

/// Inputs: d, then x and the other operand if the derivative depends on them. Output: dx, or dy with a negative
/// scale.
#[derive(Clone, Copy, Debug)]
struct ReduceBackward(Reduce);

impl Op for ReduceBackward {
    fn name(&self) -> &'static str {
        match self.0.term {
            Term::Element => "sum'",
            Term::Absolute => "absolute_distance'",
            Term::Square => "square_distance'",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        const PIECE: usize = 1 << 14;
        let Reduce { term, scale, .. } = self.0;
        let by = scale * io.f32(0)[0];
        let x = (io.inputs() > 1).then(|| io.f32(1));
        let y = (io.inputs() > 2).then(|| io.f32(2));
        io.accumulate(0).par_chunks_mut(PIECE).enumerate().for_each(|(piece, dx)| {
            for (i, dx) in (piece * PIECE..).zip(dx) {
                let (x, y) = (x.map_or(0.0, |x| x[i]), y.map_or(self.0.constant(), |y| y[i]));
                *dx += by * term.slope(x, y);
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("reduce_backward_{}", float(io.output_dtype(0)).suffix());
        let at = |i: usize| if i < io.inputs() { io.input(i) } else { 0 };
        let Reduce { term, scale, .. } = self.0;
        let args = args![
            io.output(0),
            io.base(0),
            at(1),
            at(2),
            io.input(0),
            n as i64,
            term.code(),
            self.0.constant(),
            scale
        ];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

impl Tape {
    /// The sum of all elements, `[1]` f32.
    pub fn sum(&mut self, x: Value) -> Value {
        self.reduce(x, None, Term::Element, 0.0, 1.0)
    }

    /// The mean of all elements, `[1]` f32.
    pub fn mean(&mut self, x: Value) -> Value {
        let share = 1.0 / self.shape(x).len() as f32;
        self.reduce(x, None, Term::Element, 0.0, share)
    }

    /// `scale * Σ term(x, other)`; the other operand is `constant` if no value is given.
    pub(crate) fn reduce(
        &mut self,
        x: Value,
        other: Option<Value>,
        term: Term,
        constant: f32,
        scale: f32,
    ) -> Value {
        assert!(!self.shape(x).is_empty(), "there is nothing to sum in {}", self.shape(x));
        float(self.info(x).dtype);
        self.check_gradient_type(x);
        if let Some(other) = other {
            assert_eq!(self.shape(x), self.shape(other), "both operands must have the same shape");
            assert_eq!(self.info(x).dtype, self.info(other).dtype, "both operands must have the same type");
            self.check_gradient_type(other);
        }
        let side = if other.is_some() { Operand::Value } else { Operand::Constant(constant) };
        let inputs: Vec<Value> = [x].into_iter().chain(other).collect();
        let outputs = [Spec::new([1], DType::F32), Spec::constant([PARTS], DType::F32)];
        self.push(Reduce { term, side, scale }, &inputs, &outputs)[0]
    }
}

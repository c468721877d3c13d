//! Sums and products: of equal shapes, with constants, broadcast over time, of scalars.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::time;
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BinaryKind {
    Add,
    Subtract,
    Multiply,
}

impl BinaryKind {
    fn code(self) -> i32 {
        match self {
            BinaryKind::Add => 0,
            BinaryKind::Subtract => 1,
            BinaryKind::Multiply => 2,
        }
    }

    #[inline(always)]
    fn of(self, x: f32, y: f32) -> f32 {
        match self {
            BinaryKind::Add => x + y,
            BinaryKind::Subtract => x - y,
            BinaryKind::Multiply => x * y,
        }
    }
}

/// Inputs: x and y of the same shape and type. Output: the same shape and type.
#[derive(Clone, Copy, Debug)]
struct Binary(BinaryKind);

impl Op for Binary {
    fn name(&self) -> &'static str {
        match self.0 {
            BinaryKind::Add => "add",
            BinaryKind::Subtract => "subtract",
            BinaryKind::Multiply => "multiply",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, y) = (io.f32(0), io.f32(1));
        vector::map2(x, y, io.take(0), |x, y| self.0.of(x, y));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        binary(io, self.0)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        if self.0 == BinaryKind::Multiply {
            for (this, other) in [(0, 1), (1, 0)] {
                if g.wants(this) {
                    let other = g.input(other);
                    let target = g.target(this);
                    g.push(Product, &[dy, other], &[target]);
                }
            }
            return;
        }
        g.pass(0, dy);
        if self.0 == BinaryKind::Add {
            g.pass(1, dy);
        } else if g.wants(1) {
            let target = g.target(1);
            g.push(Scaled { scale: -1.0 }, &[dy], &[target]);
        }
    }
}

fn binary(io: &CudaIo<'_>, kind: BinaryKind) -> Result<(), Error> {
    let n = io.output_shape(0).len();
    let name = format!("binary_{}", float(io.output_dtype(0)).suffix());
    let args = args![io.output(0), io.base(0), io.input(0), io.input(1), n as i64, kind.code()];
    io.launch(&name, Launch::each(n.div_ceil(8)), &args)
}

/// `base + dy * y`.
#[derive(Debug)]
struct Product;

impl Op for Product {
    fn name(&self) -> &'static str {
        "multiply'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, y) = (io.f32(0), io.f32(1));
        vector::add_map2(dy, y, io.accumulate(0), |dy, y| dy * y);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        binary(io, BinaryKind::Multiply)
    }
}

/// `scale * x + shift`.
#[derive(Clone, Copy, Debug)]
struct Affine {
    scale: f32,
    shift: f32,
}

impl Op for Affine {
    fn name(&self) -> &'static str {
        "affine"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let x = io.f32(0);
        vector::map(x, io.take(0), |x| self.scale * x + self.shift);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        affine(io, self.scale, self.shift)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        if self.scale == 1.0 {
            return g.pass(0, dy);
        }
        let target = g.target(0);
        g.push(Scaled { scale: self.scale }, &[dy], &[target]);
    }
}

fn affine(io: &CudaIo<'_>, scale: f32, shift: f32) -> Result<(), Error> {
    let n = io.output_shape(0).len();
    let name = format!("affine_{}", float(io.output_dtype(0)).suffix());
    let args = args![io.output(0), io.base(0), io.input(0), n as i64, scale, shift];
    io.launch(&name, Launch::each(n.div_ceil(8)), &args)
}

/// `base + scale * dy`.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    scale: f32,
}

impl Op for Scaled {
    fn name(&self) -> &'static str {
        "affine'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let dy = io.f32(0);
        vector::add_map2(dy, dy, io.accumulate(0), |dy, _| self.scale * dy);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        affine(io, self.scale, 0.0)
    }
}

fn multiply_per_item(io: &CudaIo<'_>, time: usize, c: usize) -> Result<(), Error> {
    let n = io.output_shape(0).len();
    let name = format!("broadcast_{}", float(io.output_dtype(0)).suffix());
    let (period, kind) = (time * c, BinaryKind::Multiply.code());
    let args = args![io.output(0), io.base(0), io.input(0), io.input(1), n as i64, period as i64, c, kind];
    io.launch(&name, Launch::each(n.div_ceil(8)), &args)
}

/// Inputs: x `[b, t, c]`, y `[b, c]`. Output: x multiplied by y at every time step.
#[derive(Clone, Copy, Debug)]
struct MultiplyPerItem;

impl Op for MultiplyPerItem {
    fn name(&self) -> &'static str {
        "multiply_per_item"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, y, time, c) = (io.f32(0), io.f32(1), io.shape(0).dim(1), io.shape(0).last());
        vector::each_row(io.take(0), c, |i, out| {
            for ((out, x), y) in out.iter_mut().zip(&x[i * c..]).zip(&y[i / time * c..]) {
                *out = x * y;
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let shape = io.shape(0);
        multiply_per_item(io, shape.dim(1), shape.last())
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, shape) = (g.result_gradient(), g.input_shape(0));
        if g.wants(1) {
            let x = g.input(0);
            let target = g.target(1);
            time::sum_of_products(g, shape, dy, x, target);
        }
        if g.wants(0) {
            let y = g.input(1);
            let target = g.target(0);
            let [time, c] = [shape.dim(1), shape.last()];
            g.push(PerItemInput { time, c }, &[dy, y], &[target]);
        }
    }
}

/// Inputs: dy `[b, t, c]`, y `[b, c]`. Output: `base + dy * y`.
#[derive(Clone, Copy, Debug)]
struct PerItemInput {
    time: usize,
    c: usize,
}

impl Op for PerItemInput {
    fn name(&self) -> &'static str {
        "multiply_per_item'x"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, y, PerItemInput { time, c }) = (io.f32(0), io.f32(1), *self);
        vector::each_row(io.accumulate(0), c, |i, dx| {
            for ((dx, dy), y) in dx.iter_mut().zip(&dy[i * c..]).zip(&y[i / time * c..]) {
                *dx += dy * y;
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        multiply_per_item(io, self.time, self.c)
    }
}

/// Number of scalars one kernel adds; longer sums use several.
const SCALARS: usize = 4;

/// Inputs: up to four scalars, f32. Output: their weighted sum.
#[derive(Clone, Debug)]
struct WeightedSum {
    weights: [f32; SCALARS],
}

impl Op for WeightedSum {
    fn name(&self) -> &'static str {
        "weighted_sum"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let sum = (0..io.inputs()).map(|i| self.weights[i] * io.f32(i)[0]).sum();
        io.take(0)[0] = sum;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let at = |i: usize| if i < io.inputs() { io.input(i) } else { 0 };
        let [a, b, c, d] = self.weights;
        let args = args![io.output(0), io.inputs(), at(0), at(1), at(2), at(3), a, b, c, d];
        io.launch("weighted_sum", Launch::line(1, 1), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let d = g.result_gradient();
        for i in 0..g.inputs() {
            if self.weights[i] == 1.0 {
                g.pass(i, d);
            } else if g.wants(i) {
                let target = g.target(i);
                g.push(Scaled { scale: self.weights[i] }, &[d], &[target]);
            }
        }
    }
}

impl Tape {
    /// `x + y` of equal shapes.
    pub fn add(&mut self, x: Value, y: Value) -> Value {
        self.binary(x, y, BinaryKind::Add)
    }

    /// `x - y` of equal shapes.
    pub fn subtract(&mut self, x: Value, y: Value) -> Value {
        self.binary(x, y, BinaryKind::Subtract)
    }

    /// `x * y` of equal shapes, elementwise.
    pub fn multiply(&mut self, x: Value, y: Value) -> Value {
        self.binary(x, y, BinaryKind::Multiply)
    }

    /// `factor * x`.
    pub fn scale(&mut self, x: Value, factor: f32) -> Value {
        self.affine(x, factor, 0.0)
    }

    /// `factor * x + number`.
    pub fn affine(&mut self, x: Value, factor: f32, number: f32) -> Value {
        self.check_gradient_type(x);
        let spec = Spec::new(self.shape(x), float(self.info(x).dtype));
        self.push_one(Affine { scale: factor, shift: number }, &[x], spec)
    }

    /// `x [b, t, c]` multiplied by `y [b, c]` at every time step.
    pub fn multiply_per_item(&mut self, x: Value, y: Value) -> Value {
        let (a, b) = (self.info(x).clone(), self.info(y).clone());
        assert_eq!(a.shape.rank(), 3, "x is [batch, time, channel], not {}", a.shape);
        assert_eq!(
            b.shape.len(),
            a.shape.dim(0) * a.shape.last(),
            "x {} and y {} do not match",
            a.shape,
            b.shape
        );
        assert_eq!(float(a.dtype), b.dtype, "both operands must have the same type");
        self.check_gradient_type(x);
        self.check_gradient_type(y);
        self.push_one(MultiplyPerItem, &[x, y], Spec::new(a.shape, a.dtype))
    }

    /// `Σ weight * scalar`, each scalar one f32: combines losses.
    pub fn weighted_sum(&mut self, scalars: &[(Value, f32)]) -> Value {
        assert!(!scalars.is_empty(), "a weighted sum needs at least one scalar");
        for &(scalar, _) in scalars {
            let info = self.info(scalar);
            assert!(info.shape.len() == 1 && info.dtype == DType::F32, "each scalar must be one f32");
        }
        let (first, rest) = scalars.split_at(scalars.len().min(SCALARS));
        let mut weights = [0.0; SCALARS];
        weights.iter_mut().zip(first).for_each(|(weight, (_, w))| *weight = *w);
        let values: Vec<Value> = first.iter().map(|(scalar, _)| *scalar).collect();
        let sum = self.push_one(WeightedSum { weights }, &values, Spec::new([1], DType::F32));
        if rest.is_empty() {
            return sum;
        }
        let all: Vec<(Value, f32)> = [(sum, 1.0)].into_iter().chain(rest.iter().copied()).collect();
        self.weighted_sum(&all)
    }

    fn binary(&mut self, x: Value, y: Value, kind: BinaryKind) -> Value {
        let (a, b) = (self.info(x).clone(), self.info(y).clone());
        assert_eq!(a.shape, b.shape, "both operands must have the same shape");
        assert_eq!(float(a.dtype), b.dtype, "both operands must have the same type");
        self.check_gradient_type(x);
        self.check_gradient_type(y);
        self.push_one(Binary(kind), &[x, y], Spec::new(a.shape, a.dtype))
    }

    /// Gradients are written in the type of their value, so a weight must be used in f32 here (`Tape::master`).
    pub(crate) fn check_gradient_type(&self, x: Value) {
        let info = self.info(x);
        let same = !info.differentiable || info.gradient_dtype == info.dtype;
        assert!(same, "a weight must be used in f32 here, or cast");
    }
}

//! The three passes every convolution is made of, whichever way it goes: `down` from a `Geometry`'s input to its
//! output, `up` from its output to its input, and the gradient of the weights. A convolution goes down and its gradient
//! up; a transposed convolution the other way round.

use super::activation::Function;
use super::addends::Addends;
use super::geometry::Geometry;
use crate::cpu;
use crate::cuda::columns::{self, Columns};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};

/// Under which name it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Conv1d,
    Conv2d,
    Transposed,
}

/// What is done around a convolution in the same pass:
/// `input_scale * conv(leaky(x)) + bias + per_item + residual + plus`.
#[derive(Clone, Copy, Debug)]
pub struct Fused {
    /// `[channels of the result]`, f32 (`Tape::master`).
    pub bias: Option<Value>,
    /// Leaky ReLU of this slope, between 0 and 1, on the input.
    pub input_slope: Option<f32>,
    /// Factor of the input, after the activation.
    pub input_scale: f32,
    /// `[batch, channels of the result]`, added at every time.
    pub per_item: Option<Value>,
    /// Of the result's shape.
    pub residual: Option<Value>,
    /// Of the result's shape.
    pub plus: Option<Value>,
}

impl Default for Fused {
    fn default() -> Fused {
        Fused { bias: None, input_slope: None, input_scale: 1.0, per_item: None, residual: None, plus: None }
    }
}

impl Fused {
    /// A bias alone.
    pub fn bias(bias: Option<Value>) -> Fused {
        Fused { bias, ..Fused::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    kind: Kind,
    geometry: Geometry,
    scale: f32,
}

impl Convolution {
    fn goes_down(self) -> bool {
        self.kind != Kind::Transposed
    }

    fn columns<'a>(&'a self, io: &'a CudaIo<'a>, results: usize) -> Columns<'a> {
        let space = if self.space(io.dtype(0)).is_some() { io.output(results) } else { 0 };
        Columns { io, geometry: &self.geometry, dtype: io.dtype(0), space, scale: self.scale }
    }

    fn space(&self, dtype: DType) -> Option<Spec> {
        let elements = columns::space(&self.geometry, dtype);
        (elements > 0).then(|| Spec::constant([elements], dtype))
    }
}

/// Inputs: x, weight, addends. Results: y, work space if any.
#[derive(Clone, Copy, Debug)]
struct Forward {
    of: Convolution,
    addends: Addends,
}

impl Op for Forward {
    fn name(&self) -> &'static str {
        match self.of.kind {
            Kind::Conv1d => "conv1d",
            Kind::Conv2d => "conv2d",
            Kind::Transposed => "conv_transpose1d",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, w, y) = (io.f32(0), io.f32(1), io.take(0));
        let add = self.addends.fill_cpu(io, y);
        let pass = if self.of.goes_down() { cpu::columns::down } else { cpu::columns::up };
        pass(&self.of.geometry, x, w, y, add, self.of.scale);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let base = self.addends.fill_cuda(io)?;
        let columns = self.of.columns(io, 1);
        if self.of.goes_down() {
            columns.down(io.input(0), io.input(1), io.output(0), base)
        } else {
            columns.up(io.input(0), io.input(1), io.output(0), base)
        }
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.of_result();
        let dtype = g.tape().info(dy).dtype;
        let space: Vec<Spec> = self.of.space(dtype).into_iter().collect();
        // First: what is passed on to an input that is convolved too becomes the base of its gradient.
        self.addends.backward(g, false);
        if g.wants(1) {
            let (x, target) = (g.input(0), g.target(1));
            g.push_with_space(WeightGradient(self.of), &[dy, x], &[target], &space);
        }
        if g.wants(0) {
            let (w, target) = (g.input(1), g.target(0));
            g.push_with_space(InputGradient(self.of), &[dy, w], &[target], &space);
        }
    }
}

/// Inputs: dy, weight. Results: dx, work space if any.
#[derive(Clone, Copy, Debug)]
struct InputGradient(Convolution);

impl Op for InputGradient {
    fn name(&self) -> &'static str {
        match self.0.kind {
            Kind::Conv1d => "conv1d'x",
            Kind::Conv2d => "conv2d'x",
            Kind::Transposed => "conv_transpose1d'x",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, w, add) = (io.f32(0), io.f32(1), io.based(0));
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        let pass = if self.0.goes_down() { cpu::columns::up } else { cpu::columns::down };
        pass(&self.0.geometry, dy, w, dx, add, self.0.scale);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let columns = self.0.columns(io, 1);
        if self.0.goes_down() {
            columns.up(io.input(0), io.input(1), io.output(0), io.base(0))
        } else {
            columns.down(io.input(0), io.input(1), io.output(0), io.base(0))
        }
    }
}

/// Inputs: dy, x. Results: the gradient of the weight in f32, work space if any.
#[derive(Clone, Copy, Debug)]
struct WeightGradient(Convolution);

impl Op for WeightGradient {
    fn name(&self) -> &'static str {
        match self.0.kind {
            Kind::Conv1d => "conv1d'w",
            Kind::Conv2d => "conv2d'w",
            Kind::Transposed => "conv_transpose1d'w",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, x, add) = (io.f32(0), io.f32(1), io.based(0));
        let dw = if add { io.accumulate(0) } else { io.take(0) };
        // The weights lie as the geometry's output and input do, whichever of them is the result.
        let (output, input) = if self.0.goes_down() { (dy, x) } else { (x, dy) };
        cpu::columns::weights(&self.0.geometry, output, input, dw, add, self.0.scale);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (dy, x) = (io.input(0), io.input(1));
        let (output, input) = if self.0.goes_down() { (dy, x) } else { (x, dy) };
        self.0.columns(io, 1).weight_gradient(output, input, io.output(0), io.base(0))
    }
}

/// Adds a convolution with a result of shape `out`.
pub(crate) fn convolve(
    tape: &mut Tape,
    kind: Kind,
    geometry: Geometry,
    out: Shape,
    (x, weight): (Value, Value),
    fused: Fused,
) -> Value {
    let (dtype, c, batch) = (tape.info(x).dtype, out.last(), out.dim(0));
    assert_eq!(tape.info(weight).dtype, dtype, "the weight of a convolution has the type of its input");
    assert!(!out.is_empty(), "a convolution of {} has no result", tape.shape(x));
    if let Some(bias) = fused.bias {
        assert_eq!(tape.shape(bias).len(), c, "a bias has an element per channel of the result");
        assert_eq!(tape.info(bias).dtype, DType::F32, "the bias of a convolution is f32");
    }
    if let Some(vector) = fused.per_item {
        assert_eq!(tape.shape(vector).len(), batch * c, "there is a vector of {c} for each of {batch} items");
        assert_eq!(tape.info(vector).dtype, dtype, "the vector of an item has the type of the result");
    }
    for more in [fused.residual, fused.plus].into_iter().flatten() {
        assert_eq!(tape.shape(more), out, "what is added has the shape of the result");
        assert_eq!(tape.info(more).dtype, dtype, "what is added has the type of the result");
    }
    let x = match fused.input_slope {
        Some(slope) => {
            assert!(
                (0.0..=1.0).contains(&slope),
                "the slope of a leaky ReLU is between 0 and 1, not {slope}"
            );
            tape.activation(x, Function::LeakyRelu(slope))
        }
        None => x,
    };
    let of = Convolution { kind, geometry, scale: fused.input_scale };
    let (addends, more) = Addends::of(fused.bias, fused.per_item, fused.residual, fused.plus);
    let inputs: Vec<Value> = [x, weight].into_iter().chain(more).collect();
    let outputs: Vec<Spec> = [Spec::new(out, dtype)].into_iter().chain(of.space(dtype)).collect();
    tape.push(Forward { of, addends }, &inputs, &outputs)[0]
}

//! The three passes of every convolution, in either direction: `down` from a `Geometry`'s input to its output, `up`
//! from its output to its input, and the weight gradient. A convolution runs `down` and its input gradient `up`; a
//! transposed convolution the other way round.

use super::activation::Function;
use super::addends::Addends;
use super::geometry::Geometry;
use crate::cpu;
use crate::cuda::columns::{self, Columns};
use crate::cuda::conv_tiles::{self, Added, Tiles};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Target, Value};

/// Type of convolution, for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvolutionKind {
    Conv1d,
    Conv2d,
    Transposed,
}

/// Operations fused into a convolution: `input_scale * conv(leaky(x)) + bias + per_item + residual + plus`.
#[derive(Clone, Copy, Debug)]
pub struct Fused {
    /// `[output channels]`, f32 (`Tape::master`).
    pub bias: Option<Value>,
    /// Slope, between 0 and 1, of a leaky ReLU on the input.
    pub input_slope: Option<f32>,
    /// Factor of the input, after the activation.
    pub input_scale: f32,
    /// `[batch, output channels]`, added at every time step.
    pub per_item: Option<Value>,
    /// Of the output's shape.
    pub residual: Option<Value>,
    /// Of the output's shape.
    pub plus: Option<Value>,
}

impl Default for Fused {
    fn default() -> Fused {
        Fused { bias: None, input_slope: None, input_scale: 1.0, per_item: None, residual: None, plus: None }
    }
}

impl Fused {
    /// Only a bias.
    pub fn bias(bias: Option<Value>) -> Fused {
        Fused { bias, ..Fused::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    kind: ConvolutionKind,
    geometry: Geometry,
    scale: f32,
    /// Slope of a leaky ReLU on the input; 1 unless the tiled kernels apply it.
    slope: f32,
    /// Whether the tiled kernels apply.
    tiled: bool,
}

/// A pass, for its workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Down,
    Up,
    Weights,
}

impl Convolution {
    fn goes_down(self) -> bool {
        self.kind != ConvolutionKind::Transposed
    }

    fn forward(self) -> Pass {
        if self.goes_down() { Pass::Down } else { Pass::Up }
    }

    fn back(self) -> Pass {
        if self.goes_down() { Pass::Up } else { Pass::Down }
    }

    fn workspace(&self, pass: Pass, dtype: DType) -> Option<Spec> {
        let (elements, dtype) = match (self.tiled, pass) {
            (false, _) => (columns::workspace_len(&self.geometry, dtype), dtype),
            (true, Pass::Down) => (0, dtype),
            (true, Pass::Up) => (conv_tiles::up_workspace_len(&self.geometry), dtype),
            (true, Pass::Weights) => (conv_tiles::weight_workspace_len(&self.geometry), DType::F32),
        };
        (elements > 0).then(|| Spec::constant([elements], dtype))
    }

    /// Address of the workspace: the output after the results.
    fn space_at(&self, io: &CudaIo<'_>, results: usize) -> u64 {
        if io.outputs() > results { io.output(results) } else { 0 }
    }

    fn columns<'a>(&'a self, io: &'a CudaIo<'a>) -> Columns<'a> {
        let (geometry, space) = (&self.geometry, self.space_at(io, 1));
        Columns { io, geometry, dtype: io.dtype(0), space, scale: self.scale }
    }

    fn tiles<'a>(&'a self, io: &'a CudaIo<'a>, results: usize) -> Tiles<'a> {
        let (geometry, space) = (&self.geometry, self.space_at(io, results));
        Tiles { io, geometry, scale: self.scale, slope: 1.0, mask_slope: 1.0, space }
    }
}

/// Inputs: x, weight, addends. Outputs: y, workspace if any.
#[derive(Clone, Copy, Debug)]
struct Forward {
    of: Convolution,
    addends: Addends,
}

impl Op for Forward {
    fn name(&self) -> &'static str {
        match self.of.kind {
            ConvolutionKind::Conv1d => "conv1d",
            ConvolutionKind::Conv2d => "conv2d",
            ConvolutionKind::Transposed => "conv_transpose1d",
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
        let (x, w, y) = (io.input(0), io.input(1), io.output(0));
        if self.of.tiled {
            let input = |at: Option<usize>| at.map_or(0, |i| io.input(i));
            let added = Added {
                bias: input(self.addends.bias_at()),
                per_item: input(self.addends.per_item_at()),
                residual: input(self.addends.residual_at()),
                base: input(self.addends.plus_at()),
                mask: 0,
            };
            let tiles = Tiles { slope: self.of.slope, ..self.of.tiles(io, 1) };
            return match self.of.forward() {
                Pass::Up => tiles.up(x, w, y, added),
                _ => tiles.down(x, w, y, added),
            };
        }
        let base = self.addends.fill_cuda(io)?;
        match self.of.forward() {
            Pass::Up => self.of.columns(io).up(x, w, y, base),
            _ => self.of.columns(io).down(x, w, y, base),
        }
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let dtype = g.tape().info(dy).dtype;
        let spaces = |pass: Pass| self.of.workspace(pass, dtype).into_iter().collect::<Vec<Spec>>();
        // With tiles, the weight gradient also computes the sums of dy, provided dy is on the weight's first side.
        let bias = self.addends.bias_at().filter(|&i| g.wants(i) && g.wants(1));
        let bias = bias.filter(|_| self.of.tiled && self.of.goes_down() && self.of.geometry.filters > 1);
        // First: a gradient passed on to an input that is convolved too becomes the base of its gradient.
        self.addends.backward(g, bias.is_some());
        if g.wants(1) {
            let (x, op) = (g.input(0), WeightGradient { of: self.of, bias: bias.is_some() });
            let targets: Vec<Target> = [Some(1), bias].into_iter().flatten().map(|i| g.target(i)).collect();
            g.push_with_workspace(op, &[dy, x], &targets, &spaces(Pass::Weights));
        }
        if g.wants(0) {
            let mut inputs = vec![dy, g.input(1)];
            if self.of.slope != 1.0 {
                inputs.push(g.input(0));
            }
            let target = g.target(0);
            g.push_with_workspace(InputGradient(self.of), &inputs, &[target], &spaces(self.of.back()));
        }
    }
}

/// Inputs: dy, weight, x if the input has an activation. Outputs: dx, workspace if any.
#[derive(Clone, Copy, Debug)]
struct InputGradient(Convolution);

impl Op for InputGradient {
    fn name(&self) -> &'static str {
        match self.0.kind {
            ConvolutionKind::Conv1d => "conv1d'x",
            ConvolutionKind::Conv2d => "conv2d'x",
            ConvolutionKind::Transposed => "conv_transpose1d'x",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, w, add) = (io.f32(0), io.f32(1), io.has_base(0));
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        let pass = if self.0.goes_down() { cpu::columns::up } else { cpu::columns::down };
        pass(&self.0.geometry, dy, w, dx, add, self.0.scale);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (dy, w, dx, base) = (io.input(0), io.input(1), io.output(0), io.base(0));
        if self.0.tiled {
            let mask = if self.0.slope == 1.0 { 0 } else { io.input(2) };
            let added = Added { base, mask, ..Added::default() };
            let tiles = Tiles { mask_slope: self.0.slope, ..self.0.tiles(io, 1) };
            return match self.0.back() {
                Pass::Up => tiles.up(dy, w, dx, added),
                _ => tiles.down(dy, w, dx, added),
            };
        }
        match self.0.back() {
            Pass::Up => self.0.columns(io).up(dy, w, dx, base),
            _ => self.0.columns(io).down(dy, w, dx, base),
        }
    }
}

/// Inputs: dy, x. Outputs, in f32: the weight gradient, the bias gradient if it is computed here, workspace if any.
#[derive(Clone, Copy, Debug)]
struct WeightGradient {
    of: Convolution,
    bias: bool,
}

impl Op for WeightGradient {
    fn name(&self) -> &'static str {
        match self.of.kind {
            ConvolutionKind::Conv1d => "conv1d'w",
            ConvolutionKind::Conv2d => "conv2d'w",
            ConvolutionKind::Transposed => "conv_transpose1d'w",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, x, add) = (io.f32(0), io.f32(1), io.has_base(0));
        let dw = if add { io.accumulate(0) } else { io.take(0) };
        // The weights are stored as (geometry output, geometry input), whichever direction the convolution runs.
        let (output, input) = if self.of.goes_down() { (dy, x) } else { (x, dy) };
        cpu::columns::weights(&self.of.geometry, output, input, dw, add, self.of.scale);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (dy, x) = (io.input(0), io.input(1));
        let (output, input) = if self.of.goes_down() { (dy, x) } else { (x, dy) };
        if self.of.tiled {
            let bias = self.bias.then(|| [io.output(1), io.base(1)]);
            let tiles = Tiles { slope: self.of.slope, ..self.of.tiles(io, 1 + usize::from(self.bias)) };
            return tiles.weights([output, input], [io.output(0), io.base(0)], bias, !self.of.goes_down());
        }
        self.of.columns(io).weight_gradient(output, input, io.output(0), io.base(0))
    }
}

/// Adds a convolution with an output of shape `out`.
pub(crate) fn convolve(
    tape: &mut Tape,
    kind: ConvolutionKind,
    geometry: Geometry,
    out: Shape,
    (x, weight): (Value, Value),
    fused: Fused,
) -> Value {
    let (dtype, c, batch) = (tape.info(x).dtype, out.last(), out.dim(0));
    assert_eq!(tape.info(weight).dtype, dtype, "the weight of a convolution must have the type of its input");
    assert!(!out.is_empty(), "a convolution of {} has an empty output", tape.shape(x));
    if let Some(bias) = fused.bias {
        assert_eq!(tape.shape(bias).len(), c, "a bias must have one element per output channel");
        assert_eq!(tape.info(bias).dtype, DType::F32, "the bias of a convolution must be f32");
    }
    if let Some(vector) = fused.per_item {
        assert_eq!(
            tape.shape(vector).len(),
            batch * c,
            "`per_item` must have a vector of {c} for each of {batch} items"
        );
        assert_eq!(tape.info(vector).dtype, dtype, "`per_item` must have the type of the output");
    }
    for more in [fused.residual, fused.plus].into_iter().flatten() {
        assert_eq!(tape.shape(more), out, "an addend must have the shape of the output");
        assert_eq!(tape.info(more).dtype, dtype, "an addend must have the type of the output");
    }
    let slope = fused.input_slope.unwrap_or(1.0);
    assert!((0.0..=1.0).contains(&slope), "the slope of a leaky ReLU must be between 0 and 1, not {slope}");
    // One tap on the unchanged input: a plain matrix product.
    let product = geometry.direct() && slope == 1.0;
    let fits =
        kind != ConvolutionKind::Conv2d && conv_tiles::fits(&geometry, kind == ConvolutionKind::Conv1d);
    let tiled = dtype == DType::Bf16 && fits && !product;
    // The other implementations use a separate activation operation.
    let (x, slope) = match slope {
        1.0 => (x, 1.0),
        slope if tiled => (x, slope),
        slope => (tape.activation(x, Function::LeakyRelu(slope)), 1.0),
    };
    let of = Convolution { kind, geometry, scale: fused.input_scale, slope, tiled };
    let (addends, more) = Addends::of(fused.bias, fused.per_item, fused.residual, fused.plus);
    let inputs: Vec<Value> = [x, weight].into_iter().chain(more).collect();
    let outputs: Vec<Spec> =
        [Spec::new(out, dtype)].into_iter().chain(of.workspace(of.forward(), dtype)).collect();
    tape.push(Forward { of, addends }, &inputs, &outputs)[0]
}

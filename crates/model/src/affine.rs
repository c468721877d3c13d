//! Applies a weight with its bias on a tape, and declares layers with PyTorch's default initialisation.

use crate::declare::{Affine, Declare};
use myxtts_tensor::{Init, ParameterId, Tape, Value};

/// Epsilon of PyTorch's layer norm.
const EPSILON: f32 = 1e-5;

impl Affine {
    /// `x Wᵀ + b`.
    pub fn linear(self, tape: &mut Tape, x: Value) -> Value {
        self.linear_add(tape, x, None)
    }

    /// `x Wᵀ + b + residual`.
    pub fn linear_add(self, tape: &mut Tape, x: Value, residual: Option<Value>) -> Value {
        let (weight, bias) = self.layer(tape);
        tape.linear_add(x, weight, Some(bias), residual)
    }

    /// Layer norm over the channels of x.
    pub fn layer_norm(self, tape: &mut Tape, x: Value) -> Value {
        let (weight, bias) = (tape.master(self.weight), tape.master(self.bias));
        tape.layer_norm(x, weight, bias, EPSILON)
    }

    /// Group norm over time and groups of channels of x `[batch, time, channel]`.
    pub fn group_norm(self, tape: &mut Tape, x: Value, groups: usize) -> Value {
        let (weight, bias) = (tape.master(self.weight), tape.master(self.bias));
        tape.group_norm(x, groups, weight, bias, EPSILON)
    }

    /// Returns weight and bias in the activation type.
    pub fn layer(self, tape: &mut Tape) -> (Value, Value) {
        (tape.parameter(self.weight), tape.parameter(self.bias))
    }
}

/// PyTorch's default initialisation of a linear layer with `from` input channels, for weight and bias.
pub(crate) fn uniform(from: usize) -> Init {
    Init::Uniform(1.0 / (from as f32).sqrt())
}

/// Declares a linear layer with PyTorch's initialisation: `NAME.weight [out, in]` and `NAME.bias`.
pub(crate) fn torch_linear(declare: &mut Declare<'_>, name: &str, out: usize, from: usize) -> Affine {
    let shape = [out, from];
    let weight = declare.weight(&format!("{name}.weight"), &shape, &[0, 1], &shape, uniform(from));
    Affine { weight, bias: declare.bias(&format!("{name}.bias"), out, uniform(from)) }
}

/// Declares the same layer where the release stores it as a convolution with one tap, `[out, in, 1]`.
pub(crate) fn torch_conv(declare: &mut Declare<'_>, name: &str, out: usize, from: usize) -> Affine {
    let (weight, init) = (format!("{name}.weight"), uniform(from));
    let weight = declare.weight(&weight, &[out, from, 1], &[0, 1, 2], &[out, from], init);
    Affine { weight, bias: declare.bias(&format!("{name}.bias"), out, init) }
}

/// Declares a linear layer without bias: `NAME.weight [out, in]`.
pub(crate) fn torch_matrix(declare: &mut Declare<'_>, name: &str, out: usize, from: usize) -> ParameterId {
    let shape = [out, from];
    declare.weight(&format!("{name}.weight"), &shape, &[0, 1], &shape, uniform(from))
}

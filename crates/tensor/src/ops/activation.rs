//! Elementwise functions: GELU (tanh and erf), ReLU, leaky ReLU, tanh, sigmoid, SiLU, and those the losses need.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use std::sync::Arc;

/// An elementwise function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// GELU by its tanh approximation, as in GPT-2.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
    /// `x`, or `slope * x` below zero.
    LeakyRelu(f32),
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    /// Natural logarithm.
    Log,
    /// `e^x`.
    Exp,
    /// Square root.
    Sqrt,
    /// `max(x, least)`.
    ClampMin(f32),
    /// `x * x`.
    Square,
    /// `|x|`; its slope at 0 is 0.
    Abs,
}

impl Function {
    fn code(self) -> i32 {
        match self {
            Function::GeluTanh => 0,
            Function::GeluErf => 1,
            Function::Relu => 2,
            Function::LeakyRelu(_) => 3,
            Function::Tanh => 4,
            Function::Sigmoid => 5,
            Function::Silu => 6,
            Function::Log => 7,
            Function::Exp => 8,
            Function::Sqrt => 9,
            Function::ClampMin(_) => 10,
            Function::Square => 11,
            Function::Abs => 12,
        }
    }

    /// The function's constant: the slope of the leaky ReLU, the bound of a clamp.
    fn constant(self) -> f32 {
        match self {
            Function::LeakyRelu(number) | Function::ClampMin(number) => number,
            _ => 0.0,
        }
    }

    fn name(self, backward: bool) -> &'static str {
        match (self, backward) {
            (Function::GeluTanh, false) => "gelu_tanh",
            (Function::GeluTanh, true) => "gelu_tanh'",
            (Function::GeluErf, false) => "gelu_erf",
            (Function::GeluErf, true) => "gelu_erf'",
            (Function::Relu, false) => "relu",
            (Function::Relu, true) => "relu'",
            (Function::LeakyRelu(_), false) => "leaky_relu",
            (Function::LeakyRelu(_), true) => "leaky_relu'",
            (Function::Tanh, false) => "tanh",
            (Function::Tanh, true) => "tanh'",
            (Function::Sigmoid, false) => "sigmoid",
            (Function::Sigmoid, true) => "sigmoid'",
            (Function::Silu, false) => "silu",
            (Function::Silu, true) => "silu'",
            (Function::Log, false) => "log",
            (Function::Log, true) => "log'",
            (Function::Exp, false) => "exp",
            (Function::Exp, true) => "exp'",
            (Function::Sqrt, false) => "sqrt",
            (Function::Sqrt, true) => "sqrt'",
            (Function::ClampMin(_), false) => "clamp_min",
            (Function::ClampMin(_), true) => "clamp_min'",
            (Function::Square, false) => "square",
            (Function::Square, true) => "square'",
            (Function::Abs, false) => "abs",
            (Function::Abs, true) => "abs'",
        }
    }

    /// `f(x)`.
    #[inline(always)]
    pub fn value(self, x: f32) -> f32 {
        match self {
            Function::GeluTanh => vector::gelu_tanh(x),
            Function::GeluErf => vector::gelu_erf(x),
            // A NaN must stay NaN: `f32::max` would hide it from the finiteness check.
            Function::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Function::LeakyRelu(slope) => {
                if x >= 0.0 {
                    x
                } else {
                    slope * x
                }
            }
            Function::Tanh => vector::tanh(x),
            Function::Sigmoid => vector::sigmoid(x),
            Function::Silu => x * vector::sigmoid(x),
            Function::Log => x.ln(),
            Function::Exp => x.exp(),
            Function::Sqrt => x.sqrt(),
            // A NaN must stay NaN here too.
            Function::ClampMin(least) => {
                if x < least {
                    least
                } else {
                    x
                }
            }
            Function::Square => x * x,
            Function::Abs => x.abs(),
        }
    }

    /// `f'(x)`.
    #[inline(always)]
    pub(crate) fn slope_at(self, x: f32) -> f32 {
        match self {
            Function::GeluTanh => vector::gelu_tanh_slope(x),
            Function::GeluErf => vector::gelu_erf_slope(x),
            Function::Relu => f32::from(x > 0.0),
            Function::LeakyRelu(slope) => {
                if x >= 0.0 {
                    1.0
                } else {
                    slope
                }
            }
            Function::Tanh => {
                let y = vector::tanh(x);
                1.0 - y * y
            }
            Function::Sigmoid => {
                let s = vector::sigmoid(x);
                s * (1.0 - s)
            }
            Function::Silu => {
                let s = vector::sigmoid(x);
                s * (1.0 + x * (1.0 - s))
            }
            Function::Log => 1.0 / x,
            Function::Exp => x.exp(),
            Function::Sqrt => 0.5 / x.sqrt(),
            Function::ClampMin(least) => f32::from(x >= least),
            Function::Square => 2.0 * x,
            Function::Abs => f32::from(x > 0.0) - f32::from(x < 0.0),
        }
    }
}

/// A leaky ReLU as a type of its own, so that a loop over it does not branch on the function.
#[derive(Clone, Copy)]
struct Leaky(f32);

impl Leaky {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        Function::LeakyRelu(self.0).value(x)
    }

    #[inline(always)]
    fn slope_at(self, x: f32) -> f32 {
        Function::LeakyRelu(self.0).slope_at(x)
    }
}

/// Runs the body once for each function, with `$f` as a constant: the compiler only vectorises a loop whose
/// function it knows. It has to be a constant or a type, because the value of a variable is lost on the way through
/// the threads.
macro_rules! with_known {
    ($function:expr, $f:ident => $body:expr) => {
        with_known!($function, $f => $body; GeluTanh, GeluErf, Relu, Tanh, Sigmoid, Silu, Sqrt, Square, Abs)
    };
    ($function:expr, $f:ident => $body:expr; $($name:ident),*) => {
        match $function {
            $(Function::$name => {
                #[allow(non_upper_case_globals)]
                const $f: Function = Function::$name;
                $body
            })*
            Function::LeakyRelu(slope) => {
                let $f = Leaky(slope);
                $body
            }
            // Library calls, or rare: there is nothing to vectorise.
            $f @ (Function::Log | Function::Exp | Function::ClampMin(_)) => $body,
        }
    };
}

#[derive(Clone, Debug)]
pub(crate) struct Activation(pub(crate) Function);

impl Activation {
    /// Queues the forward kernel over `n` elements.
    pub(crate) fn launch(&self, io: &CudaIo<'_>, y: u64, x: u64, n: usize) -> Result<(), Error> {
        let name = format!("activation_forward_{}", float(io.dtype(0)).suffix());
        io.launch(
            &name,
            Launch::each(n.div_ceil(8)),
            &args![y, x, n as i64, self.0.code(), self.0.constant()],
        )
    }
}

impl Op for Activation {
    fn name(&self) -> &'static str {
        self.0.name(false)
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let x = io.f32(0);
        let y = io.take(0);
        with_known!(self.0, f => vector::map(x, y, |x| f.value(x)));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.launch(io, io.output(0), io.input(0), io.shape(0).len())
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (x, gradient) = (g.input(0), g.result_gradient());
        let target = g.target(0);
        g.push(ActivationBackward(self.0), &[x, gradient], &[target]);
    }

    fn recompute(&self, _: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        Some((Arc::new(self.clone()), node.inputs.clone()))
    }
}

#[derive(Debug)]
struct ActivationBackward(Function);

impl Op for ActivationBackward {
    fn name(&self) -> &'static str {
        self.0.name(true)
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, dy) = (io.f32(0), io.f32(1));
        let add = io.has_base(0);
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        with_known!(self.0, f => match add {
            true => vector::add_map2(x, dy, dx, |x, dy| dy * f.slope_at(x)),
            false => vector::map2(x, dy, dx, |x, dy| dy * f.slope_at(x)),
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let name = format!("activation_backward_{}", float(io.dtype(0)).suffix());
        let args = args![
            io.output(0),
            io.base(0),
            io.input(0),
            io.input(1),
            n as i64,
            self.0.code(),
            self.0.constant()
        ];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

impl Tape {
    /// Applies a function to every element.
    pub fn activation(&mut self, x: Value, function: Function) -> Value {
        let info = self.info(x);
        let spec = Spec::new(info.shape, info.dtype);
        self.push_one(Activation(function), &[x], spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A NaN turned into a number would pass the finiteness check.
    #[test]
    fn no_function_hides_a_nan() {
        use Function::{
            Abs, ClampMin, Exp, GeluErf, GeluTanh, LeakyRelu, Log, Relu, Sigmoid, Silu, Sqrt, Square, Tanh,
        };
        for function in [
            GeluTanh,
            GeluErf,
            Relu,
            LeakyRelu(0.1),
            Tanh,
            Sigmoid,
            Silu,
            Log,
            Exp,
            Sqrt,
            ClampMin(0.5),
            Square,
            Abs,
        ] {
            assert!(function.value(f32::NAN).is_nan(), "{function:?}");
        }
        assert_eq!([-2.0, 0.0, 3.0].map(|x| Relu.value(x)), [0.0, 0.0, 3.0]);
    }
}

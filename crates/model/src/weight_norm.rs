//! Weight-normalised convolutions, as used by vocoders and their discriminators: the weight is stored as a direction and a
//! length.

use crate::declare::{ConvSizes, Declare};
use myxtts_tensor::{Control, Engine, Error, Init, ParameterId, Tape, Value};
use std::sync::Arc;

/// The parameters of one weight-normalised convolution.
#[derive(Clone, Copy, Debug)]
pub struct WeightNormConv {
    length: ParameterId,
    direction: ParameterId,
    bias: ParameterId,
    /// Whether `direction` holds the plain weight.
    is_folded: bool,
}

/// Weight and bias of a convolution, ready to compute with.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// In the activation type.
    pub weight: Value,
    /// In f32.
    pub bias: Value,
}

impl WeightNormConv {
    /// Declares `NAME.parametrizations.weight.original0 [out, 1, 1]`, `…original1 [out, in, taps]` and `NAME.bias [out]`.
    /// The engine's layout of the direction is `[out, taps, in]`.
    pub fn conv1d(
        declare: &mut Declare,
        name: &str,
        ConvSizes { out, taps, from }: ConvSizes,
    ) -> WeightNormConv {
        let (there, ours) = ([out, from, taps], [out, taps, from]);
        WeightNormConv::declare(declare, name, &there, &[0, 2, 1], &ours, out)
    }

    /// Like `conv1d` where the release stores the taps as `[out, in, taps, 1]`: a 2-D convolution over the height only.
    pub(crate) fn conv2d_tall(
        declare: &mut Declare,
        name: &str,
        ConvSizes { out, taps, from }: ConvSizes,
    ) -> WeightNormConv {
        let (there, ours) = ([out, from, taps, 1], [out, taps, from]);
        WeightNormConv::declare(declare, name, &there, &[0, 2, 3, 1], &ours, out)
    }

    /// Declares a transposed convolution: `…original1 [in, out, taps]`, in the engine `[in, taps, out]`. The length is per
    /// input channel, since that is the first dimension.
    pub fn conv_transpose1d(
        declare: &mut Declare,
        name: &str,
        ConvSizes { out, taps, from }: ConvSizes,
    ) -> WeightNormConv {
        let (there, ours) = ([from, out, taps], [from, taps, out]);
        WeightNormConv::declare(declare, name, &there, &[0, 2, 1], &ours, out)
    }

    fn declare(
        declare: &mut Declare,
        name: &str,
        there: &[usize],
        order: &[usize],
        ours: &[usize],
        out: usize,
    ) -> WeightNormConv {
        let row = (ours[1] * ours[2]) as f32;
        // A uniform distribution has a third of its squared bound as variance: the initial length is about that of the
        // direction, so that the initial weight is about the direction itself.
        let bound = 1.0 / row.sqrt();
        let length = (row * bound * bound / 3.0).sqrt();
        let mut ones = vec![1; there.len()];
        ones[0] = there[0];
        let g = format!("{name}.parametrizations.weight.original0");
        let v = format!("{name}.parametrizations.weight.original1");
        WeightNormConv {
            length: declare.same(&g, &ones, Init::Constant(length), false),
            direction: declare.weight(&v, there, order, ours, Init::Uniform(bound)),
            bias: declare.bias(&format!("{name}.bias"), out, Init::Zeros),
            is_folded: false,
        }
    }

    /// Returns the plain weight and the bias.
    pub fn weights(&self, tape: &mut Tape) -> Weights {
        if self.is_folded {
            return Weights { weight: tape.parameter(self.direction), bias: tape.master(self.bias) };
        }
        let (v, g) = (tape.master(self.direction), tape.master(self.length));
        Weights { weight: tape.weight_norm(v, g), bias: tape.master(self.bias) }
    }
}

/// Computes the plain weights once and stores them in place of the directions, for networks that are no longer trained. The
/// values are those that every run would compute.
pub fn fold<'n>(
    engine: &mut Engine,
    all: impl IntoIterator<Item = &'n mut WeightNormConv>,
) -> Result<(), Error> {
    let mut all: Vec<&mut WeightNormConv> = all.into_iter().filter(|one| !one.is_folded).collect();
    let mut tape = Tape::new(Arc::clone(engine.layout()), engine.precision());
    let weights: Vec<Value> = all.iter().map(|one| one.weights(&mut tape).weight).collect();
    weights.iter().for_each(|weight| tape.keep(*weight));
    let mut program = engine.load(tape)?;
    engine.run(&mut program, &Control::default())?;
    for (one, weight) in all.iter_mut().zip(weights) {
        let numbers = engine.read(&program, weight)?;
        engine.write_parameter(one.direction, &numbers)?;
        one.is_folded = true;
    }
    Ok(())
}

impl Weights {
    /// Detaches the weights: gradients flow through the convolution, but not to its weights.
    pub fn fixed(&self, tape: &mut Tape) -> Weights {
        Weights { weight: tape.detach(self.weight), bias: tape.detach(self.bias) }
    }
}

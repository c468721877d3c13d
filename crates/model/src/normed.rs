//! A convolution whose weight is kept as a direction and a length (weight norm), as vocoders and their discriminators have it.

use crate::declare::Declare;
use myxtts_tensor::{Control, Engine, Error, Init, ParameterId, Tape, Value};
use std::sync::Arc;

/// The parameters of one such convolution.
#[derive(Clone, Copy, Debug)]
pub struct Normed {
    length: ParameterId,
    direction: ParameterId,
    bias: ParameterId,
    /// Whether the direction's place holds the plain weight.
    is_folded: bool,
}

/// What a convolution is computed with.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// In the type of activations.
    pub weight: Value,
    /// f32.
    pub bias: Value,
}

impl Normed {
    /// `NAME.parametrizations.weight.original0 [out, 1, 1]`, `…original1 [out, in, taps]` and `NAME.bias [out]`; the
    /// direction is ours as `[out, taps, in]`.
    pub fn conv1d(declare: &mut Declare, name: &str, (out, taps, from): (usize, usize, usize)) -> Normed {
        let (there, ours) = ([out, from, taps], [out, taps, from]);
        Normed::declare(declare, name, &there, &[0, 2, 1], &ours, out)
    }

    /// As `conv1d` where the release has the taps as `[out, in, taps, 1]`: over the height of a picture.
    pub fn conv2d_tall(
        declare: &mut Declare,
        name: &str,
        (out, taps, from): (usize, usize, usize),
    ) -> Normed {
        let (there, ours) = ([out, from, taps, 1], [out, taps, from]);
        Normed::declare(declare, name, &there, &[0, 2, 3, 1], &ours, out)
    }

    /// A transposed convolution: `…original1 [in, out, taps]`, ours `[in, taps, out]`. A length belongs to a channel of
    /// the input, since that is the first dimension.
    pub fn conv_transpose1d(
        declare: &mut Declare,
        name: &str,
        (from, taps, out): (usize, usize, usize),
    ) -> Normed {
        let (there, ours) = ([from, out, taps], [from, taps, out]);
        Normed::declare(declare, name, &there, &[0, 2, 1], &ours, out)
    }

    fn declare(
        declare: &mut Declare,
        name: &str,
        there: &[usize],
        order: &[usize],
        ours: &[usize],
        out: usize,
    ) -> Normed {
        let row = (ours[1] * ours[2]) as f32;
        // Uniform numbers have a third of their bound's square as variance: the length begins as about that of the
        // direction, so that the weight begins as the direction itself.
        let bound = 1.0 / row.sqrt();
        let length = (row * bound * bound / 3.0).sqrt();
        let mut ones = vec![1; there.len()];
        ones[0] = there[0];
        let g = format!("{name}.parametrizations.weight.original0");
        let v = format!("{name}.parametrizations.weight.original1");
        Normed {
            length: declare.same(&g, &ones, Init::Constant(length), false),
            direction: declare.weight(&v, there, order, ours, Init::Uniform(bound)),
            bias: declare.bias(&format!("{name}.bias"), out, Init::Zeros),
            is_folded: false,
        }
    }

    /// The weight in its plain form, and the bias.
    pub fn weights(&self, tape: &mut Tape) -> Weights {
        if self.is_folded {
            return Weights { weight: tape.parameter(self.direction), bias: tape.master(self.bias) };
        }
        let (v, g) = (tape.master(self.direction), tape.master(self.length));
        Weights { weight: tape.weight_norm(v, g), bias: tape.master(self.bias) }
    }
}

/// Computes plain weights once and keeps them in the place of the directions: for networks that learn nothing any more. The
/// numbers are those that would be computed at every run.
pub fn fold<'n>(engine: &mut Engine, all: impl IntoIterator<Item = &'n mut Normed>) -> Result<(), Error> {
    let mut all: Vec<&mut Normed> = all.into_iter().filter(|one| !one.is_folded).collect();
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
    /// The same, but not to be learned: gradients flow through the convolution and not to its weights.
    pub fn fixed(&self, tape: &mut Tape) -> Weights {
        Weights { weight: tape.detach(self.weight), bias: tape.detach(self.bias) }
    }
}

//! Declares parameters under their released names, and records how the released layout maps to the engine's. Reading
//! and writing weight files needs nothing else.

use myxtts_tensor::{GroupId, Init, Layout, LayoutBuilder, ParameterId, Role, Shape};
use rayon::prelude::*;
use std::sync::Arc;

/// A parameter as stored in a released file.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// The engine's parameter.
    pub id: ParameterId,
    /// Name in the file.
    pub name: String,
    /// Shape in the file.
    pub shape: Vec<usize>,
    /// For each dimension of the engine's tensor, outermost first, the released dimension it comes from.
    pub order: Vec<usize>,
}

impl Released {
    /// Converts values from the released layout to the engine's.
    pub fn to_ours(&self, data: &[f32]) -> Vec<f32> {
        permute(data, &self.shape, &self.order)
    }

    /// Like [`Released::to_ours`], into a buffer of the caller.
    pub fn to_ours_into(&self, data: &[f32], out: &mut [f32]) {
        permute_into(data, &self.shape, &self.order, out);
    }

    /// Converts values from the engine's layout to the released one.
    pub fn to_released(&self, data: &[f32]) -> Vec<f32> {
        let shape: Vec<usize> = self.order.iter().map(|&d| self.shape[d]).collect();
        let mut back = vec![0; self.order.len()];
        for (ours, &theirs) in self.order.iter().enumerate() {
            back[theirs] = ours;
        }
        permute(data, &shape, &back)
    }
}

/// Transposes a row-major tensor to another order of dimensions.
fn permute(data: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let mut out = vec![0.0; data.len()];
    permute_into(data, shape, order, &mut out);
    out
}

/// Number of output rows written together, so that each cache line of the source is read once for all of them.
const ROWS: usize = 16;

fn permute_into(data: &[f32], shape: &[usize], order: &[usize], out: &mut [f32]) {
    assert_eq!(data.len(), shape.iter().product::<usize>(), "the data must match the shape");
    assert_eq!(data.len(), out.len(), "the output must be as long as the input");
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    // Dimensions of size 1 do not affect the memory order.
    let dims: Vec<(usize, usize)> =
        order.iter().filter(|&&d| shape[d] != 1).map(|&d| (shape[d], strides[d])).collect();
    if data.is_empty() || dims.windows(2).all(|pair| pair[0].1 > pair[1].1) {
        out.copy_from_slice(data);
        return;
    }
    if let [(rows, 1), (columns, _)] = dims[..] {
        out.par_chunks_mut(ROWS * columns).enumerate().for_each(|(block, out)| {
            let first = block * ROWS;
            for column in 0..columns {
                let from = &data[column * rows + first..][..out.len() / columns];
                from.iter().enumerate().for_each(|(row, value)| out[row * columns + column] = *value);
            }
        });
        return;
    }
    let (_, outer) = dims[0];
    let inner = &dims[1..];
    let size: usize = inner.iter().map(|(length, _)| length).product();
    out.par_chunks_mut(size.max(1)).enumerate().for_each(|(number, out)| {
        let mut index = vec![0; inner.len()];
        let mut at = number * outer;
        for value in out {
            *value = data[at];
            for (index, &(length, stride)) in index.iter_mut().zip(inner).rev() {
                *index += 1;
                at += stride;
                if *index < length {
                    break;
                }
                at -= stride * length;
                *index = 0;
            }
        }
    });
}

/// Prefix of parameters that are trained next to a network and left out of models.
pub const TRAINING_ONLY: &str = "training.";

/// Returns whether a parameter is trained next to a network and left out of models.
pub fn is_training_only(name: &str) -> bool {
    name.starts_with(TRAINING_ONLY)
}

/// A weight and its bias.
#[derive(Clone, Copy, Debug)]
pub struct Affine {
    /// Matrix, convolution taps, or scale of a norm.
    pub weight: ParameterId,
    /// Bias, or shift of a norm.
    pub bias: ParameterId,
}

/// Sizes of the weight of a 1-D convolution. The released and the engine's layouts order them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvSizes {
    /// Output channels.
    pub out: usize,
    /// Width of the kernel.
    pub taps: usize,
    /// Input channels; of one group where there are several.
    pub from: usize,
}

/// Decides by name whether a parameter is trained; the others are frozen.
pub type TrainedFilter<'a> = &'a dyn Fn(&str) -> bool;

/// Declares the parameters of one or more networks.
pub struct Declare<'a> {
    builder: LayoutBuilder,
    decayed: GroupId,
    plain: GroupId,
    trained: TrainedFilter<'a>,
    released: Vec<Released>,
}

impl<'a> Declare<'a> {
    /// Starts an empty declaration. Weights of linear and convolution layers decay by `weight_decay`; biases, norms and
    /// embeddings never do.
    pub fn new(weight_decay: f32, trained: TrainedFilter<'a>) -> Declare<'a> {
        let mut builder = LayoutBuilder::new();
        let decayed = builder.group("weights", weight_decay, 1.0);
        let plain = builder.group("biases, norms, embeddings", 0.0, 1.0);
        Declare { builder, decayed, plain, trained, released: Vec::new() }
    }

    /// Returns the layout and the released form of each parameter.
    pub fn finish(self) -> (Arc<Layout>, Vec<Released>) {
        (Arc::new(self.builder.finish()), self.released)
    }

    fn add(
        &mut self,
        name: &str,
        released: &[usize],
        order: &[usize],
        ours: Shape,
        role: Role,
        init: Init,
    ) -> ParameterId {
        let id = self.builder.add(name, ours, role, init);
        let (name, shape, order) = (name.to_owned(), released.to_vec(), order.to_vec());
        self.released.push(Released { id, name, shape, order });
        id
    }

    fn role(&self, name: &str, group: GroupId) -> Role {
        if (self.trained)(name) { Role::Trained(group) } else { Role::Frozen }
    }

    /// Declares a parameter whose layout is the same in the release.
    pub fn same(&mut self, name: &str, shape: &[usize], init: Init, decayed: bool) -> ParameterId {
        let group = if decayed { self.decayed } else { self.plain };
        let order: Vec<usize> = (0..shape.len()).collect();
        self.add(name, shape, &order, Shape::from(shape), self.role(name, group), init)
    }

    /// Declares state that a step replaces without a gradient.
    pub fn state(&mut self, name: &str, shape: &[usize], init: Init) -> ParameterId {
        let order: Vec<usize> = (0..shape.len()).collect();
        self.add(name, shape, &order, Shape::from(shape), Role::State, init)
    }

    /// Declares a decayed weight whose released dimensions are in another order.
    pub fn weight(
        &mut self,
        name: &str,
        released: &[usize],
        order: &[usize],
        ours: &[usize],
        init: Init,
    ) -> ParameterId {
        let role = self.role(name, self.decayed);
        self.add(name, released, order, Shape::from(ours), role, init)
    }

    /// Declares a bias, which never decays.
    pub fn bias(&mut self, name: &str, len: usize, init: Init) -> ParameterId {
        self.same(name, &[len], init, false)
    }

    /// Declares `NAME.weight [out, in]` and `NAME.bias`, as PyTorch's `Linear`.
    pub fn linear(&mut self, name: &str, out: usize, from: usize, init: Init) -> Affine {
        let weight = self.weight(&format!("{name}.weight"), &[out, from], &[0, 1], &[out, from], init);
        Affine { weight, bias: self.bias(&format!("{name}.bias"), out, Init::Zeros) }
    }

    /// Declares `NAME.weight [in, out]` and `NAME.bias`, as GPT-2 stores its linear layers.
    pub(crate) fn linear_transposed(&mut self, name: &str, out: usize, from: usize, init: Init) -> Affine {
        let weight = self.weight(&format!("{name}.weight"), &[from, out], &[1, 0], &[out, from], init);
        Affine { weight, bias: self.bias(&format!("{name}.bias"), out, Init::Zeros) }
    }

    /// Declares `NAME.weight [out, in, 1]` and `NAME.bias`: a convolution with one tap, used as a linear layer.
    pub(crate) fn linear_of_conv(&mut self, name: &str, out: usize, from: usize, init: Init) -> Affine {
        let weight = self.weight(&format!("{name}.weight"), &[out, from, 1], &[0, 2, 1], &[out, from], init);
        Affine { weight, bias: self.bias(&format!("{name}.bias"), out, Init::Zeros) }
    }

    /// Declares `NAME.weight [out, in, taps]` and `NAME.bias`; the engine's layout is `[out, taps, in]`.
    pub fn conv1d(&mut self, name: &str, sizes: ConvSizes, init: Init) -> Affine {
        let ConvSizes { out, taps, from } = sizes;
        let (there, ours) = ([out, from, taps], [out, taps, from]);
        let weight = self.weight(&format!("{name}.weight"), &there, &[0, 2, 1], &ours, init);
        Affine { weight, bias: self.bias(&format!("{name}.bias"), out, Init::Zeros) }
    }

    /// Declares `NAME.weight` (ones) and `NAME.bias` (zeros) of a norm.
    pub fn norm(&mut self, name: &str, channels: usize) -> Affine {
        Affine {
            weight: self.same(&format!("{name}.weight"), &[channels], Init::Constant(1.0), false),
            bias: self.bias(&format!("{name}.bias"), channels, Init::Zeros),
        }
    }

    /// Declares `NAME.weight [rows, channels]` of an embedding, which never decays.
    pub fn table(&mut self, name: &str, rows: usize, channels: usize, init: Init) -> ParameterId {
        self.same(&format!("{name}.weight"), &[rows, channels], init, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: looks up each output element separately.
    fn permute_reference(data: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
        let index = |mut at: usize, shape: &[usize]| {
            let mut index = vec![0; shape.len()];
            for d in (0..shape.len()).rev() {
                (index[d], at) = (at % shape[d], at / shape[d]);
            }
            index
        };
        let ours: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
        let from = |at: usize| {
            let mut there = vec![0; shape.len()];
            order.iter().zip(index(at, &ours)).for_each(|(&d, i)| there[d] = i);
            there.iter().zip(shape).fold(0, |at, (i, length)| at * length + i)
        };
        (0..data.len()).map(|at| data[from(at)]).collect()
    }

    #[test]
    fn permutations_match_their_definition() {
        let orders: [&[usize]; 9] = [
            &[0, 1],
            &[1, 0],
            &[0, 1, 2],
            &[0, 2, 1],
            &[1, 0, 2],
            &[1, 2, 0],
            &[2, 0, 1],
            &[2, 1, 0],
            &[3, 1, 0, 2],
        ];
        for order in orders {
            for sizes in [[5, 3, 4, 2], [1, 37, 18, 3], [33, 1, 2, 1], [17, 40, 1, 1], [2, 0, 3, 4]] {
                let shape = &sizes[..order.len()];
                let data: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
                assert_eq!(
                    permute(&data, shape, order),
                    permute_reference(&data, shape, order),
                    "{shape:?} as {order:?}"
                );
            }
        }
    }

    #[test]
    fn conversion_to_our_layout_and_back_is_lossless() {
        let mut declare = Declare::new(0.01, &|_| true);
        declare.conv1d("c", ConvSizes { out: 2, taps: 3, from: 4 }, Init::Zeros);
        let (_, released) = declare.finish();
        let data: Vec<f32> = (0..24u8).map(f32::from).collect();
        let ours = released[0].to_ours(&data);
        // [out 0, tap 0, in 0..4] are three elements apart in the released layout.
        assert_eq!(ours[..4], [0.0, 3.0, 6.0, 9.0]);
        assert_eq!(released[0].to_released(&ours), data);
    }
}

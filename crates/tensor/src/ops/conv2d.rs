//! Convolution over height and width: spectrogram encoders, discriminators.

use super::convolution::{ConvolutionKind, Fused, convolve};
use super::geometry::{Geometry, output_positions};
use crate::tape::{Tape, Value};

impl Tape {
    /// Convolution over height and width; stride and padding are (height, width).
    ///
    /// | | shape | type |
    /// |---|---|---|
    /// | x | `[batch, height, width, in]` | activations |
    /// | weight | `[out, kernel height, kernel width, in]` | activations (`Tape::parameter`), its gradient f32 |
    /// | bias | `[out]` | f32 (`Tape::master`) |
    /// | output | `[batch, height', width', out]` | activations |
    pub fn conv2d(
        &mut self,
        x: Value,
        weight: Value,
        bias: Option<Value>,
        stride: (usize, usize),
        padding: (usize, usize),
    ) -> Value {
        let (shape, w) = (self.shape(x), self.shape(weight));
        assert_eq!(
            (shape.rank(), w.rank()),
            (4, 4),
            "x {shape} and the weight {w} must have four dimensions"
        );
        assert_eq!(shape.last(), w.last(), "x {shape} and the weight {w} do not match");
        let height = output_positions(shape.dim(1), w.dim(1), stride.0, padding.0, 1);
        let width = output_positions(shape.dim(2), w.dim(2), stride.1, padding.1, 1);
        let geometry = Geometry {
            batch: shape.dim(0),
            input: [shape.dim(1), shape.dim(2)],
            output: [height, width],
            channels: shape.last(),
            filters: w.dim(0),
            kernel: [w.dim(1), w.dim(2)],
            stride: [stride.0, stride.1],
            padding: [padding.0, padding.1],
            dilation: [1, 1],
            groups: 1,
        };
        let out = [shape.dim(0), height, width, w.dim(0)];
        convolve(self, ConvolutionKind::Conv2d, geometry, out.into(), (x, weight), Fused::bias(bias))
    }
}

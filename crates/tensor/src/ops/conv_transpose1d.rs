//! Transposed convolution over time, the upsampling of a vocoder.

use super::convolution::{ConvolutionKind, Fused, convolve};
use super::geometry::Geometry;
use crate::tape::{Tape, Value};

impl Tape {
    /// Transposed convolution over time.
    ///
    /// | | shape | type |
    /// |---|---|---|
    /// | x | `[batch, time, in]` | activations |
    /// | weight | `[in, taps, out]` | activations (`Tape::parameter`), its gradient f32 |
    /// | bias | `[out]` | f32 (`Tape::master`) |
    /// | output | `[batch, (time - 1) * stride + taps - 2 * padding, out]` | activations |
    pub fn conv_transpose1d(
        &mut self,
        x: Value,
        weight: Value,
        bias: Option<Value>,
        stride: usize,
        padding: usize,
    ) -> Value {
        self.conv_transpose1d_fused(x, weight, Fused::bias(bias), stride, padding)
    }

    /// Transposed convolution with fused operations: see [`Fused`].
    pub fn conv_transpose1d_fused(
        &mut self,
        x: Value,
        weight: Value,
        fused: Fused,
        stride: usize,
        padding: usize,
    ) -> Value {
        let (shape, w) = (self.shape(x), self.shape(weight));
        assert_eq!(
            (shape.rank(), w.rank()),
            (3, 3),
            "x {shape} and the weight {w} must have three dimensions"
        );
        assert_eq!(shape.last(), w.dim(0), "x {shape} and the weight {w} do not match");
        let (batch, time, taps, channels) = (shape.dim(0), shape.dim(1), w.dim(1), w.last());
        let full_length = (time - 1) * stride + taps;
        assert!(full_length > 2 * padding, "a padding of {padding} leaves nothing of {full_length} samples");
        let grown = full_length - 2 * padding;
        // Described as the convolution from the upsampled signal to x.
        let geometry = Geometry {
            batch,
            input: [grown, 1],
            output: [time, 1],
            channels,
            filters: shape.last(),
            kernel: [taps, 1],
            stride: [stride, 1],
            padding: [padding, 0],
            dilation: [1, 1],
            groups: 1,
        };
        convolve(
            self,
            ConvolutionKind::Transposed,
            geometry,
            [batch, grown, channels].into(),
            (x, weight),
            fused,
        )
    }
}

//! Convolution over time.

pub use super::convolution::Fused;

use super::convolution::{ConvolutionKind, convolve};
use super::geometry::{Geometry, output_positions};
use crate::tape::{Tape, Value};

/// Parameters of a convolution over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    /// Time steps between consecutive outputs.
    pub stride: usize,
    /// Zeros before and after the input.
    pub padding: usize,
    /// Time steps between consecutive taps.
    pub dilation: usize,
    /// Number of groups the channels are split into; an output reads one group.
    pub groups: usize,
}

impl Default for Conv1d {
    fn default() -> Conv1d {
        Conv1d { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

impl Conv1d {
    /// A stride of 1 that keeps the length, for an odd number of taps.
    pub fn same(taps: usize, dilation: usize) -> Conv1d {
        assert!(taps % 2 == 1, "an even number of taps ({taps}) cannot keep the length");
        Conv1d { padding: (taps - 1) / 2 * dilation, dilation, ..Conv1d::default() }
    }

    /// Length of the output.
    pub fn length(&self, time: usize, taps: usize) -> usize {
        output_positions(time, taps, self.stride, self.padding, self.dilation)
    }
}

impl Tape {
    /// Convolution over time.
    ///
    /// | | shape | type |
    /// |---|---|---|
    /// | x | `[batch, time, in]` | activations |
    /// | weight | `[out, taps, in / groups]` | activations (`Tape::parameter`), its gradient f32 |
    /// | bias | `[out]` | f32 (`Tape::master`) |
    /// | output | `[batch, time', out]` | activations |
    pub fn conv1d(&mut self, x: Value, weight: Value, bias: Option<Value>, conv: Conv1d) -> Value {
        self.conv1d_fused(x, weight, Fused::bias(bias), conv)
    }

    /// Convolution over time with fused operations: see [`Fused`]. Runs as one kernel if there is one for the
    /// shape.
    pub fn conv1d_fused(&mut self, x: Value, weight: Value, fused: Fused, conv: Conv1d) -> Value {
        let (shape, w) = (self.shape(x), self.shape(weight));
        assert_eq!(
            (shape.rank(), w.rank()),
            (3, 3),
            "x {shape} and the weight {w} must have three dimensions"
        );
        let (channels, filters, taps, groups) = (shape.last(), w.dim(0), w.dim(1), conv.groups);
        assert!(
            groups > 0 && channels.is_multiple_of(groups) && filters.is_multiple_of(groups),
            "{channels} input and {filters} output channels are not divisible into {groups} groups"
        );
        assert_eq!(
            channels / groups,
            w.last(),
            "x {shape} and the weight {w} do not match in {groups} groups"
        );
        let (batch, time) = (shape.dim(0), conv.length(shape.dim(1), taps));
        let geometry = Geometry {
            batch,
            input: [shape.dim(1), 1],
            output: [time, 1],
            channels,
            filters,
            kernel: [taps, 1],
            stride: [conv.stride, 1],
            padding: [conv.padding, 0],
            dilation: [conv.dilation, 1],
            groups,
        };
        convolve(self, ConvolutionKind::Conv1d, geometry, [batch, time, filters].into(), (x, weight), fused)
    }
}

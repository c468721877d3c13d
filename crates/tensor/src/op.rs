//! The operation trait: CPU code, CUDA launches and gradients. Each operation has its own file in `ops/`.

use crate::error::Error;
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Node, Value};
use std::fmt::Debug;
use std::sync::Arc;

pub use crate::cuda::launch::CudaIo;

/// An operation on the tape.
pub trait Op: Debug + Send + Sync {
    /// Name in profiles and in the test suite, which must have a case for every name.
    fn name(&self) -> &'static str;

    /// Runs on the CPU.
    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error>;

    /// Queues its kernels on the stream. Must not allocate, synchronise or query the device, because it runs during
    /// graph capture.
    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error>;

    /// Adds the operations that compute the gradients of its inputs.
    fn backward(&self, gradients: &mut Gradients<'_>) {
        let _ = gradients;
        panic!("{} has no gradient: it must not be on the path from a parameter to the loss", self.name());
    }

    /// Whether it sums over replicas, and therefore waits for other devices.
    fn is_reduction(&self) -> bool {
        false
    }

    /// Whether it runs long enough on the device to justify the side stream.
    fn is_long(&self) -> bool {
        true
    }

    /// Whether it is a norm, for `Recompute::Norms`.
    fn is_norm(&self) -> bool {
        false
    }

    /// Returns an operation with its inputs that recomputes output `which` in about one pass over memory from
    /// values that are kept anyway, or `None` where recomputing does not pay.
    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let _ = (which, node);
        None
    }
}

/// A tensor as seen by CPU code.
pub(crate) enum Slice<'a> {
    F32(&'a [f32]),
    I32(&'a [i32]),
}

pub(crate) enum SliceMut<'a> {
    F32 { data: &'a mut [f32], has_base: bool },
    I32(&'a mut [i32]),
    Taken,
}

/// Inputs and outputs of an operation on the CPU.
pub struct CpuIo<'a> {
    pub(crate) inputs: Vec<Slice<'a>>,
    pub(crate) outputs: Vec<SliceMut<'a>>,
    pub(crate) input_shapes: Vec<Shape>,
    pub(crate) output_shapes: Vec<Shape>,
    pub(crate) collective: Option<&'a dyn crate::collective::Collective>,
}

impl<'a> CpuIo<'a> {
    /// The `i`-th input as f32.
    pub fn f32(&self, i: usize) -> &'a [f32] {
        match self.inputs[i] {
            Slice::F32(data) => data,
            Slice::I32(_) => panic!("input {i} holds integers"),
        }
    }

    /// The `i`-th input as i32.
    pub fn i32(&self, i: usize) -> &'a [i32] {
        match self.inputs[i] {
            Slice::I32(data) => data,
            Slice::F32(_) => panic!("input {i} holds floats"),
        }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The shape of the `i`-th input.
    pub fn shape(&self, i: usize) -> Shape {
        self.input_shapes[i]
    }

    /// The shape of the `j`-th output.
    pub fn output_shape(&self, j: usize) -> Shape {
        self.output_shapes[j]
    }

    /// The `j`-th output, to be overwritten. Each output can be taken once; it must not have a base.
    pub fn take(&mut self, j: usize) -> &'a mut [f32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::F32 { data, has_base } => {
                assert!(!has_base, "output {j} has a base: use `accumulate`");
                data
            }
            _ => panic!("output {j} was already taken, or holds integers"),
        }
    }

    /// The `j`-th output, initialised with its base or with zeros, to be added to.
    pub fn accumulate(&mut self, j: usize) -> &'a mut [f32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::F32 { data, has_base } => {
                if !has_base {
                    data.fill(0.0);
                }
                data
            }
            _ => panic!("output {j} was already taken, or holds integers"),
        }
    }

    /// Whether the `j`-th output starts from a base.
    pub fn has_base(&self, j: usize) -> bool {
        matches!(self.outputs[j], SliceMut::F32 { has_base: true, .. })
    }

    /// The `j`-th output as i32.
    pub fn take_i32(&mut self, j: usize) -> &'a mut [i32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::I32(data) => data,
            _ => panic!("output {j} was already taken, or holds floats"),
        }
    }
}

/// Asserts that an element type is f32 or bf16, and returns it.
pub(crate) fn float(dtype: DType) -> DType {
    assert!(dtype != DType::I32, "expected floats, found integers");
    dtype
}

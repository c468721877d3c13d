//! What an operation is: CPU code, a CUDA launch, and its gradients. One file in `ops/` each.

use crate::error::Error;
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Node, Value};
use std::fmt::Debug;
use std::sync::Arc;

pub use crate::cuda::launch::CudaIo;

/// An operation on the tape.
pub trait Op: Debug + Send + Sync {
    /// Its name in profiles and in the test suite that holds a case for each.
    fn name(&self) -> &'static str;

    /// Runs on the CPU.
    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error>;

    /// Queues its kernels on the stream. Must not allocate, synchronise or ask the device anything: it is captured.
    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error>;

    /// Adds the operations that make the gradients of its inputs.
    fn backward(&self, gradients: &mut Gradients<'_>) {
        let _ = gradients;
        panic!("{} has no gradient: it must not stand between a parameter and the loss", self.name());
    }

    /// Whether it sums over replicas, and so waits for other devices.
    fn is_reduction(&self) -> bool {
        false
    }

    /// Whether it is long enough on the device to be worth a stream of its own.
    fn is_long(&self) -> bool {
        true
    }

    /// Whether it is a norm, for `Recompute::Norms`.
    fn is_norm(&self) -> bool {
        false
    }

    /// An operation and its inputs that make result `which` again in about one pass over memory, from values that are
    /// kept anyway; none where that would not pay.
    fn remake(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let _ = (which, node);
        None
    }
}

/// One tensor as CPU code sees it.
pub(crate) enum Slice<'a> {
    F32(&'a [f32]),
    I32(&'a [i32]),
}

pub(crate) enum SliceMut<'a> {
    F32 { data: &'a mut [f32], based: bool },
    I32(&'a mut [i32]),
    Taken,
}

/// What an operation reads and writes on the CPU.
pub struct CpuIo<'a> {
    pub(crate) inputs: Vec<Slice<'a>>,
    pub(crate) outputs: Vec<SliceMut<'a>>,
    pub(crate) input_shapes: Vec<Shape>,
    pub(crate) output_shapes: Vec<Shape>,
    pub(crate) collective: Option<&'a dyn crate::collective::Collective>,
}

impl<'a> CpuIo<'a> {
    /// The `i`-th input as floats.
    pub fn f32(&self, i: usize) -> &'a [f32] {
        match self.inputs[i] {
            Slice::F32(data) => data,
            Slice::I32(_) => panic!("input {i} holds integers"),
        }
    }

    /// The `i`-th input as integers.
    pub fn i32(&self, i: usize) -> &'a [i32] {
        match self.inputs[i] {
            Slice::I32(data) => data,
            Slice::F32(_) => panic!("input {i} holds floats"),
        }
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The shape of the `i`-th input.
    pub fn shape(&self, i: usize) -> Shape {
        self.input_shapes[i]
    }

    /// The shape of the `j`-th result.
    pub fn output_shape(&self, j: usize) -> Shape {
        self.output_shapes[j]
    }

    /// The `j`-th result, to be overwritten; each can be taken once. For results that never have a base.
    pub fn take(&mut self, j: usize) -> &'a mut [f32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::F32 { data, based } => {
                assert!(!based, "result {j} has a base: accumulate into it");
                data
            }
            _ => panic!("result {j} was taken before, or holds integers"),
        }
    }

    /// The `j`-th result, holding its base or zeros, to be added to.
    pub fn accumulate(&mut self, j: usize) -> &'a mut [f32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::F32 { data, based } => {
                if !based {
                    data.fill(0.0);
                }
                data
            }
            _ => panic!("result {j} was taken before, or holds integers"),
        }
    }

    /// Whether the `j`-th result starts from a base.
    pub fn based(&self, j: usize) -> bool {
        matches!(self.outputs[j], SliceMut::F32 { based: true, .. })
    }

    /// The `j`-th result as integers.
    pub fn take_i32(&mut self, j: usize) -> &'a mut [i32] {
        match std::mem::replace(&mut self.outputs[j], SliceMut::Taken) {
            SliceMut::I32(data) => data,
            _ => panic!("result {j} was taken before, or holds floats"),
        }
    }
}

/// The element type of a tensor that must be f32 or bf16.
pub(crate) fn float(dtype: DType) -> DType {
    assert!(dtype != DType::I32, "floats are expected here, not integers");
    dtype
}

//! How an operation queues its kernels.

use super::context::{Cuda, StreamKind};
use super::gemm::{Gemm, Operands};
use crate::error::Error;
use crate::shape::{DType, Shape};
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// A tensor as seen by a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub address: u64,
    pub shape: Shape,
    pub dtype: DType,
}

/// Inputs and outputs of an operation on the device.
pub struct CudaIo<'a> {
    pub(crate) cuda: &'a Cuda,
    pub(crate) stream_kind: StreamKind,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) bases: Vec<u64>,
    pub(crate) collective: Option<&'a super::nccl::Communicator>,
    /// Without a communicator: the other replicas on the same GPU.
    pub(crate) host_collective: Option<&'a dyn crate::collective::Collective>,
}

/// Grid, block and shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Blocks per dimension.
    pub grid: (u32, u32, u32),
    /// Threads per block and dimension.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory in bytes.
    pub shared: u32,
}

impl Launch {
    /// A one-dimensional grid of blocks with the given number of threads.
    pub fn line(blocks: usize, threads: u32) -> Launch {
        Launch { grid: (blocks.max(1) as u32, 1, 1), block: (threads, 1, 1), shared: 0 }
    }

    /// One thread for each of `n` work items, 256 per block.
    pub fn each(n: usize) -> Launch {
        Launch::line(n.div_ceil(256), 256)
    }

    /// A three-dimensional grid of one-dimensional blocks.
    pub fn grid(x: usize, y: usize, z: usize, threads: u32) -> Launch {
        Launch { grid: (x as u32, y as u32, z as u32), block: (threads, 1, 1), shared: 0 }
    }

    /// Sets the dynamic shared memory in bytes.
    pub fn shared(self, bytes: usize) -> Launch {
        Launch { shared: bytes as u32, ..self }
    }
}

/// One kernel argument, passed by the address of its bytes: a number, an address, or a small struct.
#[derive(Clone, Copy, Debug)]
pub struct Arg([u64; ARG_WORDS]);

/// Size of the largest argument in 64-bit words.
const ARG_WORDS: usize = 11;

impl Arg {
    fn word(word: u64) -> Arg {
        Arg::words(&[word])
    }

    /// A struct passed by value, as 64-bit words in the kernel's layout.
    pub fn words(value: &[u64]) -> Arg {
        let mut words = [0; ARG_WORDS];
        words[..value.len()].copy_from_slice(value);
        Arg(words)
    }

    /// A struct passed by value; its layout (`repr(C)`) must be the kernel's.
    pub fn from_pod<S: bytemuck::Pod>(value: &S) -> Arg {
        let mut words = [0; ARG_WORDS];
        bytemuck::cast_slice_mut(&mut words)[..size_of::<S>()].copy_from_slice(bytemuck::bytes_of(value));
        Arg(words)
    }
}

impl From<u64> for Arg {
    fn from(address: u64) -> Arg {
        Arg::word(address)
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::word(value as u64)
    }
}

/// Kernels take sizes as `int`.
impl From<usize> for Arg {
    fn from(size: usize) -> Arg {
        let size =
            i32::try_from(size).unwrap_or_else(|_| panic!("a size of {size} does not fit a kernel's int"));
        Arg::from(size)
    }
}

impl From<i32> for Arg {
    fn from(value: i32) -> Arg {
        Arg::word(u64::from(value as u32))
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Arg {
        Arg::word(u64::from(value))
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Arg {
        Arg::word(u64::from(value.to_bits()))
    }
}

/// The arguments of a kernel, in order.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { [$($crate::cuda::launch::Arg::from($arg)),*] };
}

impl CudaIo<'_> {
    /// The address of the `i`-th input.
    pub fn input(&self, i: usize) -> u64 {
        self.inputs[i].address
    }

    /// The address of the `j`-th output.
    pub fn output(&self, j: usize) -> u64 {
        self.outputs[j].address
    }

    /// The address of the `j`-th output's base; 0 if there is none.
    pub fn base(&self, j: usize) -> u64 {
        self.bases[j]
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The shape of the `i`-th input.
    pub fn shape(&self, i: usize) -> Shape {
        self.inputs[i].shape
    }

    /// The shape of the `j`-th output.
    pub fn output_shape(&self, j: usize) -> Shape {
        self.outputs[j].shape
    }

    /// The element type of the `i`-th input.
    pub fn dtype(&self, i: usize) -> DType {
        self.inputs[i].dtype
    }

    /// The element type of the `j`-th output.
    pub fn output_dtype(&self, j: usize) -> DType {
        self.outputs[j].dtype
    }

    /// Number of streaming multiprocessors of the device.
    pub fn multiprocessors(&self) -> usize {
        self.cuda.multiprocessors() as usize
    }

    /// The stream, for library calls.
    pub fn stream(&self) -> sys::CUstream {
        self.cuda.stream_of(self.stream_kind)
    }

    /// Queues a kernel.
    pub fn launch(&self, kernel: &str, launch: Launch, args: &[Arg]) -> Result<(), Error> {
        self.launch_with(kernel, launch, args, &[])
    }

    /// Queues a kernel whose last argument is a table passed by value.
    pub fn launch_with(
        &self,
        kernel: &str,
        launch: Launch,
        args: &[Arg],
        table: &[u64],
    ) -> Result<(), Error> {
        let function = self.cuda.function(kernel)?;
        if launch.shared > 16 << 10 {
            self.cuda.allow_shared(function, launch.shared)?;
        }
        let mut pointers: Vec<*mut c_void> =
            args.iter().map(|arg| std::ptr::from_ref(&arg.0).cast_mut().cast()).collect();
        if !table.is_empty() {
            pointers.push(table.as_ptr().cast_mut().cast());
        }
        // SAFETY: the arguments live through the call, which copies them. That they match the kernel's signature is
        // the caller's responsibility, checked by the suite that runs every operation on every shape class.
        unsafe { self.launch_raw(function, launch, &mut pointers) }
            .map_err(|e| Error::driver(format!("launch {kernel} with {launch:?}"), e))
    }

    /// # Safety
    /// The pointers must match the kernel's parameters.
    unsafe fn launch_raw(
        &self,
        function: sys::CUfunction,
        launch: Launch,
        pointers: &mut [*mut c_void],
    ) -> Result<(), result::DriverError> {
        let (mut early, mut attributes) = (early_launch(), 0);
        if self.cuda.launches_early() {
            attributes = 1;
        }
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid.0,
            gridDimY: launch.grid.1,
            gridDimZ: launch.grid.2,
            blockDimX: launch.block.0,
            blockDimY: launch.block.1,
            blockDimZ: launch.block.2,
            sharedMemBytes: launch.shared,
            hStream: self.stream(),
            attrs: &mut early,
            numAttrs: attributes,
        };
        // SAFETY: guaranteed by the caller; configuration and attribute live through the call.
        unsafe { sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
    }

    /// Queues a matrix product; see [`Gemm`]. A new shape is timed first, unless a step is being captured.
    pub fn gemm(&self, gemm: &Gemm, operands: &Operands) -> Result<(), Error> {
        self.cuda.gemm(gemm, operands, self.stream_kind)
    }
}

/// Programmatic dependent launch: a kernel starts while the previous one finishes; its blocks become resident and
/// wait in `enter` of the kernel prelude. Saves about a microsecond between two kernels.
fn early_launch() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

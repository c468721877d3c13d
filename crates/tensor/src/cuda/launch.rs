//! How an operation queues its kernels.

use super::context::{Cuda, Side};
use super::gemm::{Gemm, Operands};
use crate::error::Error;
use crate::shape::{DType, Shape};
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// One tensor as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub address: u64,
    pub shape: Shape,
    pub dtype: DType,
}

/// What an operation reads and writes on the device.
pub struct CudaIo<'a> {
    pub(crate) cuda: &'a Cuda,
    pub(crate) side: Side,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) bases: Vec<u64>,
    pub(crate) collective: Option<&'a super::nccl::Communicator>,
}

/// Blocks, threads and shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Blocks.
    pub grid: (u32, u32, u32),
    /// Threads of a block.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory in bytes.
    pub shared: u32,
}

impl Launch {
    /// A line of blocks of `threads`.
    pub fn line(blocks: usize, threads: u32) -> Launch {
        Launch { grid: (blocks.max(1) as u32, 1, 1), block: (threads, 1, 1), shared: 0 }
    }

    /// One thread for each of `n` pieces of work, 256 to a block.
    pub fn each(n: usize) -> Launch {
        Launch::line(n.div_ceil(256), 256)
    }

    /// A grid of blocks.
    pub fn grid(x: usize, y: usize, z: usize, threads: u32) -> Launch {
        Launch { grid: (x as u32, y as u32, z as u32), block: (threads, 1, 1), shared: 0 }
    }

    /// With dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Launch {
        Launch { shared: bytes as u32, ..self }
    }
}

/// One argument of a kernel, passed by the address of its bytes: a number, an address, or a small struct of words.
#[derive(Clone, Copy, Debug)]
pub struct Arg([u64; ARG_WORDS]);

/// Words of the largest argument there is.
const ARG_WORDS: usize = 11;

impl Arg {
    fn word(word: u64) -> Arg {
        Arg::words(&[word])
    }

    /// A struct by value, as the kernel lays it out.
    pub fn words(given: &[u64]) -> Arg {
        let mut words = [0; ARG_WORDS];
        words[..given.len()].copy_from_slice(given);
        Arg(words)
    }

    /// A struct by value, whose layout (`repr(C)`) is the kernel's.
    pub fn of<S: bytemuck::Pod>(given: &S) -> Arg {
        let mut words = [0; ARG_WORDS];
        bytemuck::cast_slice_mut(&mut words)[..size_of::<S>()].copy_from_slice(bytemuck::bytes_of(given));
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

    /// The address of the `j`-th result.
    pub fn output(&self, j: usize) -> u64 {
        self.outputs[j].address
    }

    /// The address of what is added to the `j`-th result; 0 if nothing is.
    pub fn base(&self, j: usize) -> u64 {
        self.bases[j]
    }

    /// How many results there are.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The shape of the `i`-th input.
    pub fn shape(&self, i: usize) -> Shape {
        self.inputs[i].shape
    }

    /// The shape of the `j`-th result.
    pub fn output_shape(&self, j: usize) -> Shape {
        self.outputs[j].shape
    }

    /// The element type of the `i`-th input.
    pub fn dtype(&self, i: usize) -> DType {
        self.inputs[i].dtype
    }

    /// The element type of the `j`-th result.
    pub fn output_dtype(&self, j: usize) -> DType {
        self.outputs[j].dtype
    }

    /// The device's streaming multiprocessors.
    pub fn processors(&self) -> usize {
        self.cuda.processors() as usize
    }

    /// The stream, for libraries.
    pub fn stream(&self) -> sys::CUstream {
        self.cuda.stream_of(self.side)
    }

    /// Queues a kernel.
    pub fn launch(&self, kernel: &str, launch: Launch, args: &[Arg]) -> Result<(), Error> {
        self.launch_with(kernel, launch, args, &[])
    }

    /// Queues a kernel whose last argument is a table, by value.
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
        // SAFETY: the arguments live through the call, which copies them; that they are what the kernel takes is the
        // caller's contract, checked by the suite that runs every operation on every shape class.
        unsafe { self.launch_raw(function, launch, &mut pointers) }
            .map_err(|e| Error::driver(format!("launch {kernel} with {launch:?}"), e))
    }

    /// # Safety
    /// The pointers are to what the kernel takes.
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
        // SAFETY: the caller's; configuration and attribute live through the call.
        unsafe { sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
    }

    /// Queues a matrix product; see [`Gemm`]. An unseen shape is timed first, unless a step is being recorded.
    pub fn gemm(&self, gemm: &Gemm, operands: &Operands) -> Result<(), Error> {
        self.cuda.gemm(gemm, operands, self.side)
    }
}

/// Lets a kernel start while the one before it ends: its blocks take their places and wait, all in `enter` of the
/// kernels' prelude. About a microsecond is saved between two kernels.
fn early_launch() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

//! One CUDA device as the engine uses it: its context, a compute stream, the compiled kernels and the matrix library.

use super::cache::{KernelCache, cache_folder};
use super::compile::Arch;
use super::gemm::{Element, Gemm, GemmEngine, GemmTable, Lt, Operands};
use super::library::{Library, require};
use super::memory::DeviceMemory;
use crate::error::Error;
use crate::kernels;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What cuBLASLt may use for its own purposes, for each stream.
const WORKSPACE: usize = 32 << 20;
/// Bytes the libraries hold beside the plan, on every device.
pub const LIBRARY_BYTES: usize = 2 * WORKSPACE;

/// Events of a kind; they are used in turn, and none is used again before what waits for it was queued.
const MARKS: usize = 64;

/// Which of the device's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one everything is ordered by.
    Main,
    /// The one for what can run beside it.
    Beside,
}

/// An open device.
pub struct Cuda {
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    processors: u32,
    context: sys::CUcontext,
    stream: sys::CUstream,
    beside: sys::CUstream,
    /// Marks the main stream where the other one may start, and the other one after each of its operations.
    marks: [Vec<sys::CUevent>; 2],
    modules: Vec<sys::CUmodule>,
    functions: Mutex<HashMap<String, sys::CUfunction>>,
    large: Mutex<HashMap<usize, u32>>,
    gemm: GemmEngine,
    /// The same for the second stream: the library's workspace must not be shared by products that run together.
    gemm_beside: GemmEngine,
    /// Products whose fastest algorithm was looked for.
    tuned: Mutex<std::collections::HashSet<Gemm>>,
    _workspaces: [DeviceMemory; 2],
    /// Whether f32 products may round their operands to TF32.
    tf32: bool,
    early: bool,
    warnings: Mutex<Vec<String>>,
}

// The handles are used by one thread at a time or are thread-safe by the driver's word; `bind` makes the context current.
unsafe impl Send for Cuda {}
unsafe impl Sync for Cuda {}

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Where compiled kernels and chosen algorithms are kept; the user's cache folder if not said.
    pub cache: Option<PathBuf>,
    /// Round f32 products to TF32.
    pub tf32: bool,
    /// Start a kernel only when the one before it is over, where the device could do it earlier (Hopper and later).
    pub late_launch: bool,
}

impl Cuda {
    /// Opens device `ordinal` of those the driver shows.
    pub fn open(ordinal: usize, options: &CudaOptions) -> Result<Cuda, Error> {
        for library in [Library::Driver, Library::Nvrtc, Library::CublasLt] {
            require(library)?;
        }
        result::init().map_err(|e| Error::driver("start", e))?;
        let device = result::device::get(ordinal as i32)
            .map_err(|e| Error::driver(format!("find the device cuda:{ordinal}"), e))?;
        let name = result::device::get_name(device).map_err(|e| Error::driver("name the device", e))?;
        use sys::CUdevice_attribute as A;
        let attribute = |which| {
            // SAFETY: `device` was given by the driver.
            unsafe { result::device::get_attribute(device, which) }
                .map(|v| v as u32)
                .map_err(|e| Error::driver("describe the device", e))
        };
        let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let processors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        // SAFETY: `device` is valid; the primary context is retained until `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|e| Error::driver(format!("open cuda:{ordinal}"), e))?;
        // SAFETY: `context` was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(|e| Error::driver("use the device", e))?;
        let arch = Arch::for_device(major, minor)?;
        let cache = match &options.cache {
            Some(folder) => KernelCache::at(folder.join("kernels")),
            None => KernelCache::of_user(),
        };
        let modules = load(&cache, arch)?;
        let workspaces = [DeviceMemory::new(WORKSPACE)?, DeviceMemory::new(WORKSPACE)?];
        let lt = Arc::new(Lt::find()?);
        let table = match options.cache.clone().or_else(cache_folder) {
            Some(folder) => GemmTable::open(&folder.join("gemm"), &name, lt.version()),
            None => GemmTable::in_memory(),
        };
        let table = Arc::new(table);
        // SAFETY: the workspaces live as long as the engines that use them.
        let [gemm, gemm_beside] = [&workspaces[0], &workspaces[1]]
            .map(|w| unsafe { GemmEngine::new(Arc::clone(&lt), Arc::clone(&table), w.address(), WORKSPACE) });
        let (gemm, gemm_beside) = (gemm?, gemm_beside?);
        let stream = || {
            result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(|e| Error::driver("make a stream", e))
        };
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = |_| result::event::create(flags).map_err(|e| Error::driver("make an event", e));
        let events = || (0..MARKS).map(event).collect::<Result<Vec<_>, _>>();
        Ok(Cuda {
            ordinal,
            name,
            capability: (major, minor),
            processors,
            context,
            stream: stream()?,
            beside: stream()?,
            marks: [events()?, events()?],
            modules,
            functions: Mutex::new(HashMap::new()),
            large: Mutex::new(HashMap::new()),
            gemm,
            gemm_beside,
            tuned: Mutex::new(std::collections::HashSet::new()),
            _workspaces: workspaces,
            tf32: options.tf32,
            early: major >= 9 && !options.late_launch,
            warnings: Mutex::new(
                cache.take_warning().map(|warning| warning.to_string()).into_iter().collect(),
            ),
        })
    }

    /// Which of the driver's devices this is.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Streaming multiprocessors.
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// Bytes the libraries hold beside the plan.
    pub fn library_bytes(&self) -> usize {
        LIBRARY_BYTES
    }

    /// Makes this device the one the calling thread speaks to.
    pub fn bind(&self) -> Result<(), Error> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| Error::driver("use the device", e))
    }

    /// The driver's handle, for copies between devices.
    pub(crate) fn context(&self) -> sys::CUcontext {
        self.context
    }

    /// The stream everything is ordered by.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Whether kernels are launched before the one ahead of them is over.
    pub(crate) fn launches_early(&self) -> bool {
        self.early
    }

    pub(crate) fn stream_of(&self, side: Side) -> sys::CUstream {
        match side {
            Side::Main => self.stream,
            Side::Beside => self.beside,
        }
    }

    /// The second stream may start its operation `i` when the first has come this far.
    pub(crate) fn start_side(&self, i: usize) -> Result<(), Error> {
        self.order(self.marks[0][i % MARKS], self.stream, self.beside)
    }

    /// Marks the end of the second stream's operation `i`.
    pub(crate) fn end_side(&self, i: usize) -> Result<(), Error> {
        // SAFETY: event and stream are ours.
        unsafe { result::event::record(self.marks[1][i % MARKS], self.beside) }
            .map_err(|e| Error::driver("mark a stream", e))
    }

    /// The first stream waits for the second's operation `i`.
    pub(crate) fn wait_for_side(&self, i: usize) -> Result<(), Error> {
        self.wait(self.marks[1][i % MARKS], self.stream)
    }

    fn order(&self, mark: sys::CUevent, first: sys::CUstream, then: sys::CUstream) -> Result<(), Error> {
        // SAFETY: events and streams are ours.
        unsafe { result::event::record(mark, first) }.map_err(|e| Error::driver("mark a stream", e))?;
        self.wait(mark, then)
    }

    fn wait(&self, mark: sys::CUevent, stream: sys::CUstream) -> Result<(), Error> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: events and streams are ours.
        unsafe { result::stream::wait_event(stream, mark, flags) }
            .map_err(|e| Error::driver("order two streams", e))
    }

    /// Waits until all that was queued is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the stream is ours.
        unsafe { result::stream::synchronize(self.stream) }
            .map_err(|e| Error::driver("finish the queued work", e))
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.bind()?;
        result::mem_get_info().map_err(|e| Error::driver("say how much memory is free", e))
    }

    /// Whether f32 products may round their operands to TF32.
    pub fn tf32(&self) -> bool {
        self.tf32
    }

    /// Queues a product. The first time one of its shape is seen its algorithms are timed, on the real operands and
    /// into memory of its own.
    pub(crate) fn gemm(&self, gemm: &Gemm, operands: &Operands, side: Side) -> Result<(), Error> {
        let mut tuned = self.tuned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if tuned.insert(*gemm) && !gemm.is_empty() && !self.capturing()? {
            self.tune(gemm, operands)?;
        }
        drop(tuned);
        // SAFETY: the addresses are those of the plan, and the sizes those of the values there.
        Ok(unsafe {
            match side {
                Side::Main => self.gemm.run(gemm, operands, self.stream),
                Side::Beside => self.gemm_beside.run(gemm, operands, self.beside),
            }
        }?)
    }

    fn tune(&self, gemm: &Gemm, operands: &Operands) -> Result<(), Error> {
        let size = |element: Element| element.size();
        let rows =
            gemm.batch.saturating_sub(1) * gemm.c_batch_stride.unsigned_abs() as usize + gemm.m * gemm.c_ld;
        let out = DeviceMemory::new(rows * size(gemm.output))?;
        let bias = DeviceMemory::new(gemm.m.max(gemm.n) * 4)?;
        let mut scratch = Operands { d: out.address(), ..*operands };
        if gemm.accumulate && operands.c == operands.d {
            scratch.c = out.address();
        }
        if gemm.epilogue.writes_bias() {
            scratch.bias = operands.bias.map(|_| bias.address());
        }
        if super::gemm::Key::of(gemm, &scratch) == super::gemm::Key::of(gemm, operands) {
            // SAFETY: `d` and a written bias are memory of this function, which waits for the timed products.
            unsafe { self.gemm.prepare(gemm, &scratch, self.stream) }?;
        }
        self.gemm_beside.make_ready(gemm, operands)?;
        self.synchronize()
    }

    /// Keeps the algorithms that were chosen, so that the next run takes the same and gives the same bits. A folder that
    /// cannot be written is no reason to stop, but one to be told.
    pub(crate) fn save_choices(&self) {
        if let Err(error) = self.gemm.table().save() {
            self.warn(format!("the chosen matrix algorithms could not be kept, so another run may round differently: {error}"));
        }
    }

    /// What went wrong without stopping anything, since it was last asked.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    fn capturing(&self) -> Result<bool, Error> {
        // SAFETY: a query on our stream.
        let status = unsafe { result::stream::is_capturing(self.stream) };
        let status = status.map_err(|e| Error::driver("say whether a step is recorded", e))?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The kernel of that name, in whichever file it is.
    pub(crate) fn function(&self, name: &str) -> Result<sys::CUfunction, Error> {
        let mut functions = self.functions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&function) = functions.get(name) {
            return Ok(function);
        }
        let missing = || Error::Unsupported(format!("there is no kernel {name} for {}", self.name));
        let c_name = CString::new(name).map_err(|_| missing())?;
        let found = self.modules.iter().find_map(|&module| {
            // SAFETY: modules stay loaded as long as the process's context.
            unsafe { result::module::get_function(module, c_name.clone()) }.ok()
        });
        let function = found.ok_or_else(missing)?;
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// For kernels that live in shared memory. The cache gives way to it, so that as many blocks fit beside each other as
    /// they were made for; and more than 48 KiB are given only after they were asked for, once.
    pub(crate) fn allow_shared(&self, function: sys::CUfunction, bytes: u32) -> Result<(), Error> {
        use sys::CUfunction_attribute as A;
        let mut large = self.large.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let set = |attribute, value: u32| {
            // SAFETY: the function belongs to a module that stays loaded.
            unsafe { result::function::set_function_attribute(function, attribute, value as i32) }
                .map_err(|e| Error::driver(format!("give a kernel {bytes} bytes of shared memory"), e))
        };
        let granted = large.entry(function as usize).or_insert(0);
        if *granted == 0 {
            set(A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)?;
            *granted = 48 << 10;
        }
        if bytes > *granted {
            set(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
            *granted = bytes;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} ({})", self.ordinal, self.name)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: streams and events are ours and nothing is queued on them after this. The context is the process's primary one
        // and stays: memory that outlives this handle is still freed in it.
        for stream in [self.stream, self.beside] {
            let _ = unsafe { result::stream::synchronize(stream) };
            let _ = unsafe { result::stream::destroy(stream) };
        }
        for &event in self.marks.iter().flatten() {
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}

/// Compiles what is not in the cache, and loads every file of kernels.
fn load(cache: &KernelCache, arch: Arch) -> Result<Vec<sys::CUmodule>, Error> {
    let compiled = cache.compile_all(kernels::SOURCES, arch)?;
    let mut modules = Vec::with_capacity(compiled.len());
    for ((name, _), image) in kernels::SOURCES.iter().zip(compiled) {
        // SAFETY: the image is a cubin that NVRTC made for this architecture, and it outlives the call.
        let module = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) }
            .map_err(|e| Error::driver(format!("load the kernels of {name}"), e))?;
        modules.push(module);
    }
    Ok(modules)
}

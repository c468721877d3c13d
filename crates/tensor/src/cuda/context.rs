//! An open CUDA device: its context, streams, compiled kernels and matrix library.

use super::cache::{KernelCache, cache_folder};
use super::compile::Arch;
use super::gemm::{Element, Gemm, GemmEngine, GemmTable, Lt, Operands};
use super::library::{Library, require};
use super::memory::DeviceMemory;
use crate::device::explain;
use crate::error::Error;
use crate::kernels;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Workspace of cuBLASLt for each stream, in bytes.
const WORKSPACE: usize = 32 << 20;
/// Bytes the libraries hold on every device in addition to the memory plan.
pub(crate) const LIBRARY_BYTES: usize = 2 * WORKSPACE;

/// Number of events of each kind. They are used round-robin; none is reused before the work that waits for it was
/// queued.
const EVENTS: usize = 64;

/// One of the device's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The stream that orders all work.
    Main,
    /// The stream for work that can run concurrently.
    Side,
}

/// An open device.
pub struct Cuda {
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
    context: sys::CUcontext,
    stream: sys::CUstream,
    side_stream: sys::CUstream,
    /// Events that mark where the side stream may start, and where each of its operations ends.
    events: [Vec<sys::CUevent>; 2],
    modules: Vec<sys::CUmodule>,
    functions: Mutex<HashMap<String, sys::CUfunction>>,
    large: Mutex<HashMap<usize, u32>>,
    gemm: GemmEngine,
    /// The engine of the side stream: concurrent products must not share the library's workspace.
    side_gemm: GemmEngine,
    /// Products whose fastest algorithm was already searched for.
    tuned: Mutex<std::collections::HashSet<Gemm>>,
    _workspaces: [DeviceMemory; 2],
    /// Whether f32 products may round their operands to TF32.
    tf32: bool,
    early: bool,
    warnings: Mutex<Vec<String>>,
}

// SAFETY: the handles are used by one thread at a time or documented as thread-safe; `bind` makes the context
// current.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// Options for opening a device.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Folder for compiled kernels and chosen algorithms; `None` means the user's cache folder.
    pub cache: Option<PathBuf>,
    /// Round the operands of f32 products to TF32.
    pub tf32: bool,
    /// Start each kernel only after the previous one has finished, even where the device could launch it earlier
    /// (Hopper and later).
    pub late_launch: bool,
}

impl Cuda {
    /// Opens device `ordinal` in the driver's order.
    pub fn open(ordinal: usize, options: &CudaOptions) -> Result<Cuda, Error> {
        for library in [Library::Driver, Library::Nvrtc, Library::CublasLt] {
            require(library)?;
        }
        let missing = |why: String| Error::Unsupported(format!("there is no cuda:{ordinal}: {why}"));
        result::init().map_err(|e| missing(explain_start(e)))?;
        let count = result::device::get_count().map_err(|e| Error::driver("count the devices", e))?;
        let number = i32::try_from(ordinal).ok().filter(|number| *number < count);
        let number = number.ok_or_else(|| missing(format!("the number of GPUs here is {count}")))?;
        let device = result::device::get(number)
            .map_err(|e| Error::driver(format!("find the device cuda:{ordinal}"), e))?;
        let name =
            result::device::get_name(device).map_err(|e| Error::driver("query the name of the device", e))?;
        use sys::CUdevice_attribute as A;
        let attribute = |which| {
            // SAFETY: `device` comes from the driver.
            unsafe { result::device::get_attribute(device, which) }
                .map(|v| v as u32)
                .map_err(|e| Error::driver("query the device", e))
        };
        let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        // SAFETY: `device` is valid; the primary context is retained until `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|e| Error::driver(format!("open cuda:{ordinal}"), e))?;
        // SAFETY: `context` was just retained.
        unsafe { result::ctx::set_current(context) }
            .map_err(|e| Error::driver("make the device current", e))?;
        let arch = Arch::for_device(major, minor)?;
        let cache = match &options.cache {
            Some(folder) => KernelCache::in_folder(folder.join("kernels")),
            None => KernelCache::for_user(),
        };
        let modules = load(&cache, arch)?;
        let workspaces = [DeviceMemory::new(WORKSPACE)?, DeviceMemory::new(WORKSPACE)?];
        let lt = Arc::new(Lt::load()?);
        let table = match options.cache.clone().or_else(cache_folder) {
            Some(folder) => GemmTable::open(&folder.join("gemm"), &name, lt.version()),
            None => GemmTable::in_memory(),
        };
        let table = Arc::new(table);
        // SAFETY: the workspaces live as long as the engines that use them.
        let [gemm, side_gemm] = [&workspaces[0], &workspaces[1]]
            .map(|w| unsafe { GemmEngine::new(Arc::clone(&lt), Arc::clone(&table), w.address(), WORKSPACE) });
        let (gemm, side_gemm) = (gemm?, side_gemm?);
        let stream = || {
            result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(|e| Error::driver("create a stream", e))
        };
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = |_| result::event::create(flags).map_err(|e| Error::driver("create an event", e));
        let events = || (0..EVENTS).map(event).collect::<Result<Vec<_>, _>>();
        Ok(Cuda {
            ordinal,
            name,
            capability: (major, minor),
            multiprocessors,
            context,
            stream: stream()?,
            side_stream: stream()?,
            events: [events()?, events()?],
            modules,
            functions: Mutex::new(HashMap::new()),
            large: Mutex::new(HashMap::new()),
            gemm,
            side_gemm,
            tuned: Mutex::new(std::collections::HashSet::new()),
            _workspaces: workspaces,
            tf32: options.tf32,
            early: major >= 9 && !options.late_launch,
            warnings: Mutex::new(
                cache.take_warning().map(|warning| warning.to_string()).into_iter().collect(),
            ),
        })
    }

    /// Index of the device in the driver's order.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability as (major, minor).
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Number of streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Bytes the libraries hold in addition to the memory plan.
    pub(crate) fn library_bytes(&self) -> usize {
        LIBRARY_BYTES
    }

    /// Makes this device current on the calling thread.
    pub fn bind(&self) -> Result<(), Error> {
        // SAFETY: the context is retained for the lifetime of `self`.
        unsafe { result::ctx::set_current(self.context) }
            .map_err(|e| Error::driver("make the device current", e))
    }

    /// The driver's context handle, for copies between devices.
    pub(crate) fn context(&self) -> sys::CUcontext {
        self.context
    }

    /// The stream that orders all work.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Whether kernels are launched before the previous one has finished.
    pub(crate) fn launches_early(&self) -> bool {
        self.early
    }

    pub(crate) fn stream_of(&self, stream_kind: StreamKind) -> sys::CUstream {
        match stream_kind {
            StreamKind::Main => self.stream,
            StreamKind::Side => self.side_stream,
        }
    }

    /// Lets the side stream start its operation `i` once the main stream has reached this point.
    pub(crate) fn start_side(&self, i: usize) -> Result<(), Error> {
        self.order(self.events[0][i % EVENTS], self.stream, self.side_stream)
    }

    /// Marks the end of the side stream's operation `i`.
    pub(crate) fn end_side(&self, i: usize) -> Result<(), Error> {
        // SAFETY: the event and the stream belong to this device.
        unsafe { result::event::record(self.events[1][i % EVENTS], self.side_stream) }
            .map_err(|e| Error::driver("record an event", e))
    }

    /// Makes the main stream wait for the side stream's operation `i`.
    pub(crate) fn wait_for_side(&self, i: usize) -> Result<(), Error> {
        self.wait(self.events[1][i % EVENTS], self.stream)
    }

    fn order(&self, mark: sys::CUevent, first: sys::CUstream, then: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the event and the stream belong to this device.
        unsafe { result::event::record(mark, first) }.map_err(|e| Error::driver("record an event", e))?;
        self.wait(mark, then)
    }

    fn wait(&self, mark: sys::CUevent, stream: sys::CUstream) -> Result<(), Error> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event and the stream belong to this device.
        unsafe { result::stream::wait_event(stream, mark, flags) }
            .map_err(|e| Error::driver("make a stream wait for an event", e))
    }

    /// Waits until all queued work is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the stream belongs to this device.
        unsafe { result::stream::synchronize(self.stream) }
            .map_err(|e| Error::driver("finish the queued work", e))
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.bind()?;
        result::mem_get_info().map_err(|e| Error::driver("query free memory", e))
    }

    /// Whether f32 products may round their operands to TF32.
    pub fn tf32(&self) -> bool {
        self.tf32
    }

    /// Queues a product. For a new shape, the algorithms are timed first, on the real operands but with a separate
    /// output buffer.
    pub(crate) fn gemm(
        &self,
        gemm: &Gemm,
        operands: &Operands,
        stream_kind: StreamKind,
    ) -> Result<(), Error> {
        let mut tuned = self.tuned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if tuned.insert(*gemm) && !gemm.is_empty() && !self.is_capturing()? {
            self.tune(gemm, operands)?;
        }
        drop(tuned);
        // SAFETY: the addresses come from the plan and match the sizes of the values stored there.
        Ok(unsafe {
            match stream_kind {
                StreamKind::Main => self.gemm.run(gemm, operands, self.stream),
                StreamKind::Side => self.side_gemm.run(gemm, operands, self.side_stream),
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
        if super::gemm::Key::new(gemm, &scratch) == super::gemm::Key::new(gemm, operands) {
            // Queued sums over replicas finish only if the other replicas continue, and those may be waiting for this choice.
            self.synchronize()?;
            // SAFETY: `d` and a written bias are memory of this function, which waits for the timed products.
            unsafe { self.gemm.prepare(gemm, &scratch, self.stream) }?;
        }
        self.side_gemm.make_ready(gemm, operands)?;
        self.synchronize()
    }

    /// Saves the chosen algorithms, so that the next run uses the same ones and gives the same bits. A folder that
    /// cannot be written causes a warning, not an error.
    pub(crate) fn save_choices(&self) {
        if let Err(error) = self.gemm.table().save() {
            self.warn(format!("the chosen matrix algorithms could not be saved, so another run may round differently: {error}"));
        }
    }

    /// The chosen algorithms and a file name for them, for [`super::gemm::pin`]; `None` if none were chosen.
    pub fn choices(&self) -> Option<(String, Vec<u8>)> {
        self.gemm.table().to_bytes()
    }

    /// Returns and clears the warnings collected so far.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    fn is_capturing(&self) -> Result<bool, Error> {
        // SAFETY: a query on a stream of this device.
        let status = unsafe { result::stream::is_capturing(self.stream) };
        let status = status.map_err(|e| Error::driver("query whether a stream is being captured", e))?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Looks up a kernel by name in all loaded modules.
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

    /// Prepares a kernel that relies on shared memory: prefers shared memory over L1 cache, so that as many blocks
    /// fit on a multiprocessor as intended, and raises the limit above 48 KiB once where needed.
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
        // The context is the process's primary one and stays: memory that outlives this handle is still freed in it.
        for stream in [self.stream, self.side_stream] {
            // SAFETY: the stream belongs to this device, and nothing is queued on it afterwards.
            unsafe {
                let _ = result::stream::synchronize(stream);
                let _ = result::stream::destroy(stream);
            }
        }
        for &event in self.events.iter().flatten() {
            // SAFETY: the event belongs to this device, and both streams are finished.
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}

/// Why the driver did not start. Most often there is no GPU, or `CUDA_VISIBLE_DEVICES` hides all.
fn explain_start(error: result::DriverError) -> String {
    let message = error.error_string().map_or("unknown error".into(), |text| text.to_string_lossy());
    explain(error.0 as i32, &message)
}

/// Compiles kernel files that are not in the cache, and loads all of them.
fn load(cache: &KernelCache, arch: Arch) -> Result<Vec<sys::CUmodule>, Error> {
    let compiled = cache.compile_all(kernels::SOURCES, arch)?;
    let mut modules = Vec::with_capacity(compiled.len());
    for ((name, _), image) in kernels::SOURCES.iter().zip(compiled) {
        // SAFETY: the image is a CUBIN that NVRTC built for this architecture, and it outlives the call.
        let module = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) }
            .map_err(|e| Error::driver(format!("load the kernels of {name}"), e))?;
        modules.push(module);
    }
    Ok(modules)
}

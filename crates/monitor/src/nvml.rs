//! NVML: queries the driver about its GPUs without a context on any of them.
//!
//! Uses the library that the engine found. Any result but success means "unknown": it is normal that a GPU does not
//! report some value, or that it is lost while it is monitored.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use myxtts_tensor::cuda::library::{self, Library};

use crate::sample::{ClockLimit, GpuProcess, GpuSample};

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// Reported when the driver does not know the memory of a process.
const NO_VALUE: u64 = u64::MAX;
/// Maximum number of GPUs; a larger count is invalid.
const MAX_GPUS: c_uint = 256;
/// Maximum number of processes listed per GPU.
const MAX_PROCESSES: usize = 4096;

const SENSOR_OF_GPU: c_uint = 0;
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;
const PCIE_OUT: c_uint = 0;
const PCIE_IN: c_uint = 1;

type Handle = *mut c_void;
type ByBus = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
type ToText = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type ToNumber = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type ToNumberOf = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int;
type ToMask = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_int;
type ToUtilisation = unsafe extern "C" fn(Handle, *mut Utilisation) -> c_int;
type ToMemory = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
type ToProcesses = unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> c_int;

#[repr(C)]
#[derive(Default)]
struct Utilisation {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t` of the `_v2` and `_v3` functions.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// An initialised NVML library with its devices.
pub struct Nvml {
    functions: Functions,
    devices: Vec<Device>,
}

/// A device handle; `None` if it could not be opened, so that the others keep their indices.
struct Device(Option<Handle>);

// SAFETY: NVML is thread-safe, and its handles are opaque and never written to.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Functions of the library; older versions lack some.
struct Functions {
    by_bus: Option<ByBus>,
    index: Option<ToNumber>,
    name: Option<ToText>,
    utilisation: Option<ToUtilisation>,
    memory: Option<ToMemory>,
    power: Option<ToNumber>,
    power_limit: Option<ToNumber>,
    temperature: Option<ToNumberOf>,
    clock: Option<ToNumberOf>,
    max_clock: Option<ToNumberOf>,
    pcie: Option<ToNumberOf>,
    limits: Option<ToMask>,
    processes: [Option<ToProcesses>; 2],
}

impl Nvml {
    /// Initialises NVML, or explains why there are no GPUs to monitor.
    pub fn open() -> Result<Nvml, String> {
        let library = library::handle(Library::Nvml).map_err(|missing| missing.summary())?;
        // SAFETY: the signatures match NVIDIA's header and are the same in all versions that have these functions.
        unsafe {
            let init = function::<unsafe extern "C" fn() -> c_int>(library, &["nvmlInit_v2"]);
            let code = init.map_or(-1, |init| init());
            if code != SUCCESS {
                return Err(format!("cannot initialise NVML: {}", error_text(library, code)));
            }
            let count =
                function::<unsafe extern "C" fn(*mut c_uint) -> c_int>(library, &["nvmlDeviceGetCount_v2"]);
            let mut number = 0;
            let code = count.map_or(-1, |count| count(&mut number));
            if code != SUCCESS {
                return Err(format!("NVML cannot count the GPUs: {}", error_text(library, code)));
            }
            if number == 0 {
                return Err("the driver reports no GPU".to_owned());
            }
            let open = function::<unsafe extern "C" fn(c_uint, *mut Handle) -> c_int>(
                library,
                &["nvmlDeviceGetHandleByIndex_v2"],
            );
            let device = |index| {
                let mut handle: Handle = std::ptr::null_mut();
                let opened =
                    open.is_some_and(|open| open(index, &mut handle) == SUCCESS) && !handle.is_null();
                Device(opened.then_some(handle))
            };
            let devices = (0..number.min(MAX_GPUS)).map(device).collect();
            Ok(Nvml { functions: Functions::load(library), devices })
        }
    }

    /// Number of GPUs.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Index of the GPU with a PCI bus id such as `0000:3b:00.0`.
    pub fn index_of(&self, pci_bus_id: &str) -> Option<usize> {
        let bus = CString::new(pci_bus_id).ok()?;
        let (mut handle, mut index): (Handle, c_uint) = (std::ptr::null_mut(), 0);
        // SAFETY: a NUL-terminated string and valid output pointers; the second call uses the handle of the first.
        let found = unsafe {
            self.functions.by_bus?(bus.as_ptr(), &mut handle) == SUCCESS
                && !handle.is_null()
                && self.functions.index?(handle, &mut index) == SUCCESS
        };
        Some(index as usize).filter(|index| found && *index < self.devices.len())
    }

    /// Samples one GPU without the values that are slow to read: PCIe throughput and processes.
    pub fn quick_sample(&self, index: usize) -> GpuSample {
        let handle = self.devices.get(index).and_then(|device| device.0);
        handle.map(|handle| self.functions.quick_sample(handle)).unwrap_or_default()
    }

    /// Samples all GPUs. The driver measures PCIe throughput over 20 ms per direction, so they are queried in parallel.
    pub fn sample(&self) -> Vec<GpuSample> {
        let query = |device: &Device| device.0.map(|handle| self.functions.gpu(handle)).unwrap_or_default();
        if let [device] = &self.devices[..] {
            return vec![query(device)];
        }
        let (devices, query) = (&self.devices, &query);
        std::thread::scope(|scope| {
            let threads: Vec<_> = devices.iter().map(|device| scope.spawn(move || query(device))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        })
    }
}

impl Functions {
    /// # Safety
    /// The library must be NVML.
    unsafe fn load(library: &libloading::Library) -> Functions {
        // SAFETY: each type matches the function in NVIDIA's header.
        unsafe {
            Functions {
                by_bus: function(library, &["nvmlDeviceGetHandleByPciBusId_v2"]),
                index: function(library, &["nvmlDeviceGetIndex"]),
                name: function(library, &["nvmlDeviceGetName"]),
                utilisation: function(library, &["nvmlDeviceGetUtilizationRates"]),
                memory: function(library, &["nvmlDeviceGetMemoryInfo"]),
                power: function(library, &["nvmlDeviceGetPowerUsage"]),
                power_limit: function(library, &["nvmlDeviceGetEnforcedPowerLimit"]),
                temperature: function(library, &["nvmlDeviceGetTemperature"]),
                clock: function(library, &["nvmlDeviceGetClockInfo"]),
                max_clock: function(library, &["nvmlDeviceGetMaxClockInfo"]),
                pcie: function(library, &["nvmlDeviceGetPcieThroughput"]),
                // One function with two names: drivers before 535 have the second.
                limits: function(
                    library,
                    &["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"],
                ),
                processes: [
                    function(
                        library,
                        &[
                            "nvmlDeviceGetComputeRunningProcesses_v3",
                            "nvmlDeviceGetComputeRunningProcesses_v2",
                        ],
                    ),
                    function(
                        library,
                        &[
                            "nvmlDeviceGetGraphicsRunningProcesses_v3",
                            "nvmlDeviceGetGraphicsRunningProcesses_v2",
                        ],
                    ),
                ],
            }
        }
    }

    fn gpu(&self, handle: Handle) -> GpuSample {
        let pcie = |which| {
            let mut kilobytes = 0;
            // SAFETY: a valid NVML handle and output pointer.
            let ok = unsafe { self.pcie?(handle, which, &mut kilobytes) } == SUCCESS;
            ok.then_some(f64::from(kilobytes) * 1e3)
        };
        GpuSample {
            pcie_in: pcie(PCIE_IN),
            pcie_out: pcie(PCIE_OUT),
            processes: self.processes(handle),
            ..self.quick_sample(handle)
        }
    }

    fn quick_sample(&self, handle: Handle) -> GpuSample {
        let number = |get: Option<ToNumber>| {
            let mut value = 0;
            // SAFETY: a valid NVML handle and output pointer.
            (unsafe { get?(handle, &mut value) } == SUCCESS).then_some(f64::from(value))
        };
        let number_of = |get: Option<ToNumberOf>, which| {
            let mut value = 0;
            // SAFETY: as above.
            (unsafe { get?(handle, which, &mut value) } == SUCCESS).then_some(f64::from(value))
        };
        let utilisation = self.utilisation.and_then(|get| {
            let mut value = Utilisation::default();
            // SAFETY: as above.
            (unsafe { get(handle, &mut value) } == SUCCESS).then_some(value)
        });
        let memory = self.memory.and_then(|get| {
            let mut value = Memory::default();
            // SAFETY: as above.
            (unsafe { get(handle, &mut value) } == SUCCESS).then_some(value)
        });
        let limits = self.limits.and_then(|get| {
            let mut mask = 0;
            // SAFETY: as above.
            (unsafe { get(handle, &mut mask) } == SUCCESS).then(|| ClockLimit::from_mask(mask))
        });
        GpuSample {
            name: self.name(handle),
            utilisation: utilisation.as_ref().map(|value| f64::from(value.gpu)),
            memory_activity: utilisation.as_ref().map(|value| f64::from(value.memory)),
            memory_used: memory.as_ref().map(|value| value.used),
            memory_total: memory.as_ref().map(|value| value.total),
            power: number(self.power).map(|milliwatts| milliwatts / 1e3),
            power_limit: number(self.power_limit).map(|milliwatts| milliwatts / 1e3),
            temperature: number_of(self.temperature, SENSOR_OF_GPU),
            sm_clock: number_of(self.clock, CLOCK_SM),
            sm_clock_max: number_of(self.max_clock, CLOCK_SM),
            memory_clock: number_of(self.clock, CLOCK_MEMORY),
            limits,
            ..GpuSample::default()
        }
    }

    fn name(&self, handle: Handle) -> Option<String> {
        let mut text = [0 as c_char; 97];
        // SAFETY: NVML is given one byte less than the buffer has, so the text is always NUL-terminated.
        let ok = unsafe { self.name?(handle, text.as_mut_ptr(), 96) } == SUCCESS;
        // SAFETY: as above.
        ok.then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Compute and graphics processes; one that is both is listed once.
    fn processes(&self, handle: Handle) -> Vec<GpuProcess> {
        let mut processes: Vec<GpuProcess> = Vec::new();
        for info in self.processes.iter().flatten().flat_map(|get| list_processes(*get, handle)) {
            let memory = Some(info.memory).filter(|memory| *memory != NO_VALUE);
            match processes.iter_mut().find(|process| process.pid == info.pid) {
                Some(process) => process.memory = process.memory.max(memory),
                None => processes.push(GpuProcess { pid: info.pid, name: None, memory }),
            }
        }
        processes.sort_by_key(|process| (std::cmp::Reverse(process.memory), process.pid));
        processes
    }
}

fn list_processes(get: ToProcesses, handle: Handle) -> Vec<ProcessInfo> {
    let mut capacity = 64;
    // Processes may start between two calls: a list that outgrows its buffer again is left for the next sample.
    for _ in 0..3 {
        let mut infos = vec![ProcessInfo::default(); capacity];
        let mut count = capacity as c_uint;
        // SAFETY: the buffer has `count` elements.
        let code = unsafe { get(handle, &mut count, infos.as_mut_ptr()) };
        let found = count as usize;
        if code == SUCCESS {
            infos.truncate(found);
            return infos;
        }
        if code != INSUFFICIENT_SIZE || capacity == MAX_PROCESSES {
            return Vec::new();
        }
        capacity = found.max(capacity * 2).min(MAX_PROCESSES);
    }
    Vec::new()
}

/// Loads the first of the named functions that exists.
///
/// # Safety
/// `F` must be the type of these functions.
unsafe fn function<F: Copy>(library: &libloading::Library, names: &[&str]) -> Option<F> {
    // SAFETY: guaranteed by the caller.
    names.iter().find_map(|name| unsafe { library.get::<F>(*name) }.ok().map(|symbol| *symbol))
}

/// NVML's description of an error code.
///
/// # Safety
/// The library must be NVML.
unsafe fn error_text(library: &libloading::Library, code: c_int) -> String {
    // SAFETY: the signature matches NVIDIA's header; the text is a constant of the library.
    unsafe {
        let describe =
            function::<unsafe extern "C" fn(c_int) -> *const c_char>(library, &["nvmlErrorString"]);
        let text = describe.map_or(std::ptr::null(), |describe| describe(code));
        if text.is_null() {
            return format!("code {code}");
        }
        format!("{} (code {code})", CStr::from_ptr(text).to_string_lossy())
    }
}

//! NVML: what the driver tells of its GPUs, without a context on any of them.
//!
//! The library is the one that the engine's search has found. Whatever NVML answers but success is "not known": a GPU of
//! which a figure cannot be had is normal, and so is one that is lost while it is watched.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use myxtts_tensor::cuda::library::{self, Library};

use crate::sample::{Gpu, Limit, Process};

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// Where the driver does not know how much memory a process has.
const NO_VALUE: u64 = u64::MAX;
/// GPUs of one machine; a count past this is no count.
const MOST_GPUS: c_uint = 256;
/// Processes on one GPU that are listed.
const MOST_PROCESSES: usize = 4096;

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

/// `nvmlProcessInfo_t` of the functions that end in `_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// NVML at work.
pub struct Nvml {
    functions: Functions,
    devices: Vec<Device>,
}

/// One that cannot be opened keeps its place, so that the others keep their numbers.
struct Device(Option<Handle>);

// SAFETY: NVML may be called from any thread, and its handles are names that are never written to.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What the library has; an older one lacks some.
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
    most_clock: Option<ToNumberOf>,
    pcie: Option<ToNumberOf>,
    limits: Option<ToMask>,
    processes: [Option<ToProcesses>; 2],
}

impl Nvml {
    /// Starts NVML, or says in a sentence why there are no GPUs to watch.
    pub fn open() -> Result<Nvml, String> {
        let library = library::handle(Library::Nvml).map_err(|missing| missing.summary())?;
        // SAFETY: the signatures are those of NVIDIA's header, the same in all versions that have the names.
        unsafe {
            let start = function::<unsafe extern "C" fn() -> c_int>(library, &["nvmlInit_v2"]);
            let code = start.map_or(-1, |start| start());
            if code != SUCCESS {
                return Err(format!("NVML does not start: {}", words(library, code)));
            }
            let count =
                function::<unsafe extern "C" fn(*mut c_uint) -> c_int>(library, &["nvmlDeviceGetCount_v2"]);
            let mut number = 0;
            let code = count.map_or(-1, |count| count(&mut number));
            if code != SUCCESS {
                return Err(format!("NVML does not count the GPUs: {}", words(library, code)));
            }
            if number == 0 {
                return Err("the driver shows no GPU".to_owned());
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
            let devices = (0..number.min(MOST_GPUS)).map(device).collect();
            Ok(Nvml { functions: Functions::of(library), devices })
        }
    }

    /// How many GPUs there are.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// The number of the GPU that is plugged in there, such as `0000:3b:00.0`.
    pub fn at(&self, pci_bus_id: &str) -> Option<usize> {
        let bus = CString::new(pci_bus_id).ok()?;
        let (mut handle, mut index): (Handle, c_uint) = (std::ptr::null_mut(), 0);
        // SAFETY: a text with its end and places for the answers; the second is asked of what the first gave.
        let found = unsafe {
            self.functions.by_bus?(bus.as_ptr(), &mut handle) == SUCCESS
                && !handle.is_null()
                && self.functions.index?(handle, &mut index) == SUCCESS
        };
        Some(index as usize).filter(|index| found && *index < self.devices.len())
    }

    /// One GPU without what takes the driver long: no throughput of PCIe, no processes.
    pub fn brief(&self, index: usize) -> Gpu {
        let handle = self.devices.get(index).and_then(|device| device.0);
        handle.map(|handle| self.functions.brief(handle)).unwrap_or_default()
    }

    /// All GPUs as they are now. Throughput of PCIe is measured by the driver over 20 ms each way, so they are asked side
    /// by side.
    pub fn sample(&self) -> Vec<Gpu> {
        let ask = |device: &Device| device.0.map(|handle| self.functions.gpu(handle)).unwrap_or_default();
        if let [device] = &self.devices[..] {
            return vec![ask(device)];
        }
        let (devices, ask) = (&self.devices, &ask);
        std::thread::scope(|scope| {
            let asked: Vec<_> = devices.iter().map(|device| scope.spawn(move || ask(device))).collect();
            asked.into_iter().map(|one| one.join().unwrap_or_default()).collect()
        })
    }
}

impl Functions {
    /// # Safety
    /// The library is NVML.
    unsafe fn of(library: &libloading::Library) -> Functions {
        // SAFETY: each type is that of the function in NVIDIA's header.
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
                most_clock: function(library, &["nvmlDeviceGetMaxClockInfo"]),
                pcie: function(library, &["nvmlDeviceGetPcieThroughput"]),
                // The same under two names: the second is that of drivers before 535.
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

    fn gpu(&self, handle: Handle) -> Gpu {
        let pcie = |which| {
            let mut kilobytes = 0;
            // SAFETY: a handle of NVML's and a place for the answer.
            let told = unsafe { self.pcie?(handle, which, &mut kilobytes) } == SUCCESS;
            told.then_some(f64::from(kilobytes) * 1e3)
        };
        Gpu {
            pcie_in: pcie(PCIE_IN),
            pcie_out: pcie(PCIE_OUT),
            processes: self.processes(handle),
            ..self.brief(handle)
        }
    }

    fn brief(&self, handle: Handle) -> Gpu {
        let number = |get: Option<ToNumber>| {
            let mut value = 0;
            // SAFETY: a handle of NVML's and a place for the answer.
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
            (unsafe { get(handle, &mut mask) } == SUCCESS).then(|| Limit::of_mask(mask))
        });
        Gpu {
            name: self.name(handle),
            utilisation: utilisation.as_ref().map(|value| f64::from(value.gpu)),
            memory_activity: utilisation.as_ref().map(|value| f64::from(value.memory)),
            memory_used: memory.as_ref().map(|value| value.used),
            memory_total: memory.as_ref().map(|value| value.total),
            power: number(self.power).map(|milliwatts| milliwatts / 1e3),
            power_limit: number(self.power_limit).map(|milliwatts| milliwatts / 1e3),
            temperature: number_of(self.temperature, SENSOR_OF_GPU),
            sm_clock: number_of(self.clock, CLOCK_SM),
            sm_clock_most: number_of(self.most_clock, CLOCK_SM),
            memory_clock: number_of(self.clock, CLOCK_MEMORY),
            limits,
            ..Gpu::default()
        }
    }

    fn name(&self, handle: Handle) -> Option<String> {
        let mut text = [0 as c_char; 97];
        // SAFETY: the last byte is not offered, and so ends the text whatever is written.
        let told = unsafe { self.name?(handle, text.as_mut_ptr(), 96) } == SUCCESS;
        // SAFETY: as above.
        told.then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// One that both computes and draws is listed once.
    fn processes(&self, handle: Handle) -> Vec<Process> {
        let mut processes: Vec<Process> = Vec::new();
        for info in self.processes.iter().flatten().flat_map(|get| list(*get, handle)) {
            let memory = Some(info.memory).filter(|memory| *memory != NO_VALUE);
            match processes.iter_mut().find(|process| process.pid == info.pid) {
                Some(process) => process.memory = process.memory.max(memory),
                None => processes.push(Process { pid: info.pid, name: None, memory }),
            }
        }
        processes.sort_by_key(|process| (std::cmp::Reverse(process.memory), process.pid));
        processes
    }
}

fn list(get: ToProcesses, handle: Handle) -> Vec<ProcessInfo> {
    let mut room = 64;
    // Others may come between two calls: a list that has outgrown its room again is left for the next sample.
    for _ in 0..3 {
        let mut infos = vec![ProcessInfo::default(); room];
        let mut count = room as c_uint;
        // SAFETY: there is room for as many as are announced.
        let code = unsafe { get(handle, &mut count, infos.as_mut_ptr()) };
        let found = count as usize;
        if code == SUCCESS {
            infos.truncate(found);
            return infos;
        }
        if code != INSUFFICIENT_SIZE || room == MOST_PROCESSES {
            return Vec::new();
        }
        room = found.max(room * 2).min(MOST_PROCESSES);
    }
    Vec::new()
}

/// The first of the names that there is.
///
/// # Safety
/// `F` is the type of the functions of these names.
unsafe fn function<F: Copy>(library: &libloading::Library, names: &[&str]) -> Option<F> {
    // SAFETY: the caller's promise.
    names.iter().find_map(|name| unsafe { library.get::<F>(*name) }.ok().map(|symbol| *symbol))
}

/// NVML's own words for a code.
///
/// # Safety
/// The library is NVML.
unsafe fn words(library: &libloading::Library, code: c_int) -> String {
    // SAFETY: the signature of NVIDIA's header; the text is a constant of the library.
    unsafe {
        let tell = function::<unsafe extern "C" fn(c_int) -> *const c_char>(library, &["nvmlErrorString"]);
        let text = tell.map_or(std::ptr::null(), |tell| tell(code));
        if text.is_null() {
            return format!("code {code}");
        }
        format!("{} (code {code})", CStr::from_ptr(text).to_string_lossy())
    }
}

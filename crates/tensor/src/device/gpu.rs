//! GPUs, as the driver describes them.
//!
//! The driver is called through its own handle and its return codes are read as integers: this code runs on
//! machines where anything may be broken. There cudarc would panic at a missing function, and would read an unknown
//! error code into an enum that has no such value.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use serde::Serialize;

use crate::cuda::library::{self, Library};

/// CUDA compute capability: 9.0 is Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// The 9 of 9.0.
    pub major: u32,
    /// The 0 of 9.0.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for Capability {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A GPU the driver reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Index as in `cuda:0`.
    pub index: usize,
    /// Product name.
    pub name: String,
    /// Total memory in bytes.
    pub memory_total: u64,
    /// Free memory in bytes; `None` where NVML does not report it.
    pub memory_free: Option<u64>,
    /// Compute capability.
    pub capability: Capability,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci_bus_id: Option<String>,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
}

/// All GPUs the driver reports, or a sentence that says why there are none.
pub(super) fn list() -> Result<Vec<Gpu>, String> {
    let handle = library::handle(Library::Driver).map_err(|missing| missing.summary())?;
    let driver = Driver(handle);
    let count = driver.count()?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err(explain(NO_DEVICE, ""));
    }
    (0..count).map(|index| driver.gpu(index)).collect()
}

const NO_DEVICE: c_int = 100;

/// Explains to the user why the driver did not start.
pub(crate) fn explain(code: c_int, message: &str) -> String {
    match code {
        NO_DEVICE => match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(hidden) => {
                format!("the driver reports no GPU; CUDA_VISIBLE_DEVICES is {hidden:?}, which may hide them")
            }
            Err(_) => {
                "the driver reports no GPU: there is none, or the kernel module is not loaded".to_owned()
            }
        },
        34 => "the driver library found is the toolkit's stub: remove its folder from LD_LIBRARY_PATH"
            .to_owned(),
        802 => {
            "the GPUs are not ready: machines with NVSwitch need a running nvidia-fabricmanager".to_owned()
        }
        803 => "the driver's libraries and its kernel module are different releases: restart the machine"
            .to_owned(),
        _ => format!("the driver failed to start ({message}, error {code}): `nvidia-smi` may say more"),
    }
}

struct Driver(&'static libloading::Library);

impl Driver {
    fn count(&self) -> Result<c_int, String> {
        let mut count = 0;
        // SAFETY: the signatures are those of the driver API, unchanged since CUDA 4.
        unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_int = self.function("cuInit")?;
            self.check(init(0))?;
            let get: unsafe extern "C" fn(*mut c_int) -> c_int = self.function("cuDeviceGetCount")?;
            self.check(get(&mut count))?;
        }
        Ok(count)
    }

    fn gpu(&self, index: usize) -> Result<Gpu, String> {
        let mut device = 0;
        let mut name = [0 as c_char; 256];
        let mut bus = [0 as c_char; 32];
        let mut memory = 0usize;
        let number = c_int::try_from(index).map_err(|_| format!("there is no GPU {index}"))?;
        // SAFETY: as above; the strings fit their buffers, whose lengths are passed less one.
        let has_bus = unsafe {
            let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = self.function("cuDeviceGet")?;
            self.check(get(&mut device, number))?;
            let get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
                self.function("cuDeviceGetName")?;
            self.check(get(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            let get: unsafe extern "C" fn(*mut usize, c_int) -> c_int =
                self.function("cuDeviceTotalMem_v2")?;
            self.check(get(&mut memory, device))?;
            let get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
                self.function("cuDeviceGetPCIBusId")?;
            get(bus.as_mut_ptr(), bus.len() as c_int - 1, device) == 0
        };
        let pci_bus_id = has_bus.then(|| text(&bus));
        let memory_total = memory as u64;
        Ok(Gpu {
            index,
            name: text(&name),
            memory_total,
            // A MIG instance has the PCI address of the whole GPU, whose free memory NVML would report.
            memory_free: pci_bus_id.as_deref().and_then(free_memory).filter(|free| *free <= memory_total),
            capability: Capability {
                major: self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?,
                minor: self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)?,
            },
            pci_bus_id,
            multiprocessors: self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)?,
        })
    }

    fn attribute(&self, attribute: Attribute, device: c_int) -> Result<u32, String> {
        let mut value = 0;
        // SAFETY: as above.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
                self.function("cuDeviceGetAttribute")?;
            self.check(get(&mut value, attribute as c_int, device))?;
        }
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut message = std::ptr::null();
        // SAFETY: as above; the string is a constant of the driver.
        let message = unsafe {
            let get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
                self.function("cuGetErrorString")?;
            match get(code, &mut message) {
                0 if !message.is_null() => CStr::from_ptr(message).to_string_lossy(),
                _ => "unknown error".into(),
            }
        };
        Err(explain(code, &message))
    }

    /// # Safety
    /// `F` must be the type of the named function.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: guaranteed by the caller.
        let symbol = unsafe { self.0.get::<F>(name) };
        symbol.map(|symbol| *symbol).map_err(|_| format!("the driver is broken: it has no function {name}"))
    }
}

/// Free memory by NVML. The driver reports it only within a context, which costs half a gigabyte and half a second.
fn free_memory(pci_bus_id: &str) -> Option<u64> {
    #[repr(C)]
    #[derive(Default)]
    struct Memory {
        total: u64,
        free: u64,
        used: u64,
    }
    let nvml = library::handle(Library::Nvml).ok()?;
    let bus = CString::new(pci_bus_id).ok()?;
    let mut device: *mut c_void = std::ptr::null_mut();
    let mut memory = Memory::default();
    // SAFETY: the signatures are those of the NVML API; loading the library has initialised NVML.
    unsafe {
        let find = nvml.get::<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int>(
            "nvmlDeviceGetHandleByPciBusId_v2",
        );
        let get =
            nvml.get::<unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int>("nvmlDeviceGetMemoryInfo");
        let found = find.ok()?(bus.as_ptr(), &mut device) == 0 && get.ok()?(device, &mut memory) == 0;
        found.then_some(memory.free)
    }
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

//! The GPUs, as the driver describes them.
//!
//! The driver is called through its own handle and its answers are read as integers: this code runs on machines where
//! anything may be broken, and there cudarc would panic at a missing function and read an error it does not know as an
//! enum without such a value.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use serde::Serialize;

use crate::cuda::library::{self, Library};

/// What a GPU can do, as NVIDIA numbers it: 9.0 is Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
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

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// As in `cuda:0`.
    pub index: usize,
    /// As its maker calls it.
    pub name: String,
    /// Bytes, all of it.
    pub memory_total: u64,
    /// Bytes that nobody uses now; unknown where NVML does not tell.
    pub memory_free: Option<u64>,
    /// What it can do.
    pub capability: Capability,
    /// Where it is plugged in, such as `0000:3b:00.0`.
    pub pci_bus_id: Option<String>,
    /// Units that run blocks at the same time.
    pub multiprocessors: u32,
}

/// All GPUs the driver shows, or a sentence on why there are none.
pub(super) fn list() -> Result<Vec<Gpu>, String> {
    let handle = library::handle(Library::Driver).map_err(|missing| missing.summary())?;
    let driver = Driver(handle);
    let count = driver.count()?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err(sentence(NO_DEVICE, ""));
    }
    (0..count).map(|index| driver.gpu(index)).collect()
}

const NO_DEVICE: c_int = 100;

/// What an error of the driver's means for the person at this machine.
fn sentence(code: c_int, words: &str) -> String {
    match code {
        NO_DEVICE => match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(hidden) => {
                format!("the driver shows no GPU; CUDA_VISIBLE_DEVICES is {hidden:?}, which may hide them")
            }
            Err(_) => "the driver shows no GPU: there is none, or its kernel module is not loaded".to_owned(),
        },
        34 => "what answers as the driver is the toolkit's stub: take its folder from LD_LIBRARY_PATH"
            .to_owned(),
        802 => "the GPUs are not ready: where they are joined by NVSwitch, nvidia-fabricmanager must run"
            .to_owned(),
        803 => "the driver's libraries and its kernel module are of different releases: restart the machine"
            .to_owned(),
        _ => format!("the driver does not start ({words}, error {code}): `nvidia-smi` may say more"),
    }
}

struct Driver(&'static libloading::Library);

impl Driver {
    fn count(&self) -> Result<c_int, String> {
        let mut count = 0;
        // SAFETY: signatures of the driver's interface, unchanged since CUDA 4.
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
        // SAFETY: as above; the texts end within their buffers, whose lengths are given less one.
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
            // A part of a GPU (MIG) has the whole one's address: its free memory is not told this way.
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
        let mut words = std::ptr::null();
        // SAFETY: as above; the text is the driver's and constant.
        let words = unsafe {
            let get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
                self.function("cuGetErrorString")?;
            match get(code, &mut words) {
                0 if !words.is_null() => CStr::from_ptr(words).to_string_lossy(),
                _ => "an error without a name".into(),
            }
        };
        Err(sentence(code, &words))
    }

    /// # Safety
    /// `F` must be the type of the function of that name.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: the caller's promise.
        let symbol = unsafe { self.0.get::<F>(name) };
        symbol.map(|symbol| *symbol).map_err(|_| format!("the driver is broken: it has no {name}"))
    }
}

/// By NVML, because the driver itself tells only with a context, which takes half a gigabyte and half a second.
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
    // SAFETY: signatures of NVML's interface; the search for the library has started NVML.
    unsafe {
        let find = nvml.get::<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int>(
            "nvmlDeviceGetHandleByPciBusId_v2",
        );
        let get =
            nvml.get::<unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int>("nvmlDeviceGetMemoryInfo");
        let told = find.ok()?(bus.as_ptr(), &mut device) == 0 && get.ok()?(device, &mut memory) == 0;
        told.then_some(memory.free)
    }
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

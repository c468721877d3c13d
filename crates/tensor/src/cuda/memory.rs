//! Memory of the device, and memory of the host that the device can copy from by itself.

use crate::error::Error;
use cudarc::driver::{result, sys};

/// Waits for what was queued on the default stream.
///
/// `cuMemsetD8` and copies from pageable memory return before the device has done them, and the engine's own streams do
/// not wait for the default stream: memory could be cleared after its first inputs had been copied there. Runs that shared
/// a GPU had a wrong first validation, most likely for this reason.
fn finish_default_stream(what: &'static str) -> Result<(), Error> {
    // SAFETY: the null stream is the current context's default stream.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }.map_err(|e| Error::driver(what, e))
}

/// A piece of device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Takes memory of the current device, filled with zeros.
    pub fn new(bytes: usize) -> Result<DeviceMemory, Error> {
        let size = bytes.max(256);
        // SAFETY: the context is current; the memory is freed in `drop`.
        let address = unsafe { result::malloc_sync(size) }
            .map_err(|e| Error::driver(format!("give {} MiB of memory", size >> 20), e))?;
        // SAFETY: the range was just allocated.
        unsafe { result::memset_d8_sync(address, 0, size) }.map_err(|e| Error::driver("clear memory", e))?;
        let memory = DeviceMemory { address, bytes };
        finish_default_stream("clear memory")?;
        Ok(memory)
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies from any memory of the host, and waits for it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        assert!(bytes.len() <= self.bytes, "{} bytes into {}", bytes.len(), self.bytes);
        // SAFETY: the place is ours and large enough; the call returns when the host's bytes are no longer needed.
        unsafe { result::memcpy_htod_sync(self.address, bytes) }.map_err(|e| Error::driver("copy", e))?;
        finish_default_stream("copy")
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once. At the end of a process the driver may be gone already.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Page-locked host memory.
#[derive(Debug)]
pub struct PinnedMemory {
    start: *mut u8,
    bytes: usize,
}

// Plain memory; the borrow rules of the slices below hold as for a Vec.
unsafe impl Send for PinnedMemory {}
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Takes page-locked memory, filled with zeros.
    pub fn new(bytes: usize) -> Result<PinnedMemory, Error> {
        // SAFETY: freed in `drop`.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) }
            .map_err(|e| Error::driver(format!("lock {bytes} bytes of host memory"), e))?
            .cast::<u8>();
        // SAFETY: the range was just allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(PinnedMemory { start, bytes })
    }

    /// Where it starts.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the allocation is `bytes` long and initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// Its bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the allocation is `bytes` long and initialised, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

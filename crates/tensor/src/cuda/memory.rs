//! Device memory, and host memory the device can copy from asynchronously.

use crate::error::Error;
use cudarc::driver::{result, sys};

/// Waits for the default stream.
///
/// `cuMemsetD8` and copies from pageable memory return before the device has done them, and the engine's own
/// streams do not wait for the default stream: memory could be cleared after its first inputs were copied there.
/// Runs that shared a GPU had a wrong first validation, most likely for this reason.
fn finish_default_stream(what: &'static str) -> Result<(), Error> {
    // SAFETY: the null stream is the current context's default stream.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }.map_err(|e| Error::driver(what, e))
}

/// A block of device memory, freed on drop.
#[derive(Debug)]
pub struct DeviceMemory {
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates zeroed memory on the current device.
    pub fn new(bytes: usize) -> Result<DeviceMemory, Error> {
        let size = bytes.max(256);
        // SAFETY: the context is current; the memory is freed in `drop`.
        let address = unsafe { result::malloc_sync(size) }
            .map_err(|e| Error::driver(format!("allocate {} MiB of memory", size >> 20), e))?;
        // SAFETY: the range was just allocated.
        unsafe { result::memset_d8_sync(address, 0, size) }.map_err(|e| Error::driver("clear memory", e))?;
        let memory = DeviceMemory { address, bytes };
        finish_default_stream("clear memory")?;
        Ok(memory)
    }

    /// Start address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes, as requested.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies from any host memory, and waits for the copy.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        assert!(bytes.len() <= self.bytes, "{} bytes into {}", bytes.len(), self.bytes);
        // SAFETY: the destination is owned and large enough; the call returns when the host bytes are no longer
        // needed.
        unsafe { result::memcpy_htod_sync(self.address, bytes) }.map_err(|e| Error::driver("copy", e))?;
        finish_default_stream("copy")
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once. At process exit the driver may already be gone.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Page-locked host memory.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory; the slices below follow the borrow rules as for a Vec.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates zeroed page-locked memory.
    pub fn new(bytes: usize) -> Result<PinnedMemory, Error> {
        // SAFETY: freed in `drop`.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) }
            .map_err(|e| Error::driver(format!("allocate {bytes} bytes of page-locked host memory"), e))?
            .cast::<u8>();
        // SAFETY: the range was just allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(PinnedMemory { start, bytes })
    }

    /// The whole allocation.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the allocation is `bytes` long and initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// The whole allocation, writable.
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

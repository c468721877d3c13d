//! A block of memory on the host or on a GPU.

use super::Backend;
use crate::cuda::Cuda;
use crate::cuda::memory::DeviceMemory;
use crate::error::Error;
use crate::memory::ALIGN;
use cudarc::driver::result;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::sync::Arc;

/// Host memory with the alignment the plan expects.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: plain memory; the engine that owns it controls all access.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    fn new(bytes: usize) -> HostMemory {
        let size = bytes.next_multiple_of(ALIGN).max(ALIGN);
        let layout = Layout::from_size_align(size, ALIGN)
            .unwrap_or_else(|_| panic!("{bytes} bytes is too large for an allocation"));
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        HostMemory { start, layout }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Memory of the engine's device.
#[derive(Debug)]
pub(crate) enum Buffer {
    Host(HostMemory, usize),
    Device(DeviceMemory, Arc<Cuda>),
}

impl Buffer {
    pub fn new(backend: &Backend, bytes: usize) -> Result<Buffer, Error> {
        match backend {
            Backend::Cpu => Ok(Buffer::Host(HostMemory::new(bytes), bytes)),
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                Ok(Buffer::Device(DeviceMemory::new(bytes)?, Arc::clone(cuda)))
            }
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Buffer::Host(_, bytes) => *bytes,
            Buffer::Device(memory, _) => memory.bytes(),
        }
    }

    /// Start address on its device.
    pub fn address(&self) -> u64 {
        match self {
            Buffer::Host(memory, _) => memory.start as u64,
            Buffer::Device(memory, _) => memory.address(),
        }
    }

    /// Copies bytes into it, after all queued work.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        assert!(
            offset + data.len() <= self.bytes(),
            "a write of {} bytes at {offset} is out of bounds",
            data.len()
        );
        match self {
            // SAFETY: the range is inside the allocation, and the engine that owns it is not running.
            Buffer::Host(memory, _) => unsafe {
                memory.start.add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len());
            },
            Buffer::Device(memory, cuda) => {
                cuda.bind()?;
                let address = memory.address() + offset as u64;
                // SAFETY: the range is inside the allocation; the copy is finished before `data` goes out of scope.
                unsafe { result::memcpy_htod_async(address, data, cuda.stream()) }
                    .map_err(|e| Error::driver("copy to the device", e))?;
                cuda.synchronize()?;
            }
        }
        Ok(())
    }

    /// Copies bytes out of it, after all queued work.
    pub fn read(&self, range: Range<usize>, data: &mut [u8]) -> Result<(), Error> {
        assert!(
            range.end <= self.bytes() && range.len() == data.len(),
            "a read of {range:?} is out of bounds"
        );
        match self {
            // SAFETY: the range is inside the allocation, and the engine that owns it is not running.
            Buffer::Host(memory, _) => unsafe {
                data.as_mut_ptr().copy_from_nonoverlapping(memory.start.add(range.start), data.len());
            },
            Buffer::Device(memory, cuda) => {
                cuda.bind()?;
                let address = memory.address() + range.start as u64;
                // SAFETY: the range is inside the allocation; the copy is finished before `data` is used.
                unsafe { result::memcpy_dtoh_async(data, address, cuda.stream()) }
                    .map_err(|e| Error::driver("copy from the device", e))?;
                cuda.synchronize()?;
            }
        }
        Ok(())
    }

    /// Sets every byte, in stream order.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        match self {
            // SAFETY: the allocation has that many bytes, and the engine that owns it is not running.
            Buffer::Host(memory, bytes) => unsafe { memory.start.write_bytes(byte, *bytes) },
            Buffer::Device(memory, cuda) => {
                cuda.bind()?;
                if memory.bytes() > 0 {
                    // SAFETY: as above.
                    unsafe { result::memset_d8_async(memory.address(), byte, memory.bytes(), cuda.stream()) }
                        .map_err(|e| Error::driver("fill memory", e))?;
                }
            }
        }
        Ok(())
    }

    /// The whole buffer as floats if it is host memory; an empty slice otherwise.
    pub fn host_f32(&mut self) -> &mut [f32] {
        match self {
            // SAFETY: the allocation has that length, is sufficiently aligned and initialised, and is borrowed
            // mutably.
            Buffer::Host(memory, bytes) => unsafe {
                std::slice::from_raw_parts_mut(memory.start.cast::<f32>(), *bytes / 4)
            },
            Buffer::Device(..) => &mut [],
        }
    }

    pub fn write_f32(&self, start: usize, data: &[f32]) -> Result<(), Error> {
        self.write(start * 4, bytemuck::cast_slice(data))
    }

    pub fn read_f32(&self, range: Range<usize>) -> Result<Vec<f32>, Error> {
        let mut data = vec![0f32; range.len()];
        self.read(range.start * 4..range.end * 4, bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }
}

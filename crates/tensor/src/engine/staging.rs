//! Copies inputs to the device while it computes, through page-locked memory, so that the host does not wait for
//! the previous step. The copies are ordered in the stream between two steps.

use super::Backend;
use crate::cuda::Cuda;
use crate::cuda::memory::PinnedMemory;
use crate::error::Error;
use cudarc::driver::{result, sys};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of copies in flight: the inputs of a few steps.
const SLOTS: usize = 48;

pub(crate) struct Staging(Option<Mutex<Slots>>);

struct Slots {
    cuda: Arc<Cuda>,
    slots: Vec<Slot>,
    next: usize,
}

struct Slot {
    memory: PinnedMemory,
    over: sys::CUevent,
    used: bool,
}

// SAFETY: the event is used by one thread at a time, the one that holds the lock.
unsafe impl Send for Slot {}

impl Staging {
    pub fn new(backend: &Backend) -> Result<Staging, Error> {
        let Backend::Cuda(cuda) = backend else { return Ok(Staging(None)) };
        let slot = |_| {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            let over = result::event::create(flags).map_err(|e| Error::driver("create an event", e))?;
            Ok(Slot { memory: PinnedMemory::new(0)?, over, used: false })
        };
        let slots = (0..SLOTS).map(slot).collect::<Result<_, Error>>()?;
        Ok(Staging(Some(Mutex::new(Slots { cuda: Arc::clone(cuda), slots, next: 0 }))))
    }

    /// Queues a copy to a device address. Returns false, without effect, on the CPU.
    pub fn send(&self, to: u64, bytes: &[u8]) -> Result<bool, Error> {
        let Some(slots) = &self.0 else { return Ok(false) };
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        let cuda = Arc::clone(&slots.cuda);
        cuda.bind()?;
        let at = slots.next % SLOTS;
        slots.next += 1;
        let slot = &mut slots.slots[at];
        if slot.used {
            // SAFETY: the event belongs to this slot and was recorded.
            unsafe { result::event::synchronize(slot.over) }
                .map_err(|e| Error::driver("wait for a copy", e))?;
        }
        if slot.memory.as_slice().len() < bytes.len() {
            slot.memory = PinnedMemory::new(bytes.len().next_power_of_two())?;
        }
        let staged = &mut slot.memory.as_mut_slice()[..bytes.len()];
        staged.copy_from_slice(bytes);
        // SAFETY: the destination is valid for that length; the slot is not written again before its event has
        // completed.
        unsafe {
            result::memcpy_htod_async(to, &*staged, cuda.stream())
                .map_err(|e| Error::driver("send an input", e))?;
            result::event::record(slot.over, cuda.stream())
        }
        .map_err(|e| Error::driver("record an event", e))?;
        slot.used = true;
        Ok(true)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let _ = self.cuda.bind();
        for slot in &self.slots {
            // SAFETY: created in `new`, destroyed once; running copies finish before the memory is freed.
            unsafe {
                let _ = result::event::synchronize(slot.over);
                let _ = result::event::destroy(slot.over);
            }
        }
    }
}

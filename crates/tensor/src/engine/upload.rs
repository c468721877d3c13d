//! Prefetching batches to the device: one thread writes a batch into page-locked memory, a separate stream copies
//! it while other steps compute, and it is moved into a program's inputs when its step is queued.
//!
//! ```text
//! Slot::bytes (host) ──Uploader::send, own stream──> Slot (device) ──Engine::take, compute stream──> inputs of a
//! Program
//! ```
//!
//! Events order the three stages. Only a thread that wants to write a slot whose last copy is still running has to
//! wait.
//!
//! A part of a batch may be the output of another engine's program, on the same device or on another one:
//! [`Uploader::send_with`] copies it from device to device.

use super::{Backend, Engine, Program};
use crate::cuda::Cuda;
use crate::cuda::memory::{DeviceMemory, PinnedMemory};
use crate::error::Error;
use crate::tape::Value;
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// When batches are copied to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Upload {
    /// As soon as they are ready, on a separate stream.
    #[default]
    Ahead,
    /// As `Ahead`, from pageable memory, which the driver copies twice: for comparison.
    AheadPageable,
    /// When their step is queued, on the compute stream.
    WithStep,
}

/// Host memory of a slot.
enum HostSide {
    Pinned(PinnedMemory),
    Pageable(Vec<u8>),
}

impl HostSide {
    fn as_slice(&self) -> &[u8] {
        match self {
            HostSide::Pinned(memory) => memory.as_slice(),
            HostSide::Pageable(bytes) => bytes,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            HostSide::Pinned(memory) => memory.as_mut_slice(),
            HostSide::Pageable(bytes) => bytes,
        }
    }
}

/// Creates slots and copies them to the device; used on the thread that prepares batches.
#[derive(Clone)]
pub struct Uploader {
    device: Option<Arc<Copies>>,
    upload: Upload,
}

/// The copy stream; it outlives all slots.
struct Copies {
    cuda: Arc<Cuda>,
    stream: sys::CUstream,
}

// SAFETY: a stream may be used by any thread.
unsafe impl Send for Copies {}
// SAFETY: as above.
unsafe impl Sync for Copies {}

/// Memory for the inputs of one step.
pub struct Slot {
    memory: Memory,
    /// Size in bytes of the batch last written.
    length: usize,
}

enum Memory {
    Host(Vec<u8>),
    Device(Box<DeviceSlot>),
}

struct DeviceSlot {
    copies: Arc<Copies>,
    host: HostSide,
    /// `None` where batches are copied on the compute stream.
    waiting: Option<DeviceMemory>,
    /// Signals that the copy from the host is finished.
    sent: sys::CUevent,
    /// Signals that the program has its inputs and the slot may be refilled.
    taken: sys::CUevent,
}

// SAFETY: the events are used by one thread at a time, the one that holds the slot.
unsafe impl Send for DeviceSlot {}

impl Engine {
    /// Creates the uploader for the thread that feeds this engine.
    pub fn uploader(&self, upload: Upload) -> Result<Uploader, Error> {
        let device = match &self.backend {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                    .map_err(|e| Error::driver("create a stream", e))?;
                Some(Arc::new(Copies { cuda: Arc::clone(cuda), stream }))
            }
        };
        Ok(Uploader { device, upload })
    }

    /// Copies a slot's batch into the inputs of a program, ordered before its next run and after all queued work.
    /// Inputs beyond the slot's bytes keep their contents.
    pub fn take(&mut self, program: &Program, slot: &mut Slot) -> Result<(), Error> {
        let room = program.inputs.bytes();
        assert!(slot.length <= room, "{} bytes for a program with inputs of {room}", slot.length);
        match (&mut slot.memory, &self.backend) {
            (Memory::Host(bytes), _) => program.inputs.write(0, &bytes[..slot.length]),
            (Memory::Device(device), Backend::Cuda(cuda)) => device.take(cuda, program, slot.length),
            (Memory::Device(_), Backend::Cpu) => {
                panic!("a slot must be taken by the engine it was created for")
            }
        }
    }
}

impl Uploader {
    /// Creates a slot of the given size.
    pub fn slot(&self, bytes: usize) -> Result<Slot, Error> {
        let memory = match &self.device {
            None => Memory::Host(vec![0; bytes]),
            Some(copies) => {
                copies.cuda.bind()?;
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
                let event = || result::event::create(flags).map_err(|e| Error::driver("create an event", e));
                let waiting = match self.upload {
                    Upload::Ahead | Upload::AheadPageable => Some(DeviceMemory::new(bytes)?),
                    Upload::WithStep => None,
                };
                let host = match self.upload {
                    Upload::AheadPageable => HostSide::Pageable(vec![0; bytes]),
                    Upload::Ahead | Upload::WithStep => HostSide::Pinned(PinnedMemory::new(bytes)?),
                };
                let copies = Arc::clone(copies);
                Memory::Device(Box::new(DeviceSlot {
                    copies,
                    host,
                    waiting,
                    sent: event()?,
                    taken: event()?,
                }))
            }
        };
        Ok(Slot { memory, length: 0 })
    }

    /// Whether batches are copied from pageable memory.
    pub fn is_pageable(&self) -> bool {
        self.device.is_some() && self.upload == Upload::AheadPageable
    }

    /// As `send`, but the bytes in `place` come from the kept output `value` of the last run of another engine's
    /// program. If both are on GPUs, the data does not pass through this process's host memory: the driver copies
    /// between two GPUs directly if they can reach each other, and through its own page-locked memory otherwise.
    ///
    /// # Errors
    /// Fails if batches are copied on the compute stream, where no device slot exists.
    pub fn send_with(
        &self,
        slot: &mut Slot,
        length: usize,
        place: Range<usize>,
        (maker, program, value): (&Engine, &Program, Value),
    ) -> Result<(), Error> {
        slot.length = length;
        match (&mut slot.memory, &maker.backend) {
            (Memory::Host(bytes), _) => maker.read_into(program, value, &mut bytes[place]),
            (Memory::Device(device), Backend::Cuda(cuda)) => {
                let (from, bytes) = maker.result_address(program, value);
                assert_eq!(bytes, place.len(), "the output must have the size of its byte range");
                device.send_with(length, place, cuda, from)
            }
            (Memory::Device(device), Backend::Cpu) => {
                maker.read_into(program, value, &mut device.bytes()?[place])?;
                device.send(length)
            }
        }
    }

    /// Starts the copy of a batch in the first `length` bytes of a slot.
    pub fn send(&self, slot: &mut Slot, length: usize) -> Result<(), Error> {
        slot.length = length;
        match &mut slot.memory {
            Memory::Host(_) => Ok(()),
            Memory::Device(device) => device.send(length),
        }
    }
}

impl Slot {
    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Host(bytes) => bytes.len(),
            Memory::Device(device) => device.host.as_slice().len(),
        }
    }

    /// Host memory of the slot, after waiting until it may be overwritten.
    pub fn bytes(&mut self) -> Result<&mut [u8], Error> {
        match &mut self.memory {
            Memory::Host(bytes) => Ok(bytes),
            Memory::Device(device) => device.bytes(),
        }
    }
}

impl DeviceSlot {
    fn bytes(&mut self) -> Result<&mut [u8], Error> {
        self.copies.cuda.bind()?;
        let over = if self.waiting.is_some() { self.sent } else { self.taken };
        // SAFETY: the event belongs to this slot; an event that was never recorded counts as complete.
        unsafe { result::event::synchronize(over) }.map_err(|e| Error::driver("wait for a copy", e))?;
        Ok(self.host.as_mut_slice())
    }

    fn send(&mut self, length: usize) -> Result<(), Error> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let Copies { cuda, stream } = &*self.copies;
        cuda.bind()?;
        wait(*stream, self.taken)?;
        // SAFETY: both buffers hold `length` bytes; the host's are not written before `sent` completes, the
        // device's not before `taken` does.
        unsafe { result::memcpy_htod_async(waiting.address(), &self.host.as_slice()[..length], *stream) }
            .map_err(|e| Error::driver("send a batch", e))?;
        record(self.sent, *stream)
    }

    fn send_with(
        &mut self,
        length: usize,
        place: Range<usize>,
        maker: &Cuda,
        from: u64,
    ) -> Result<(), Error> {
        let Some(waiting) = &self.waiting else {
            return Err(Error::Unsupported(
                "batches copied on the compute stream cannot include the output of another engine: use Upload::Ahead".into(),
            ));
        };
        let Copies { cuda, stream } = &*self.copies;
        let to = waiting.address() + place.start as u64;
        // On the producing stream: after the run that produced it and before the next one.
        maker.bind()?;
        wait(maker.stream(), self.taken)?;
        // SAFETY: both ranges have the same size; events order this copy with those before and after it.
        unsafe {
            if maker.ordinal() == cuda.ordinal() {
                result::memcpy_dtod_async(to, from, place.len(), maker.stream())
            } else {
                let contexts = (cuda.context(), maker.context());
                sys::cuMemcpyPeerAsync(to, contexts.0, from, contexts.1, place.len(), maker.stream()).result()
            }
        }
        .map_err(|e| Error::driver("copy the output of another engine", e))?;
        let moved = Event::new()?;
        record(moved.0, maker.stream())?;
        cuda.bind()?;
        wait(*stream, moved.0)?;
        wait(*stream, self.taken)?;
        for piece in [0..place.start, place.end..length] {
            if piece.is_empty() {
                continue;
            }
            let to = waiting.address() + piece.start as u64;
            // SAFETY: as in `send`.
            unsafe { result::memcpy_htod_async(to, &self.host.as_slice()[piece], *stream) }
                .map_err(|e| Error::driver("send a batch", e))?;
        }
        record(self.sent, *stream)
    }

    fn take(&mut self, cuda: &Cuda, program: &Program, length: usize) -> Result<(), Error> {
        assert_eq!(cuda.ordinal(), self.copies.cuda.ordinal(), "a slot must be taken on its own device");
        cuda.bind()?;
        let (to, stream) = (program.inputs.address(), cuda.stream());
        match &self.waiting {
            Some(waiting) => {
                wait(stream, self.sent)?;
                // SAFETY: both buffers hold `length` bytes; events order this copy with those before and after it.
                unsafe { result::memcpy_dtod_async(to, waiting.address(), length, stream) }
                    .map_err(|e| Error::driver("move a batch", e))?;
            }
            None => {
                // SAFETY: as above; the host's bytes are not written before `taken` completes.
                unsafe { result::memcpy_htod_async(to, &self.host.as_slice()[..length], stream) }
                    .map_err(|e| Error::driver("send a batch", e))?;
            }
        }
        record(self.taken, stream)
    }
}

/// An event of the current device. A stream that already waits for it keeps waiting after it is dropped.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Event, Error> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        result::event::create(flags).map(Event).map_err(|e| Error::driver("create an event", e))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once; the driver keeps it until all waits have passed.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

fn wait(stream: sys::CUstream, event: sys::CUevent) -> Result<(), Error> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: the stream and the event belong to this uploader.
    unsafe { result::stream::wait_event(stream, event, flags) }
        .map_err(|e| Error::driver("make a stream wait for an event", e))
}

fn record(event: sys::CUevent, stream: sys::CUstream) -> Result<(), Error> {
    // SAFETY: the stream and the event belong to this uploader.
    unsafe { result::event::record(event, stream) }.map_err(|e| Error::driver("record an event", e))
}

impl Drop for DeviceSlot {
    fn drop(&mut self) {
        let _ = self.copies.cuda.bind();
        for event in [self.sent, self.taken] {
            // SAFETY: created with the slot, destroyed once; running copies finish before the memory is freed.
            unsafe {
                let _ = result::event::synchronize(event);
                let _ = result::event::destroy(event);
            }
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = self.cuda.bind();
        // SAFETY: created by `uploader`, destroyed once, after all its slots.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

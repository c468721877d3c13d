//! How batches wait on the device for their step: written into page-locked memory by one thread, copied on a stream of
//! its own while other steps compute, and moved into a program's inputs when their turn comes.
//!
//! ```text
//! Slot::bytes (host) ──Uploader::send, own stream──> Slot (device) ──Engine::take, compute stream──> inputs of a Program
//! ```
//!
//! Events order the three; nobody waits but the thread that wants to write a slot whose last copy is not over.
//!
//! Part of a batch may be what a program of another engine has made, on the same device or on another:
//! [`Uploader::send_with`] moves it there from device to device.

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
    /// As soon as they are made, on a stream of their own.
    #[default]
    Ahead,
    /// The same from memory that is not page-locked, which the driver copies twice: to compare.
    AheadPageable,
    /// When their step is queued, on the stream that computes.
    InTurn,
}

/// The bytes of a slot on the host.
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

/// Makes slots and fills them: for the thread that makes batches.
#[derive(Clone)]
pub struct Uploader {
    device: Option<Arc<Copies>>,
    upload: Upload,
}

/// The stream copies run on; it ends after the last slot.
struct Copies {
    cuda: Arc<Cuda>,
    stream: sys::CUstream,
}

// A stream may be used by any thread.
unsafe impl Send for Copies {}
unsafe impl Sync for Copies {}

/// A place for the inputs of one step.
pub struct Slot {
    memory: Memory,
    /// Bytes of the batch that was put in last.
    length: usize,
}

enum Memory {
    Host(Vec<u8>),
    Device(Box<DeviceSlot>),
}

struct DeviceSlot {
    copies: Arc<Copies>,
    host: HostSide,
    /// None where batches are copied in turn.
    waiting: Option<DeviceMemory>,
    /// The copy from the host is over.
    sent: sys::CUevent,
    /// The program has its inputs, and the slot may be filled again.
    taken: sys::CUevent,
}

// Events are used by one thread at a time: the one that holds the slot.
unsafe impl Send for DeviceSlot {}

impl Engine {
    /// For the thread that feeds this engine.
    pub fn uploader(&self, upload: Upload) -> Result<Uploader, Error> {
        let device = match &self.backend {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                    .map_err(|e| Error::driver("make a stream", e))?;
                Some(Arc::new(Copies { cuda: Arc::clone(cuda), stream }))
            }
        };
        Ok(Uploader { device, upload })
    }

    /// Makes what is in a slot the inputs of a program, before its next run and after all that is queued. Inputs beyond
    /// the slot's bytes stay as they are.
    pub fn take(&mut self, program: &Program, slot: &mut Slot) -> Result<(), Error> {
        let room = program.inputs.bytes();
        assert!(slot.length <= room, "{} bytes for a program with inputs of {room}", slot.length);
        match (&mut slot.memory, &self.backend) {
            (Memory::Host(bytes), _) => program.inputs.write(0, &bytes[..slot.length]),
            (Memory::Device(device), Backend::Cuda(cuda)) => device.take(cuda, program, slot.length),
            (Memory::Device(_), Backend::Cpu) => panic!("a slot is taken by the engine it was made for"),
        }
    }
}

impl Uploader {
    /// A slot for as many bytes.
    pub fn slot(&self, bytes: usize) -> Result<Slot, Error> {
        let memory = match &self.device {
            None => Memory::Host(vec![0; bytes]),
            Some(copies) => {
                copies.cuda.bind()?;
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
                let event = || result::event::create(flags).map_err(|e| Error::driver("make an event", e));
                let waiting = match self.upload {
                    Upload::Ahead | Upload::AheadPageable => Some(DeviceMemory::new(bytes)?),
                    Upload::InTurn => None,
                };
                let host = match self.upload {
                    Upload::AheadPageable => HostSide::Pageable(vec![0; bytes]),
                    Upload::Ahead | Upload::InTurn => HostSide::Pinned(PinnedMemory::new(bytes)?),
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

    /// Whether batches are copied from memory that is not page-locked.
    pub fn is_pageable(&self) -> bool {
        self.device.is_some() && self.upload == Upload::AheadPageable
    }

    /// As `send`, but the bytes of `place` are the result `value` of the last run of another engine's program, which was
    /// kept. They never touch the host where both are on GPUs: between two of them the driver copies directly if they can,
    /// and through page-locked memory of its own if they cannot.
    ///
    /// # Errors
    /// Where batches are copied in turn there is no place on the device that could wait for them.
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
                assert_eq!(bytes, place.len(), "what was made is as long as its place");
                device.send_with(length, place, cuda, from)
            }
            (Memory::Device(device), Backend::Cpu) => {
                maker.read_into(program, value, &mut device.bytes()?[place])?;
                device.send(length)
            }
        }
    }

    /// The first `length` bytes of a slot are a batch: sends them on their way.
    pub fn send(&self, slot: &mut Slot, length: usize) -> Result<(), Error> {
        slot.length = length;
        match &mut slot.memory {
            Memory::Host(_) => Ok(()),
            Memory::Device(device) => device.send(length),
        }
    }
}

impl Slot {
    /// How many bytes it holds.
    pub fn room(&self) -> usize {
        match &self.memory {
            Memory::Host(bytes) => bytes.len(),
            Memory::Device(device) => device.host.as_slice().len(),
        }
    }

    /// Its bytes on the host, as soon as they may be written again.
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
        // SAFETY: the event is ours; one that was never recorded is over.
        unsafe { result::event::synchronize(over) }.map_err(|e| Error::driver("wait for a copy", e))?;
        Ok(self.host.as_mut_slice())
    }

    fn send(&mut self, length: usize) -> Result<(), Error> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let Copies { cuda, stream } = &*self.copies;
        cuda.bind()?;
        wait(*stream, self.taken)?;
        // SAFETY: both places hold `length` bytes; the host's are not written before `sent` is over, the device's not
        // before `taken` is.
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
                "batches that are copied in turn cannot be made in part on a device: let them be copied ahead".into(),
            ));
        };
        let Copies { cuda, stream } = &*self.copies;
        let to = waiting.address() + place.start as u64;
        // On the stream that made it: after what makes it, before what makes the next.
        maker.bind()?;
        wait(maker.stream(), self.taken)?;
        // SAFETY: both places hold as many bytes; events order this with the copies before and after it.
        unsafe {
            if maker.ordinal() == cuda.ordinal() {
                result::memcpy_dtod_async(to, from, place.len(), maker.stream())
            } else {
                let contexts = (cuda.context(), maker.context());
                sys::cuMemcpyPeerAsync(to, contexts.0, from, contexts.1, place.len(), maker.stream()).result()
            }
        }
        .map_err(|e| Error::driver("move what another engine made", e))?;
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
        assert_eq!(cuda.ordinal(), self.copies.cuda.ordinal(), "a slot is taken on its own device");
        cuda.bind()?;
        let (to, stream) = (program.inputs.address(), cuda.stream());
        match &self.waiting {
            Some(waiting) => {
                wait(stream, self.sent)?;
                // SAFETY: both places hold `length` bytes; events order this with the copies before and after it.
                unsafe { result::memcpy_dtod_async(to, waiting.address(), length, stream) }
                    .map_err(|e| Error::driver("move a batch", e))?;
            }
            None => {
                // SAFETY: as above; the host's bytes are not written before `taken` is over.
                unsafe { result::memcpy_htod_async(to, &self.host.as_slice()[..length], stream) }
                    .map_err(|e| Error::driver("send a batch", e))?;
            }
        }
        record(self.taken, stream)
    }
}

/// An event of the device that is bound; whoever waits for it on a stream does so even when it is gone.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Event, Error> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        result::event::create(flags).map(Event).map_err(|e| Error::driver("make an event", e))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; the driver keeps it until what waits for it has passed.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

fn wait(stream: sys::CUstream, event: sys::CUevent) -> Result<(), Error> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: both are ours.
    unsafe { result::stream::wait_event(stream, event, flags) }
        .map_err(|e| Error::driver("order two streams", e))
}

fn record(event: sys::CUevent, stream: sys::CUstream) -> Result<(), Error> {
    // SAFETY: both are ours.
    unsafe { result::event::record(event, stream) }.map_err(|e| Error::driver("mark a copy", e))
}

impl Drop for DeviceSlot {
    fn drop(&mut self) {
        let _ = self.copies.cuda.bind();
        for event in [self.sent, self.taken] {
            // SAFETY: made with the slot, destroyed once; copies that are under way end before the memory is given back.
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
        // SAFETY: made by `uploader`, destroyed once, with all its slots gone.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

//! Pinned ring buffers that carry scalars to a step and its report back without either side waiting.

use super::Backend;
use crate::cuda::Cuda;
use crate::cuda::memory::PinnedMemory;
use crate::error::Error;
use crate::step::{Report, SLOTS};
use cudarc::driver::{result, sys};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of steps in flight.
const DEPTH: u64 = 64;

/// Handle of a queued run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

pub(crate) struct Rings {
    next: u64,
    /// Reports that were read, newest last; older ones are dropped.
    done: VecDeque<(u64, Report)>,
    device: Option<DeviceRings>,
}

struct DeviceRings {
    cuda: Arc<Cuda>,
    sent: PinnedMemory,
    received: PinnedMemory,
    /// Start and end events of each run in flight.
    begun: Vec<sys::CUevent>,
    events: Vec<sys::CUevent>,
    /// The first run whose time is not included in `busy` yet.
    untimed: u64,
    busy: Duration,
}

// SAFETY: the events are used by one thread at a time, the one that holds the engine.
unsafe impl Send for DeviceRings {}

const BYTES: usize = SLOTS * 4;

impl Rings {
    pub fn new(backend: &Backend) -> Result<Rings, Error> {
        let device = match backend {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => {
                // With timing: two time stamps per run on the device, no cost on the host.
                let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
                let event = |_| result::event::create(flags).map_err(|e| Error::driver("create an event", e));
                let events = || (0..DEPTH).map(event).collect::<Result<Vec<_>, _>>();
                Some(DeviceRings {
                    cuda: Arc::clone(cuda),
                    sent: PinnedMemory::new(DEPTH as usize * BYTES)?,
                    received: PinnedMemory::new(DEPTH as usize * BYTES)?,
                    begun: events()?,
                    events: events()?,
                    untimed: 0,
                    busy: Duration::ZERO,
                })
            }
        };
        Ok(Rings { next: 0, done: VecDeque::new(), device })
    }

    /// Stores the report of a finished run.
    pub fn keep(&mut self, report: Report) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.note(ticket, report);
        ticket
    }

    fn note(&mut self, ticket: Ticket, report: Report) {
        if self.done.len() as u64 == 4 * DEPTH {
            self.done.pop_front();
        }
        self.done.push_back((ticket.0, report));
    }

    /// Queues the copy of a step's scalars to the device.
    pub fn send(&mut self, cuda: &Cuda, slots: &[f32; SLOTS], to: u64) -> Result<Ticket, Error> {
        let ticket = Ticket(self.next);
        if self.next >= DEPTH {
            // The previous run in this slot must be finished and its report read before the slot is reused.
            let old = Ticket(self.next - DEPTH);
            self.wait(old)?;
        }
        self.next += 1;
        let Some(device) = &mut self.device else { return Ok(ticket) };
        let slot = (ticket.0 % DEPTH) as usize * BYTES;
        let bytes = &mut device.sent.as_mut_slice()[slot..slot + BYTES];
        bytes.copy_from_slice(bytemuck::cast_slice(slots));
        // SAFETY: the slot is pinned and not written again before its event has completed.
        unsafe { result::memcpy_htod_async(to, &*bytes, cuda.stream()) }
            .map_err(|e| Error::driver("send a step's scalars", e))?;
        // SAFETY: the event belongs to this ring, and its previous run is finished.
        unsafe { result::event::record(device.begun[(ticket.0 % DEPTH) as usize], cuda.stream()) }
            .map_err(|e| Error::driver("mark the beginning of a step", e))?;
        Ok(ticket)
    }

    /// Queues the copy of a step's report to the host.
    pub fn receive(&mut self, cuda: &Cuda, ticket: Ticket, from: u64) -> Result<(), Error> {
        let Some(device) = &mut self.device else { return Ok(()) };
        let index = (ticket.0 % DEPTH) as usize;
        let bytes = &mut device.received.as_mut_slice()[index * BYTES..(index + 1) * BYTES];
        // SAFETY: the slot is pinned, and read only after the event recorded below has completed.
        unsafe {
            result::memcpy_dtoh_async(bytes, from, cuda.stream())
                .map_err(|e| Error::driver("receive a step's report", e))?;
            result::event::record(device.events[index], cuda.stream())
        }
        .map_err(|e| Error::driver("mark the end of a step", e))
    }

    pub fn poll(&mut self, ticket: Ticket) -> Result<Option<Report>, Error> {
        if let Some((_, report)) = self.done.iter().find(|(t, _)| *t == ticket.0) {
            return Ok(Some(*report));
        }
        let Some(device) = &mut self.device else { return Err(report_expired(ticket)) };
        if self.next > ticket.0 + DEPTH {
            return Err(report_expired(ticket));
        }
        let index = (ticket.0 % DEPTH) as usize;
        // SAFETY: the event belongs to this ring.
        match unsafe { result::event::query(device.events[index]) } {
            Ok(()) => {}
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => return Ok(None),
            Err(e) => return Err(Error::driver("run a step", e)),
        }
        device.time(ticket);
        let bytes = &device.received.as_slice()[index * BYTES..(index + 1) * BYTES];
        let mut slots = [0f32; SLOTS];
        bytemuck::cast_slice_mut(&mut slots).copy_from_slice(bytes);
        let report = Report::decode(&slots);
        self.note(ticket, report);
        Ok(Some(report))
    }

    /// Device time of all reported runs; `None` on the CPU.
    pub fn busy(&self) -> Option<Duration> {
        self.device.as_ref().map(|device| device.busy)
    }

    pub fn wait(&mut self, ticket: Ticket) -> Result<Report, Error> {
        if let Some(device) = &self.device
            && !self.done.iter().any(|(t, _)| *t == ticket.0)
            && self.next <= ticket.0 + DEPTH
        {
            let index = (ticket.0 % DEPTH) as usize;
            device.cuda.bind()?;
            // SAFETY: the event belongs to this ring.
            unsafe { result::event::synchronize(device.events[index]) }
                .map_err(|e| Error::driver("finish a step", e))?;
        }
        self.poll(ticket)?.ok_or_else(|| report_expired(ticket))
    }
}

impl DeviceRings {
    /// Adds the times of all runs up to a finished one. Earlier runs are finished too, since they share a stream.
    fn time(&mut self, over: Ticket) {
        for run in self.untimed..=over.0 {
            let at = (run % DEPTH) as usize;
            // SAFETY: both events belong to this ring; the driver rejects events that have not completed.
            let ms = unsafe { result::event::elapsed(self.begun[at], self.events[at]) };
            // A run that could not be queued has no end event and counts as zero; its error was reported when it
            // happened.
            self.busy += Duration::from_secs_f64(f64::from(ms.unwrap_or(0.0)).max(0.0) / 1e3);
        }
        self.untimed = self.untimed.max(over.0 + 1);
    }
}

fn report_expired(ticket: Ticket) -> Error {
    Error::Unsupported(format!(
        "the report of run {} is no longer available: request reports sooner",
        ticket.0
    ))
}

impl Drop for DeviceRings {
    fn drop(&mut self) {
        let _ = self.cuda.synchronize();
        for &event in self.begun.iter().chain(&self.events) {
            // SAFETY: created in `new`, destroyed once.
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}

//! Faults on the path of a batch from the loader to the device, on the feed's thread. They only take time, which the feed
//! measures like everything else there.

use super::{EVERY, Fault, FaultKind};
use crate::error::TrainError;
use myxtts_tensor::Engine;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::cuda::memory::DeviceMemory;
use std::sync::Arc;
use std::time::Instant;

/// The fault of one feed.
pub(crate) struct FeedFault {
    fault: &'static Fault,
    /// Batches since it was armed.
    made: u64,
    cuda: Option<Arc<Cuda>>,
    place: Option<DeviceMemory>,
    bytes: Vec<u8>,
}

impl FeedFault {
    pub fn new(fault: &'static Fault, engine: &Engine) -> FeedFault {
        FeedFault { fault, made: 0, cuda: engine.cuda().cloned(), place: None, bytes: Vec::new() }
    }

    /// Called before a slot may be written.
    pub fn lock(&mut self) {
        if self.fault.kind == FaultKind::UploadLock && self.fault.is_armed() {
            self.fault.until_over(self.made);
        }
    }

    /// Called after a batch is filled and before it is sent.
    pub fn stall(&mut self) {
        if !self.fault.is_armed() {
            return;
        }
        self.made += 1;
        if self.fault.kind == FaultKind::PeriodicStall && self.made.is_multiple_of(EVERY) {
            // Longer than all ready batches last.
            std::thread::sleep(self.fault.steps(EVERY as f64 + 4.0));
        }
    }

    /// Called while a batch of `bytes` bytes is sent.
    pub fn copy(&mut self, bytes: usize) -> Result<(), TrainError> {
        match self.fault.kind {
            _ if !self.fault.is_armed() => {}
            FaultKind::UploadLock => std::thread::sleep(self.fault.steps(0.4)),
            FaultKind::PageableUpload => self.copy_pageable(bytes)?,
            _ => {}
        }
        Ok(())
    }

    /// Copies as many bytes repeatedly from pageable memory; does nothing without a device.
    fn copy_pageable(&mut self, bytes: usize) -> Result<(), TrainError> {
        let Some(cuda) = &self.cuda else { return Ok(()) };
        cuda.bind()?;
        if self.bytes.len() < bytes {
            self.bytes = vec![0; bytes];
            self.place = Some(DeviceMemory::new(bytes)?);
        }
        let (began, time) = (Instant::now(), self.fault.steps(1.6));
        while began.elapsed() < time
            && let Some(place) = &mut self.place
        {
            place.write(&self.bytes[..bytes])?;
        }
        Ok(())
    }
}

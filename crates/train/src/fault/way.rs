//! Faults on the way of a batch from the loader to the device, on the feed's thread. They take time and tell nobody: the
//! feed measures them as it measures everything there.

use super::{EVERY, Fault, FaultKind};
use crate::error::TrainError;
use myxtts_tensor::Engine;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::cuda::memory::DeviceMemory;
use std::sync::Arc;
use std::time::Instant;

/// What one feed meets.
pub(crate) struct OnTheWay {
    fault: &'static Fault,
    /// Batches since it was armed.
    made: u64,
    cuda: Option<Arc<Cuda>>,
    place: Option<DeviceMemory>,
    bytes: Vec<u8>,
}

impl OnTheWay {
    pub fn new(fault: &'static Fault, engine: &Engine) -> OnTheWay {
        OnTheWay { fault, made: 0, cuda: engine.cuda().cloned(), place: None, bytes: Vec::new() }
    }

    /// Before a slot may be written.
    pub fn lock(&mut self) {
        if self.fault.plant == FaultKind::UploadLock && self.fault.is_armed() {
            self.fault.until_over(self.made);
        }
    }

    /// After a batch is filled and before it is sent.
    pub fn stall(&mut self) {
        if !self.fault.is_armed() {
            return;
        }
        self.made += 1;
        if self.fault.plant == FaultKind::PeriodicStall && self.made.is_multiple_of(EVERY) {
            // Longer than all that lies ready lasts.
            std::thread::sleep(self.fault.steps(EVERY as f64 + 4.0));
        }
    }

    /// While a batch of so many bytes is sent.
    pub fn copy(&mut self, bytes: usize) -> Result<(), TrainError> {
        match self.fault.plant {
            _ if !self.fault.is_armed() => {}
            FaultKind::UploadLock => std::thread::sleep(self.fault.steps(0.4)),
            FaultKind::PageableUpload => self.copy_pageable(bytes)?,
            _ => {}
        }
        Ok(())
    }

    /// Copies as many bytes again and again from memory that is not page-locked; without a device there is nothing to copy
    /// to, and nothing is done.
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

//! What there is to tune for: the devices of a run, the cores and the memory beside them.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use myxtts_run::config::{HostResources, host::free_memory};
use myxtts_tensor::Device;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::cuda::context::CudaOptions;
use serde::Serialize;

/// The machine of a run, as far as its settings depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The memory of the smallest GPU; none where the processor trains.
    pub gpu: Option<GpuMemory>,
    /// Devices that share every batch.
    pub replicas: usize,
    /// Threads that run at the same time.
    pub cores: usize,
    /// RAM that can be taken; none where the system does not say.
    pub ram_free: Option<u64>,
}

/// The memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuMemory {
    /// All of it.
    pub total: u64,
    /// What nobody holds.
    pub free: u64,
}

impl Facts {
    /// Of these devices, on this machine. GPUs are opened: what the driver takes for that is not free any more.
    pub fn of(machines: &[ComputeDevice]) -> Result<Facts, TrainError> {
        let mut gpu: Option<GpuMemory> = None;
        for machine in machines {
            if let Device::Cuda(ordinal) = machine.device {
                let (free, total) = Cuda::open(ordinal, &CudaOptions::default())?.memory()?;
                let (free, total) = (free as u64, total as u64);
                // The least of each: all of them run the same batches.
                gpu = Some(gpu.map_or(GpuMemory { total, free }, |least| GpuMemory {
                    total: least.total.min(total),
                    free: least.free.min(free),
                }));
            }
        }
        let cores = HostResources::detect().cores;
        Ok(Facts { gpu, replicas: machines.len().max(1), cores, ram_free: free_memory() })
    }
}

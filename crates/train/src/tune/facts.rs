//! The hardware that settings are tuned for: the devices of a run, CPU cores and RAM.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use myxtts_run::config::{HostResources, host::free_memory};
use myxtts_tensor::Device;
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::cuda::context::CudaOptions;
use serde::Serialize;

/// The hardware of a run, as far as settings depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Memory of the smallest GPU; `None` if the CPU trains.
    pub gpu: Option<GpuMemory>,
    /// Number of devices that share every batch.
    pub replicas: usize,
    /// Number of hardware threads.
    pub cores: usize,
    /// Available RAM in bytes; `None` if the system does not report it.
    pub ram_free: Option<u64>,
}

/// The memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuMemory {
    /// All memory.
    pub total: u64,
    /// Memory not in use by any process.
    pub free: u64,
}

impl Facts {
    /// Facts of these devices on this machine. Opens the GPUs: the driver's own memory then counts as used.
    pub fn of(machines: &[ComputeDevice]) -> Result<Facts, TrainError> {
        let mut gpu: Option<GpuMemory> = None;
        for machine in machines {
            if let Device::Cuda(ordinal) = machine.device {
                let (free, total) = Cuda::open(ordinal, &CudaOptions::default())?.memory()?;
                let (free, total) = (free as u64, total as u64);
                // The minimum of each: all GPUs run the same batches.
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

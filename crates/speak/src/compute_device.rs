//! The device a model runs on: the requested one, or the best available.

use myxtts_tensor::cuda::context::CudaOptions;
use myxtts_tensor::{Device, Error, Precision};

/// A device and the precision of activations on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeDevice {
    /// Device that holds the weights.
    pub device: Device,
    /// bf16 if the device supports it, else f32.
    pub precision: Precision,
}

/// Whether `MYXTTS_PRECISION=f32` requests f32 on a GPU that has bf16. It is slower, but results of different machines or
/// numbers of replicas then agree to rounding.
fn is_f32_requested() -> bool {
    std::env::var_os("MYXTTS_PRECISION").is_some_and(|value| value == "f32")
}

impl ComputeDevice {
    /// The CPU in f32.
    pub const CPU: ComputeDevice = ComputeDevice { device: Device::Cpu, precision: Precision::F32 };

    /// Returns the requested device, else the first GPU, else the CPU.
    pub fn choose(requested: Option<Device>) -> Result<ComputeDevice, Error> {
        let gpu = |ordinal| -> Result<ComputeDevice, Error> {
            let cuda = myxtts_tensor::cuda::Cuda::open(ordinal, &CudaOptions::default())?;
            // GPUs before Ampere have no bf16 arithmetic.
            let has_bf16 = cuda.capability().0 >= 8 && !is_f32_requested();
            let precision = if has_bf16 { Precision::Bf16 } else { Precision::F32 };
            Ok(ComputeDevice { device: Device::Cuda(ordinal), precision })
        };
        match requested {
            Some(Device::Cpu) => Ok(ComputeDevice::CPU),
            Some(Device::Cuda(ordinal)) => gpu(ordinal),
            None => Ok(gpu(0).unwrap_or(ComputeDevice::CPU)),
        }
    }

    /// Returns one entry per replica. All use the same precision, bf16 only if every device supports it: otherwise the replicas
    /// would diverge.
    pub fn all(devices: &[Device]) -> Result<Vec<ComputeDevice>, Error> {
        let mut machines = Vec::with_capacity(devices.len());
        for &device in devices {
            machines.push(ComputeDevice::choose(Some(device))?);
        }
        if machines.iter().any(|machine| machine.precision == Precision::F32) {
            machines.iter_mut().for_each(|machine| machine.precision = Precision::F32);
        }
        Ok(machines)
    }
}

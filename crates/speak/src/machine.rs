//! Where a model runs: the device a user names, or the best there is.

use myxtts_tensor::cuda::context::CudaOptions;
use myxtts_tensor::{Device, Error, Precision};

/// A device and the type activations have on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The device.
    pub device: Device,
    /// bf16 where the device computes in it, else f32.
    pub precision: Precision,
}

/// Whether `MYXTTS_PRECISION=f32` asks for f32 on a GPU that has bf16: slower, and what two machines, or one and several
/// replicas, compute can then be compared to rounding.
fn is_exact_asked() -> bool {
    std::env::var_os("MYXTTS_PRECISION").is_some_and(|value| value == "f32")
}

impl Machine {
    /// The processor.
    pub const CPU: Machine = Machine { device: Device::Cpu, precision: Precision::F32 };

    /// What the user named, or the first GPU, or the processor where there is none.
    pub fn choose(named: Option<Device>) -> Result<Machine, Error> {
        let gpu = |ordinal| -> Result<Machine, Error> {
            let cuda = myxtts_tensor::cuda::Cuda::open(ordinal, &CudaOptions::default())?;
            // Before Ampere there is no bf16 arithmetic.
            let has_bf16 = cuda.capability().0 >= 8 && !is_exact_asked();
            let precision = if has_bf16 { Precision::Bf16 } else { Precision::F32 };
            Ok(Machine { device: Device::Cuda(ordinal), precision })
        };
        match named {
            Some(Device::Cpu) => Ok(Machine::CPU),
            Some(Device::Cuda(ordinal)) => gpu(ordinal),
            None => Ok(gpu(0).unwrap_or(Machine::CPU)),
        }
    }

    /// One for each replica. All compute in one type: that of the least able, or they would not stay replicas.
    pub fn all(devices: &[Device]) -> Result<Vec<Machine>, Error> {
        let mut machines = Vec::with_capacity(devices.len());
        for &device in devices {
            machines.push(Machine::choose(Some(device))?);
        }
        if machines.iter().any(|machine| machine.precision == Precision::F32) {
            machines.iter_mut().for_each(|machine| machine.precision = Precision::F32);
        }
        Ok(machines)
    }
}

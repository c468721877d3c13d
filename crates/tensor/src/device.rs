//! Compute devices of this machine: the CPU, and GPUs where the driver and the libraries allow it.

mod cpu;
mod gpu;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::cuda::library::{Libraries, Library, Status};
pub use cpu::Cpu;
pub(crate) use gpu::explain;
pub use gpu::{Capability, Gpu};

/// Oldest compute capability the kernels are compiled and tested for.
pub const OLDEST_CAPABILITY: Capability = Capability { major: 7, minor: 5 };

/// Libraries without which a GPU cannot be used. The others serve multi-GPU training, monitoring and kernel timing.
const NEEDED: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

/// Where tensors are stored and operations run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// The GPU with this index in the driver's order, after `CUDA_VISIBLE_DEVICES`.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is not the name of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a device: write cpu, cuda, or cuda:1 for the second GPU")]
pub struct BadDevice(String);

impl FromStr for Device {
    type Err = BadDevice;

    fn from_str(text: &str) -> Result<Device, BadDevice> {
        let index =
            |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
        match text.split_once(':') {
            None if text == "cpu" => Some(Device::Cpu),
            None if text == "cuda" => Some(Device::Cuda(0)),
            Some(("cuda", digits)) => index(digits).map(Device::Cuda),
            _ => None,
        }
        .ok_or_else(|| BadDevice(text.to_owned()))
    }
}

/// All compute devices of this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Inventory {
    /// The CPU and its memory.
    pub cpu: Cpu,
    /// GPUs in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Why there are no GPUs; `None` where there are some.
    pub no_gpus: Option<String>,
    /// Driver release as NVML reports it, such as 570.86.15.
    pub driver_release: Option<String>,
    /// Search result for each CUDA library.
    pub libraries: Libraries,
    /// Device used for training unless another one is requested.
    pub default: DeviceChoice,
}

/// A device with the reason it was chosen.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceChoice {
    /// The chosen device.
    pub device: Device,
    /// Why it was chosen, as a sentence for display.
    pub reason: String,
}

/// Detects the devices of this machine. Libraries that are found stay loaded. No CUDA context is created, so no GPU
/// memory is used.
pub fn devices() -> Inventory {
    let libraries = Libraries::find();
    let (gpus, no_gpus) = match gpu::list() {
        Ok(gpus) => (gpus, None),
        Err(reason) => (vec![], Some(reason)),
    };
    let driver_release = match &libraries.nvml {
        Status::Found { version, .. } => version.clone(),
        Status::Missing(_) => None,
    };
    let default = choose(&gpus, no_gpus.as_deref(), &libraries);
    Inventory { cpu: Cpu::detect(), gpus, no_gpus, driver_release, libraries, default }
}

fn choose(gpus: &[Gpu], no_gpus: Option<&str>, libraries: &Libraries) -> DeviceChoice {
    let cpu = |reason: String| DeviceChoice { device: Device::Cpu, reason };
    let Some(first) = gpus.first() else {
        return cpu(no_gpus.unwrap_or("the driver shows no GPU").to_owned());
    };
    let missing: Vec<String> = NEEDED
        .into_iter()
        .filter(|library| !libraries.get(*library).is_found())
        .map(|library| library.to_string())
        .collect();
    if !missing.is_empty() {
        return cpu(format!("{} missing for the GPU", subject_and_verb(&missing)));
    }
    match gpus.iter().find(|gpu| gpu.capability >= OLDEST_CAPABILITY) {
        Some(gpu) => DeviceChoice { device: Device::Cuda(gpu.index), reason: gpu.name.clone() },
        None => cpu(format!(
            "{} has compute capability {}, and {OLDEST_CAPABILITY} or newer is needed",
            first.name, first.capability
        )),
    }
}

/// For example `NVRTC and cuBLASLt are`.
fn subject_and_verb(names: &[String]) -> String {
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::library::MissingLibrary;

    #[test]
    fn devices_parse_and_print() {
        for (text, device) in
            [("cpu", Device::Cpu), ("cuda:0", Device::Cuda(0)), ("cuda:12", Device::Cuda(12))]
        {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for text in [
            "",
            "gpu",
            "CPU",
            "cpu:0",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:1:2",
            "cuda:99999999999999999999",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("cuda:1"), "{error}");
        }
    }

    fn libraries(missing: &[Library]) -> Libraries {
        let status = |library: Library| match missing.contains(&library) {
            false => Status::Found { path: "x".into(), version: None },
            true => Status::Missing(MissingLibrary {
                library,
                looked_for: vec![],
                looked_in: vec![],
                refused: vec![],
                install: String::new(),
            }),
        };
        Libraries {
            driver: status(Library::Driver),
            nvrtc: status(Library::Nvrtc),
            cublas_lt: status(Library::CublasLt),
            nccl: status(Library::Nccl),
            nvml: status(Library::Nvml),
            cupti: status(Library::Cupti),
        }
    }

    #[test]
    fn training_runs_on_the_first_capable_gpu() {
        let gpu = |index, major| Gpu {
            index,
            name: format!("GPU {index}"),
            memory_total: 1,
            memory_free: None,
            capability: Capability { major, minor: 0 },
            pci_bus_id: None,
            multiprocessors: 1,
        };
        let all = libraries(&[Library::Nccl, Library::Nvml, Library::Cupti]);
        let chosen = choose(&[gpu(0, 6), gpu(1, 9)], None, &all);
        assert_eq!((chosen.device, chosen.reason.as_str()), (Device::Cuda(1), "GPU 1"));

        let chosen = choose(&[gpu(0, 6)], None, &all);
        assert_eq!(chosen.device, Device::Cpu);
        assert!(chosen.reason.contains("compute capability 6.0, and 7.5"), "{}", chosen.reason);

        let none = libraries(&[Library::Nvrtc, Library::CublasLt]);
        let chosen = choose(&[gpu(0, 9)], None, &none);
        assert_eq!(chosen.device, Device::Cpu);
        assert_eq!(chosen.reason, "NVRTC and cuBLASLt are missing for the GPU");

        let chosen = choose(&[], Some("no driver"), &none);
        assert_eq!((chosen.device, chosen.reason.as_str()), (Device::Cpu, "no driver"));
    }
}

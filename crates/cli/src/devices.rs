//! `myxtts devices`: the CPU, the GPUs and the CUDA libraries, and how to install those that are missing.

use myxtts_run::exit::Exit;
use myxtts_run::memory_size::memory_size;
use myxtts_tensor::cuda::library::{Library, Status};
use myxtts_tensor::device::{self, Cpu, Device, Gpu, Inventory};

use crate::output::{print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let inventory = device::devices();
    if args.json {
        print_json(&inventory)?
    } else {
        print(&as_text(&inventory))?
    }
    Ok(Exit::Done)
}

const NO_GPU: &str = "no NVIDIA GPU or driver found; training runs on the CPU, nothing else is needed\n";

fn as_text(inventory: &Inventory) -> String {
    let mut rows = vec![("cpu".to_owned(), cpu(&inventory.cpu))];
    rows.extend(inventory.gpus.iter().map(|each| (Device::Cuda(each.index).to_string(), gpu(each))));
    rows.extend(inventory.no_gpus.iter().map(|reason| ("gpu".to_owned(), format!("none: {reason}"))));
    let (missing, shown): (Vec<_>, Vec<_>) =
        inventory.libraries.iter().partition(|(_, status)| inventory.gpus.is_empty() && is_not_found(status));
    rows.extend(
        shown.into_iter().map(|(library, status)| (label(library).to_owned(), found(library, status))),
    );
    if !missing.is_empty() {
        rows.push(("libraries".to_owned(), not_needed(&missing)));
    }
    let chosen = &inventory.default;
    let (first, reason) = match &inventory.no_gpus {
        // The row of the GPU has the reason.
        Some(_) => (NO_GPU, String::new()),
        None => ("", format!(": {}", chosen.reason)),
    };
    rows.push(("training".to_owned(), format!("would run on {}{reason}", chosen.device)));
    let rows: String = rows.iter().map(|(name, text)| format!("{name:<12} {text}\n")).collect();
    format!("{first}{rows}")
}

fn label(library: Library) -> &'static str {
    match library {
        Library::Driver => "driver",
        Library::Nvrtc => "NVRTC",
        Library::CublasLt => "cuBLASLt",
        Library::Nccl => "NCCL",
        Library::Nvml => "NVML",
        Library::Cupti => "CUPTI",
    }
}

fn cpu(cpu: &Cpu) -> String {
    let mut parts = vec![cpu.name.clone()];
    parts.extend(cpu.physical_cores.map(|cores| format!("{cores} cores")));
    parts.push(format!("{} threads", cpu.logical_cores));
    if cpu.usable_cores != cpu.logical_cores {
        parts.push(format!("{} of them for this process", cpu.usable_cores));
    }
    parts.extend(cpu.memory_total.map(|total| memory(total, cpu.memory_available)));
    if !cpu.vectors.is_empty() {
        parts.push(cpu.vectors.join(" "));
    }
    parts.join(", ")
}

fn gpu(gpu: &Gpu) -> String {
    let mut parts = vec![gpu.name.clone(), memory(gpu.memory_total, gpu.memory_free)];
    parts.push(format!("compute capability {}", gpu.capability));
    parts.push(format!("{} multiprocessors", gpu.multiprocessors));
    parts.extend(gpu.pci_bus_id.as_ref().map(|bus| format!("PCI {bus}")));
    parts.join(", ")
}

fn memory(total: u64, free: Option<u64>) -> String {
    match free {
        Some(free) => format!("{} memory ({} free)", memory_size(total), memory_size(free)),
        None => format!("{} memory", memory_size(total)),
    }
}

fn is_not_found(status: &Status) -> bool {
    matches!(status, Status::Missing(missing) if missing.refused.is_empty())
}

/// The libraries that a machine without a GPU lacks, in one line.
fn not_needed(missing: &[(Library, &Status)]) -> String {
    let names: Vec<&str> = missing.iter().map(|(library, _)| label(*library)).collect();
    let driver = missing.iter().find_map(|(library, status)| match status {
        Status::Missing(missing) if *library == Library::Driver => Some(&missing.install),
        _ => None,
    });
    let first = driver
        .map_or(String::new(), |install| format!("; if there is one, install its driver first: {install}"));
    format!("needed only with a GPU, and not found: {}{first}", names.join(", "))
}

fn found(library: Library, status: &Status) -> String {
    match status {
        Status::Found { path, version } => {
            // NVML's version is that of the driver, and known only while the driver works.
            let version = version.as_deref().map(|version| match library {
                Library::Nvml => format!("of driver {version}, "),
                _ => format!("{version}, "),
            });
            format!("{}{}", version.unwrap_or_default(), path.display())
        }
        Status::Missing(missing) if missing.refused.is_empty() => {
            format!("not found; to install it: {}", missing.install)
        }
        Status::Missing(missing) => {
            format!("cannot be used: {}; to install it: {}", missing.refused.join("; "), missing.install)
        }
    }
}

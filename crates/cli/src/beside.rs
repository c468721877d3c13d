//! What `diagnose` sees of the machine while a stage runs: NVML and `/proc`, every twentieth of a second.

use std::time::{Duration, Instant};

use myxtts_monitor::host::HostProbe;
use myxtts_monitor::nvml::Nvml;
use myxtts_monitor::{Gpu, Limit, Sampler};
use myxtts_tensor::Device;
use myxtts_train::diagnose::trace::{Cores, Gpu as Traced};
use myxtts_train::diagnose::{Beside, Seen};

/// From one sample to the next. The driver renews its figure of the busy share somewhat less often.
const INTERVAL: Duration = Duration::from_millis(50);

/// Who looks.
pub struct Looking {
    sampler: Option<Sampler<(Option<Gpu>, Option<f64>)>>,
    no_gpu: Option<String>,
}

impl Looking {
    /// At the device a stage runs on, and at the processor. That a GPU cannot be watched is said, and no failure.
    pub fn at(device: Device) -> Looking {
        let (gpu, mut no_gpu) = match nvml_of(device) {
            Ok(gpu) => (Some(gpu), None),
            Err(why) => (None, Some(why)),
        };
        let mut host = HostProbe::new();
        let sampler = Sampler::start(INTERVAL, move || {
            let gpu = gpu.as_ref().map(|(nvml, index)| nvml.brief(*index));
            (gpu, host.sample(None).cpu)
        });
        if let Err(error) = &sampler {
            no_gpu = Some(format!("the thread that looks could not be started: {error}"));
        }
        Looking { sampler: sampler.ok(), no_gpu }
    }
}

/// NVML, and the number it has for a device.
pub fn nvml_of(device: Device) -> Result<(Nvml, usize), String> {
    let Device::Cuda(ordinal) = device else { return Err("the stage runs on the processor".to_owned()) };
    let nvml = Nvml::open()?;
    let gpus = myxtts_tensor::device::devices().gpus;
    // The driver's order and CUDA's differ, and CUDA_VISIBLE_DEVICES hides some: the place on the bus is the same in both.
    let bus = gpus.get(ordinal).and_then(|gpu| gpu.pci_bus_id.as_deref());
    let index = bus.and_then(|bus| nvml.at(bus));
    let index = index.ok_or_else(|| format!("NVML does not know cuda:{ordinal} by its place on the bus"))?;
    Ok((nvml, index))
}

impl Beside for Looking {
    fn seen(&mut self, from: Instant, to: Instant) -> Seen {
        let taken = self.sampler.as_ref().map(|sampler| sampler.between(from, to)).unwrap_or_default();
        let cores = |(at, (_, cpu)): &(f64, (_, Option<f64>))| Some(Cores { at: *at, busy: (*cpu)? / 100.0 });
        let mut no_gpu = self.no_gpu.clone();
        if no_gpu.is_none() && taken.is_empty() {
            no_gpu = Some("the batches were over before a sample was taken: more of them show it".to_owned());
        }
        Seen {
            cores: taken.iter().filter_map(cores).collect(),
            gpu: taken.iter().filter_map(|(at, (gpu, _))| Some(traced(*at, gpu.as_ref()?))).collect(),
            no_gpu,
        }
    }
}

/// What rules ask of a sample.
fn traced(at: f64, gpu: &Gpu) -> Traced {
    let held =
        |limits: &[Limit]| gpu.limits.as_ref().is_some_and(|all| all.iter().any(|l| limits.contains(l)));
    Traced {
        at,
        busy: gpu.utilisation.map(|percent| percent / 100.0),
        temperature: gpu.temperature,
        power: gpu.power,
        clock: gpu.sm_clock,
        clock_most: gpu.sm_clock_most,
        thermal_limit: held(&[Limit::Thermal, Limit::HardwareThermal]),
        power_limit: held(&[Limit::PowerCap, Limit::PowerBrake]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_says_what_holds_the_gpu_back() {
        let of = |limits: &[Limit]| {
            let gpu = Gpu { utilisation: Some(97.0), limits: Some(limits.to_vec()), ..Gpu::default() };
            let traced = traced(0.5, &gpu);
            (traced.busy, traced.thermal_limit, traced.power_limit)
        };
        assert_eq!(of(&[Limit::Idle, Limit::SyncBoost]), (Some(0.97), false, false));
        assert_eq!(of(&[Limit::HardwareThermal]), (Some(0.97), true, false));
        assert_eq!(of(&[Limit::PowerCap, Limit::Thermal]), (Some(0.97), true, true));
        assert!(!traced(0.0, &Gpu::default()).thermal_limit);
    }

    #[test]
    fn on_the_processor_there_are_cores_and_a_reason_for_no_gpu() {
        let from = Instant::now();
        let mut looking = Looking::at(Device::Cpu);
        let mut seen = looking.seen(from, Instant::now());
        while seen.cores.len() < 2 {
            seen = looking.seen(from, Instant::now());
        }
        assert!(seen.gpu.is_empty() && seen.no_gpu.is_some());
        assert!(seen.cores.iter().all(|cores| (0.0..=1.0).contains(&cores.busy)), "{:?}", seen.cores);
    }
}

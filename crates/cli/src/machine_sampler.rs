//! Samples the machine for `diagnose` while a stage runs: NVML and `/proc`, every 50 ms.

use std::time::{Duration, Instant};

use myxtts_monitor::host::HostProbe;
use myxtts_monitor::nvml::Nvml;
use myxtts_monitor::{ClockLimit, GpuSample, Sampler};
use myxtts_tensor::Device;
use myxtts_train::diagnose::trace::{CoresSample, GpuSample as TracedGpu};
use myxtts_train::diagnose::{MachineSampler, MachineSamples};

/// Interval between samples. The driver updates its utilisation somewhat less often.
const INTERVAL: Duration = Duration::from_millis(50);

/// Samples a GPU and the CPU on a thread of its own.
pub struct NvmlSampler {
    sampler: Option<Sampler<(Option<GpuSample>, Option<f64>)>>,
    /// Why there are no samples of a GPU.
    no_gpu: Option<String>,
}

impl NvmlSampler {
    /// Starts sampling the device of a stage, and the CPU. A GPU that cannot be sampled is reported in the samples.
    pub fn start(device: Device) -> NvmlSampler {
        let (gpu, mut no_gpu) = match nvml_of(device) {
            Ok(gpu) => (Some(gpu), None),
            Err(why) => (None, Some(why)),
        };
        let mut host = HostProbe::new();
        let sampler = Sampler::start(INTERVAL, move || {
            let gpu = gpu.as_ref().map(|(nvml, index)| nvml.quick_sample(*index));
            (gpu, host.sample(None).cpu)
        });
        if let Err(error) = &sampler {
            no_gpu = Some(format!("the sampling thread could not be started: {error}"));
        }
        NvmlSampler { sampler: sampler.ok(), no_gpu }
    }
}

/// NVML, and its index of a device.
pub fn nvml_of(device: Device) -> Result<(Nvml, usize), String> {
    let Device::Cuda(ordinal) = device else { return Err("the stage runs on the CPU".to_owned()) };
    let nvml = Nvml::open()?;
    let gpus = myxtts_tensor::device::devices().gpus;
    // NVML and CUDA order GPUs differently, and CUDA_VISIBLE_DEVICES hides some: the PCI bus id is the same in both.
    let bus = gpus.get(ordinal).and_then(|gpu| gpu.pci_bus_id.as_deref());
    let index = bus.and_then(|bus| nvml.index_of(bus));
    let index = index.ok_or_else(|| format!("NVML does not know the PCI bus id of cuda:{ordinal}"))?;
    Ok((nvml, index))
}

impl MachineSampler for NvmlSampler {
    fn samples(&mut self, from: Instant, to: Instant) -> MachineSamples {
        let taken = self.sampler.as_ref().map(|sampler| sampler.between(from, to)).unwrap_or_default();
        let cores =
            |(at, (_, cpu)): &(f64, (_, Option<f64>))| Some(CoresSample { at: *at, busy: (*cpu)? / 100.0 });
        let mut no_gpu = self.no_gpu.clone();
        if no_gpu.is_none() && taken.is_empty() {
            no_gpu = Some("the batches ended before the first sample: raise --num-batches".to_owned());
        }
        MachineSamples {
            cores: taken.iter().filter_map(cores).collect(),
            gpu: taken.iter().filter_map(|(at, (gpu, _))| Some(traced(*at, gpu.as_ref()?))).collect(),
            no_gpu,
        }
    }
}

/// The part of a sample that the rules of `diagnose` read.
fn traced(at: f64, gpu: &GpuSample) -> TracedGpu {
    let is_limited =
        |limits: &[ClockLimit]| gpu.limits.as_ref().is_some_and(|all| all.iter().any(|l| limits.contains(l)));
    TracedGpu {
        at,
        busy: gpu.utilisation.map(|percent| percent / 100.0),
        temperature: gpu.temperature,
        power: gpu.power,
        clock: gpu.sm_clock,
        clock_most: gpu.sm_clock_max,
        thermal_limit: is_limited(&[ClockLimit::Thermal, ClockLimit::HardwareThermal]),
        power_limit: is_limited(&[ClockLimit::PowerCap, ClockLimit::PowerBrake]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_limits_are_thermal_or_power_limits() {
        let of = |limits: &[ClockLimit]| {
            let gpu =
                GpuSample { utilisation: Some(97.0), limits: Some(limits.to_vec()), ..GpuSample::default() };
            let traced = traced(0.5, &gpu);
            (traced.busy, traced.thermal_limit, traced.power_limit)
        };
        assert_eq!(of(&[ClockLimit::Idle, ClockLimit::SyncBoost]), (Some(0.97), false, false));
        assert_eq!(of(&[ClockLimit::HardwareThermal]), (Some(0.97), true, false));
        assert_eq!(of(&[ClockLimit::PowerCap, ClockLimit::Thermal]), (Some(0.97), true, true));
        assert!(!traced(0.0, &GpuSample::default()).thermal_limit);
    }

    #[test]
    fn on_the_cpu_there_are_cores_and_a_reason_for_no_gpu() {
        let from = Instant::now();
        let mut sampler = NvmlSampler::start(Device::Cpu);
        let mut samples = sampler.samples(from, Instant::now());
        while samples.cores.len() < 2 {
            samples = sampler.samples(from, Instant::now());
        }
        assert!(samples.gpu.is_empty() && samples.no_gpu.is_some());
        assert!(samples.cores.iter().all(|cores| (0.0..=1.0).contains(&cores.busy)), "{:?}", samples.cores);
    }
}

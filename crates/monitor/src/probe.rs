//! Sources of samples, and the monitor that reads them.

use std::time::SystemTime;

use crate::attached_run::AttachedRun;
use crate::host::HostProbe;
use crate::nvml::Nvml;
use crate::sample::{GpuSample, HostSample, Sample};
use crate::summary::{Summary, SummaryBuilder};

/// Samples a machine.
pub trait Probe {
    /// Current time in seconds since 1970.
    fn now(&mut self) -> f64;
    /// CPU and memory since the last call; `run` is the training process.
    fn host(&mut self, run: Option<u32>) -> HostSample;
    /// All GPUs; their number never changes.
    fn gpus(&mut self) -> Vec<GpuSample>;
    /// Why there are no GPUs to monitor; `None` if there are some.
    fn gpu_error(&self) -> Option<&str>;
}

/// The machine this program runs on.
pub struct LocalMachine {
    host: HostProbe,
    gpus: Result<Nvml, String>,
}

impl LocalMachine {
    /// Opens NVML; without it only CPU and memory are sampled.
    pub fn new() -> LocalMachine {
        LocalMachine { host: HostProbe::new(), gpus: Nvml::open() }
    }
}

impl Default for LocalMachine {
    fn default() -> Self {
        LocalMachine::new()
    }
}

impl Probe for LocalMachine {
    fn now(&mut self) -> f64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.as_millis() as f64 / 1000.0
    }

    fn host(&mut self, run: Option<u32>) -> HostSample {
        self.host.sample(run)
    }

    fn gpus(&mut self) -> Vec<GpuSample> {
        let mut gpus = self.gpus.as_ref().map(Nvml::sample).unwrap_or_default();
        for process in gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
            process.name = self.host.name_of(process.pid);
        }
        gpus
    }

    fn gpu_error(&self) -> Option<&str> {
        self.gpus.as_ref().err().map(String::as_str)
    }
}

/// Samples a machine and optionally a run, and accumulates the summary.
pub struct Monitor<P> {
    probe: P,
    run: Option<AttachedRun>,
    summary: SummaryBuilder,
}

impl<P: Probe> Monitor<P> {
    /// Creates a monitor without samples.
    pub fn new(probe: P, run: Option<AttachedRun>) -> Self {
        Monitor { probe, run, summary: SummaryBuilder::new() }
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Sample {
        let run = self.run.as_mut().map(AttachedRun::read);
        let gpus = self.probe.gpus();
        let host = self.probe.host(run.as_ref().and_then(|run| run.pid));
        let sample = Sample { time: self.probe.now(), host, gpus, run };
        self.summary.add(&sample);
        sample
    }

    /// Summary of all samples so far.
    pub fn summary(&self) -> Summary {
        self.summary.summary()
    }

    /// Why there are no GPUs to monitor; `None` if there are some.
    pub fn gpu_error(&self) -> Option<&str> {
        self.probe.gpu_error()
    }
}

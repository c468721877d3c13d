//! Who is asked what the machine does: this machine, or one that is played.

use std::time::SystemTime;

use crate::attached::Attached;
use crate::host::HostProbe;
use crate::nvml::Nvml;
use crate::sample::{Gpu, Host, Sample};
use crate::summary::Tally;

/// Answers what a machine does now.
pub trait Probe {
    /// Seconds since 1970.
    fn now(&mut self) -> f64;
    /// Processor and memory since the last call; `run` is the process that trains.
    fn host(&mut self, run: Option<u32>) -> Host;
    /// The GPUs, always as many.
    fn gpus(&mut self) -> Vec<Gpu>;
    /// Why there are no GPUs, in a sentence.
    fn no_gpus(&self) -> Option<&str>;
}

/// The machine this runs on.
pub struct Machine {
    host: HostProbe,
    gpus: Result<Nvml, String>,
}

impl Machine {
    /// Looks for a driver; without one there is still the processor to watch.
    pub fn new() -> Machine {
        Machine { host: HostProbe::new(), gpus: Nvml::open() }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine::new()
    }
}

impl Probe for Machine {
    fn now(&mut self) -> f64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.as_millis() as f64 / 1000.0
    }

    fn host(&mut self, run: Option<u32>) -> Host {
        self.host.sample(run)
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        let mut gpus = self.gpus.as_ref().map(Nvml::sample).unwrap_or_default();
        for process in gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
            process.name = self.host.name_of(process.pid);
        }
        gpus
    }

    fn no_gpus(&self) -> Option<&str> {
        self.gpus.as_ref().err().map(String::as_str)
    }
}

/// A machine that is played: a GPU whose utilisation is a function of time.
pub struct Simulated<F> {
    time: f64,
    interval: f64,
    utilisation: F,
}

impl<F: FnMut(f64) -> Option<f64>> Simulated<F> {
    /// Time passes by `interval` seconds with every sample, and begins at 0.
    pub fn new(interval: f64, utilisation: F) -> Self {
        Simulated { time: -interval, interval, utilisation }
    }
}

impl<F: FnMut(f64) -> Option<f64>> Probe for Simulated<F> {
    fn now(&mut self) -> f64 {
        self.time += self.interval;
        self.time
    }

    fn host(&mut self, _run: Option<u32>) -> Host {
        Host { cpu: Some(25.0), memory_used: Some(4 << 30), memory_total: Some(16 << 30), ..Host::default() }
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        let name = Some("simulated".to_owned());
        vec![Gpu { name, utilisation: (self.utilisation)(self.time), ..Gpu::default() }]
    }

    fn no_gpus(&self) -> Option<&str> {
        None
    }
}

/// Takes samples of a machine, and of a run where one is watched, and keeps count.
pub struct Monitor<P> {
    probe: P,
    run: Option<Attached>,
    tally: Tally,
}

impl<P: Probe> Monitor<P> {
    /// Nothing is sampled yet.
    pub fn new(probe: P, run: Option<Attached>) -> Self {
        Monitor { probe, run, tally: Tally::new() }
    }

    /// A sample of this moment.
    pub fn sample(&mut self) -> Sample {
        let run = self.run.as_mut().map(Attached::read);
        let gpus = self.probe.gpus();
        let host = self.probe.host(run.as_ref().and_then(|run| run.pid));
        let sample = Sample { time: self.probe.now(), host, gpus, run };
        self.tally.add(&sample);
        sample
    }

    /// All samples so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Why there are no GPUs, in a sentence.
    pub fn no_gpus(&self) -> Option<&str> {
        self.probe.no_gpus()
    }
}

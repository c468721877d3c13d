//! A machine whose values follow a script.

use myxtts_monitor::{GpuSample, HostSample, Probe};

/// A simulated machine with one GPU whose utilisation is a function of time.
pub struct SimulatedMachine<F> {
    time: f64,
    interval: f64,
    utilisation: F,
}

impl<F: FnMut(f64) -> Option<f64>> SimulatedMachine<F> {
    /// Time starts at 0 and advances by `interval` seconds per sample.
    pub fn new(interval: f64, utilisation: F) -> Self {
        SimulatedMachine { time: -interval, interval, utilisation }
    }
}

impl<F: FnMut(f64) -> Option<f64>> Probe for SimulatedMachine<F> {
    fn now(&mut self) -> f64 {
        self.time += self.interval;
        self.time
    }

    fn host(&mut self, _run: Option<u32>) -> HostSample {
        HostSample {
            cpu: Some(25.0),
            memory_used: Some(4 << 30),
            memory_total: Some(16 << 30),
            ..HostSample::default()
        }
    }

    fn gpus(&mut self) -> Vec<GpuSample> {
        let name = Some("simulated".to_owned());
        vec![GpuSample { name, utilisation: (self.utilisation)(self.time), ..GpuSample::default() }]
    }

    fn gpu_error(&self) -> Option<&str> {
        None
    }
}

//! Values of one moment. Unknown values are `None`, which is normal for some values of a GPU.

use serde::{Deserialize, Serialize};

/// All values of one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    /// CPU and memory.
    pub host: HostSample,
    /// Every GPU, in `nvidia-smi` order.
    pub gpus: Vec<GpuSample>,
    /// State of the monitored run, if any.
    pub run: Option<RunSample>,
}

/// CPU and memory of the machine, and the run's share of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// CPU use in percent of all cores, since the previous sample.
    pub cpu: Option<f64>,
    /// Memory in use in bytes: what is not available without swapping.
    pub memory_used: Option<u64>,
    /// Total memory in bytes.
    pub memory_total: Option<u64>,
    /// CPU use of the run's process in percent of one core: 250 is two and a half cores.
    pub run_cpu: Option<f64>,
    /// Resident memory of the run's process in bytes.
    pub run_memory: Option<u64>,
}

/// Values of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// Product name.
    pub name: Option<String>,
    /// Percent of the driver's last window (1/6 s to 1 s) in which a kernel ran.
    pub utilisation: Option<f64>,
    /// Percent of the same window in which its memory was read or written.
    pub memory_activity: Option<f64>,
    /// Memory in use in bytes.
    pub memory_used: Option<u64>,
    /// Total memory in bytes.
    pub memory_total: Option<u64>,
    /// Power draw in watts.
    pub power: Option<f64>,
    /// Power limit in watts.
    pub power_limit: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature: Option<f64>,
    /// Clock of the multiprocessors in MHz.
    pub sm_clock: Option<f64>,
    /// Maximum clock of the multiprocessors in MHz.
    #[serde(rename = "sm_clock_most")]
    pub sm_clock_max: Option<f64>,
    /// Memory clock in MHz.
    pub memory_clock: Option<f64>,
    /// Bytes per second received over PCIe.
    pub pcie_in: Option<f64>,
    /// Bytes per second sent over PCIe.
    pub pcie_out: Option<f64>,
    /// Reasons why the clocks are limited.
    pub limits: Option<Vec<ClockLimit>>,
    /// Compute and graphics processes on it.
    pub processes: Vec<GpuProcess>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process id as the driver sees it; differs from the local one in a container.
    pub pid: u32,
    /// Program name, if known.
    pub name: Option<String>,
    /// GPU memory in bytes.
    pub memory: Option<u64>,
}

/// Reason why clocks are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockLimit {
    /// The GPU is idle.
    Idle,
    /// The clocks were set by the user.
    SetByUser,
    /// The power limit.
    PowerCap,
    /// The hardware slowed down because of heat or power.
    HardwareSlowdown,
    /// Clocks of several GPUs are synchronised.
    SyncBoost,
    /// Temperature, limited by the driver.
    Thermal,
    /// Temperature, limited by the hardware.
    HardwareThermal,
    /// Power brake asserted by the power supply.
    PowerBrake,
    /// Display clock setting.
    Display,
    /// A reason unknown to this program.
    Other,
}

impl ClockLimit {
    const BITS: [(u64, ClockLimit); 9] = [
        (0x1, ClockLimit::Idle),
        (0x2, ClockLimit::SetByUser),
        (0x4, ClockLimit::PowerCap),
        (0x8, ClockLimit::HardwareSlowdown),
        (0x10, ClockLimit::SyncBoost),
        (0x20, ClockLimit::Thermal),
        (0x40, ClockLimit::HardwareThermal),
        (0x80, ClockLimit::PowerBrake),
        (0x100, ClockLimit::Display),
    ];

    /// Converts NVML's bit mask.
    pub fn from_mask(mask: u64) -> Vec<ClockLimit> {
        let known = Self::BITS.iter().fold(0, |all, (bit, _)| all | bit);
        let named = Self::BITS.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, limit)| *limit);
        named.chain((mask & !known != 0).then_some(ClockLimit::Other)).collect()
    }

    /// Description for display.
    pub fn description(self) -> &'static str {
        match self {
            ClockLimit::Idle => "idle",
            ClockLimit::SetByUser => "clocks set by the user",
            ClockLimit::PowerCap => "power cap",
            ClockLimit::HardwareSlowdown => "hardware slowdown",
            ClockLimit::SyncBoost => "synchronised clocks",
            ClockLimit::Thermal => "temperature",
            ClockLimit::HardwareThermal => "temperature (hardware)",
            ClockLimit::PowerBrake => "power brake",
            ClockLimit::Display => "display",
            ClockLimit::Other => "unknown reason",
        }
    }
}

/// State of a run, from its `events.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSample {
    /// Current stage.
    pub stage: Option<String>,
    /// Completed steps of the stage.
    pub step: Option<u64>,
    /// Total steps of the stage.
    pub steps: Option<u64>,
    /// Steps per second between the last two logged steps.
    pub steps_per_second: Option<f64>,
    /// Clips per second over its last seconds.
    pub clips_per_second: Option<f64>,
    /// Fraction of time in which a step ran on the GPU.
    #[serde(rename = "busy")]
    pub on_device: Option<f64>,
    /// Fraction of time in which the loop waited for batches.
    pub wait: Option<f64>,
    /// Time of its last event in seconds since 1970.
    #[serde(rename = "told")]
    pub last_event: Option<f64>,
    /// Id of the training process, if it runs on this machine.
    pub pid: Option<u32>,
    /// How the stage ended, or that no process is training it.
    pub ended: Option<String>,
    /// Why its events cannot be read, if they cannot.
    pub unreadable: Option<String>,
}

/// Seconds after its last event for which a run without a visible process (another container or machine) counts as live.
const LIVE_SECONDS: f64 = 120.0;

impl RunSample {
    /// Whether its values are current: those of a finished run must not enter the means.
    pub fn is_live(&self, now: f64) -> bool {
        self.ended.is_none()
            && (self.pid.is_some() || self.last_event.is_some_and(|time| now - time <= LIVE_SECONDS))
    }
}

/// Unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Unit {
    Percent,
    Bytes,
    BytesPerSecond,
    Watts,
    Celsius,
    Megahertz,
    ClipsPerSecond,
}

impl Unit {
    /// Name as used in column names.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Percent => "percent",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Watts => "watts",
            Unit::Celsius => "celsius",
            Unit::Megahertz => "megahertz",
            Unit::ClipsPerSecond => "clips_per_second",
        }
    }
}

/// One value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// Name such as `cpu` or `utilisation`.
    pub name: &'static str,
    /// Index of the GPU it belongs to; `None` for the host and the run.
    pub gpu: Option<usize>,
    /// Unit of the value.
    pub unit: Unit,
    /// The value, if known.
    pub value: Option<f64>,
}

impl Sample {
    /// All varying quantities in a fixed order, as logged in columns and summarised.
    pub fn quantities(&self) -> Vec<Quantity> {
        let bytes = |value: Option<u64>| value.map(|value| value as f64);
        let host = &self.host;
        let mut all = Vec::new();
        let mut add = |gpu, name, unit, value: Option<f64>| {
            all.push(Quantity { name, gpu, unit, value: value.filter(|value| value.is_finite()) });
        };
        add(None, "cpu", Unit::Percent, host.cpu);
        add(None, "memory", Unit::Bytes, bytes(host.memory_used));
        add(None, "run_cpu", Unit::Percent, host.run_cpu);
        add(None, "run_memory", Unit::Bytes, bytes(host.run_memory));
        let run = self.run.as_ref().filter(|run| run.is_live(self.time));
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        add(None, "run_rate", Unit::ClipsPerSecond, run.and_then(|run| run.clips_per_second));
        add(None, "run_busy", Unit::Percent, percent(run.and_then(|run| run.on_device)));
        add(None, "run_wait", Unit::Percent, percent(run.and_then(|run| run.wait)));
        for (index, gpu) in self.gpus.iter().enumerate() {
            let at = Some(index);
            add(at, "utilisation", Unit::Percent, gpu.utilisation);
            add(at, "memory_activity", Unit::Percent, gpu.memory_activity);
            add(at, "memory", Unit::Bytes, bytes(gpu.memory_used));
            add(at, "power", Unit::Watts, gpu.power);
            add(at, "temperature", Unit::Celsius, gpu.temperature);
            add(at, "sm_clock", Unit::Megahertz, gpu.sm_clock);
            add(at, "memory_clock", Unit::Megahertz, gpu.memory_clock);
            add(at, "pcie_in", Unit::BytesPerSecond, gpu.pcie_in);
            add(at, "pcie_out", Unit::BytesPerSecond, gpu.pcie_out);
        }
        all
    }
}

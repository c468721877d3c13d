//! What was found at one moment. Whatever could not be found is `None`: that is normal for single figures of a GPU.

use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    /// Processor and memory.
    pub host: Host,
    /// Every GPU, in the order of `nvidia-smi`.
    pub gpus: Vec<Gpu>,
    /// What the run says of itself, where one is watched.
    pub run: Option<Run>,
}

/// Processor and memory of the machine, and the run's part of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Percent of all cores, since the sample before.
    pub cpu: Option<f64>,
    /// Bytes in use: what could not be had without swapping.
    pub memory_used: Option<u64>,
    /// Bytes, all of them.
    pub memory_total: Option<u64>,
    /// Percent of one core that the run's process took: 250 is two cores and a half.
    pub run_cpu: Option<f64>,
    /// Bytes of memory that the run's process holds.
    pub run_memory: Option<u64>,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// As its maker calls it.
    pub name: Option<String>,
    /// Percent of the driver's last window (a sixth of a second to one) in which a kernel ran.
    pub utilisation: Option<f64>,
    /// Percent of the same window in which its memory was read or written.
    pub memory_activity: Option<f64>,
    /// Bytes in use.
    pub memory_used: Option<u64>,
    /// Bytes, all of them.
    pub memory_total: Option<u64>,
    /// Watts.
    pub power: Option<f64>,
    /// Watts it may draw.
    pub power_limit: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Megahertz of the multiprocessors.
    pub sm_clock: Option<f64>,
    /// The most they can have.
    pub sm_clock_most: Option<f64>,
    /// Megahertz of the memory.
    pub memory_clock: Option<f64>,
    /// Bytes per second that come over PCIe.
    pub pcie_in: Option<f64>,
    /// Bytes per second that leave over PCIe.
    pub pcie_out: Option<f64>,
    /// Why the clocks are not higher.
    pub limits: Option<Vec<Limit>>,
    /// Who computes or draws on it.
    pub processes: Vec<Process>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as the driver counts: another than ours where this is a container.
    pub pid: u32,
    /// Its program, where the system knows it.
    pub name: Option<String>,
    /// Bytes of the GPU's memory.
    pub memory: Option<u64>,
}

/// Why clocks are not higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Nothing to do.
    Idle,
    /// Somebody has set the clocks.
    SetByUser,
    /// The power it may draw.
    PowerCap,
    /// The hardware has slowed down, for heat or power.
    HardwareSlowdown,
    /// Clocks of several GPUs are kept equal.
    SyncBoost,
    /// Heat, as the driver sees it.
    Thermal,
    /// Heat, as the hardware sees it.
    HardwareThermal,
    /// The power supply has asked for less.
    PowerBrake,
    /// A display needs these clocks.
    Display,
    /// Something newer than this program.
    Other,
}

impl Limit {
    const BITS: [(u64, Limit); 9] = [
        (0x1, Limit::Idle),
        (0x2, Limit::SetByUser),
        (0x4, Limit::PowerCap),
        (0x8, Limit::HardwareSlowdown),
        (0x10, Limit::SyncBoost),
        (0x20, Limit::Thermal),
        (0x40, Limit::HardwareThermal),
        (0x80, Limit::PowerBrake),
        (0x100, Limit::Display),
    ];

    /// The limits in NVML's mask.
    pub fn of_mask(mask: u64) -> Vec<Limit> {
        let known = Self::BITS.iter().fold(0, |all, (bit, _)| all | bit);
        let named = Self::BITS.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, limit)| *limit);
        named.chain((mask & !known != 0).then_some(Limit::Other)).collect()
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Limit::Idle => "nothing to do",
            Limit::SetByUser => "clocks set by hand",
            Limit::PowerCap => "power cap",
            Limit::HardwareSlowdown => "hardware slowdown",
            Limit::SyncBoost => "clocks kept equal",
            Limit::Thermal => "heat",
            Limit::HardwareThermal => "heat (hardware)",
            Limit::PowerBrake => "power brake",
            Limit::Display => "display",
            Limit::Other => "unknown reason",
        }
    }
}

/// What a run says of itself in `events.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The stage it is in.
    pub stage: Option<String>,
    /// Steps of the stage that are done.
    pub step: Option<u64>,
    /// Steps that the stage has.
    pub steps: Option<u64>,
    /// Steps per second, between the last two steps it has told of.
    pub steps_per_second: Option<f64>,
    /// Clips per second, over its last seconds.
    pub clips_per_second: Option<f64>,
    /// Share of the time in which steps were on the GPU.
    pub busy: Option<f64>,
    /// Share of the time in which the loop waited for batches.
    pub wait: Option<f64>,
    /// When it last said something, in seconds since 1970.
    pub told: Option<f64>,
    /// The process that trains, where it lives here.
    pub pid: Option<u32>,
    /// How the stage ended, or that nobody trains it.
    pub ended: Option<String>,
    /// Why its events cannot be read, where they cannot.
    pub unreadable: Option<String>,
}

/// A run whose process is not seen (another container, another machine) is taken for alive so long after its last word.
const SILENT: f64 = 120.0;

impl Run {
    /// Whether its figures are of this moment: those of a run that is over must not go into means.
    pub fn is_live(&self, now: f64) -> bool {
        self.ended.is_none() && (self.pid.is_some() || self.told.is_some_and(|told| now - told <= SILENT))
    }
}

/// What a quantity is counted in.
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
    /// As it stands in the name of a column.
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

/// One number of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// Such as `cpu` or `utilisation`.
    pub name: &'static str,
    /// The GPU it belongs to.
    pub gpu: Option<usize>,
    /// What it is counted in.
    pub unit: Unit,
    /// What was found.
    pub value: Option<f64>,
}

impl Sample {
    /// Every quantity that varies, always in the same order: what is logged as a column and summed up.
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
        add(None, "run_busy", Unit::Percent, percent(run.and_then(|run| run.busy)));
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

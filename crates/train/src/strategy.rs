//! Chooses where a run trains: a pure function of the available and the requested devices, which also returns its reason.
//!
//! | usable GPUs | `multi_gpu` | strategy |
//! |---|---|---|
//! | 0 | any | the CPU |
//! | 1 | any | that GPU |
//! | 2 and more | false | the first of them |
//! | 2 and more | true | mirrored: a replica on each |
//!
//! Usable GPUs are those of `model_gpu` if given, else those of `visible_gpus` if given, else all that the driver reports.
//! Several GPUs in `model_gpu` are mirrored without `multi_gpu`, since naming several is unambiguous. `--device` overrides
//! all of this; a conflicting setting is an error. `CUDA_VISIBLE_DEVICES` is applied by the driver: GPUs that it hides do
//! not exist here, and the others are counted from 0.
//!
//! [`feed`] is the second decision: how batches get to the model.

use myxtts_run::plan::{DataPlan, Plan};
use myxtts_tensor::Device;
use myxtts_tensor::device::{Inventory, OLDEST_CAPABILITY};
use serde::Serialize;

/// The available devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableGpus {
    /// Index and name of each usable GPU, by the driver's numbering.
    pub gpus: Vec<(u32, String)>,
    /// Why there are none, or why some cannot be used.
    pub why: Option<String>,
    /// Value of `CUDA_VISIBLE_DEVICES`.
    pub hidden_by: Option<String>,
    /// The device that simulates the GPUs; `None` if they are real.
    pub simulated: Option<Device>,
}

impl AvailableGpus {
    /// The GPUs of this machine that training can use.
    pub fn of(inventory: &Inventory) -> AvailableGpus {
        let hidden_by = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        if inventory.default.device == Device::Cpu {
            // Also covers GPUs with a missing library: the reason names it.
            return AvailableGpus {
                why: Some(inventory.default.reason.clone()),
                hidden_by,
                ..AvailableGpus::default()
            };
        }
        let (new, old): (Vec<_>, Vec<_>) =
            inventory.gpus.iter().partition(|gpu| gpu.capability >= OLDEST_CAPABILITY);
        let named = |gpu: &&myxtts_tensor::device::Gpu| (gpu.index as u32, gpu.name.clone());
        let too_old: Vec<String> = old.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.name)).collect();
        let why = (!too_old.is_empty()).then(|| {
            format!("too old (compute capability below {OLDEST_CAPABILITY}): {}", too_old.join(", "))
        });
        AvailableGpus { gpus: new.iter().map(named).collect(), why, hidden_by, simulated: None }
    }

    /// A machine with `count` GPUs, each simulated by the CPU.
    pub fn simulated(count: u32) -> AvailableGpus {
        AvailableGpus::simulated_on(Device::Cpu, count)
    }

    /// A machine with `count` GPUs, each simulated by `device`.
    pub fn simulated_on(device: Device, count: u32) -> AvailableGpus {
        let gpus = (0..count).map(|number| (number, "simulated".to_owned())).collect();
        AvailableGpus { gpus, simulated: Some(device), ..AvailableGpus::default() }
    }

    fn has(&self, gpu: u32) -> bool {
        self.gpus.iter().any(|(number, _)| *number == gpu)
    }

    /// `there are 0 (NVIDIA H200) and 1 (NVIDIA H200)`
    fn describe(&self) -> String {
        let mut text = match &self.gpus[..] {
            [] => "there is no GPU".to_owned(),
            [(number, name)] => format!("there is {number} ({name})"),
            gpus => {
                let each: Vec<String> =
                    gpus.iter().map(|(number, name)| format!("{number} ({name})")).collect();
                format!("there are {}", each.join(", "))
            }
        };
        if let Some(why) = &self.why {
            text += &format!("; {why}");
        }
        if let Some(hidden) = &self.hidden_by {
            text += &format!("; CUDA_VISIBLE_DEVICES is {hidden:?}, and the driver counts those from 0");
        }
        text
    }
}

/// The requested devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StrategyRequest {
    /// `--device`; `None` for `auto`.
    pub device: Option<Device>,
    /// `training.multi_gpu`.
    pub multi_gpu: bool,
    /// `training.visible_gpus`.
    pub visible: Option<Vec<u32>>,
    /// `data.model_gpu`.
    pub model: Option<Vec<u32>>,
    /// `data.data_gpu`.
    pub data: Option<u32>,
    /// `data.buffer_size`.
    pub buffer_size: usize,
    /// `data.model_start_delay`, in seconds.
    pub model_start_delay: f64,
}

impl StrategyRequest {
    /// The request of a plan and `--device`.
    pub fn of(plan: &Plan, device: Option<Device>) -> StrategyRequest {
        let DataPlan { model_gpu, data_gpu, buffer_size, model_start_delay, .. } = &plan.data;
        StrategyRequest {
            device,
            multi_gpu: plan.training.multi_gpu,
            visible: plan.training.visible_gpus.clone(),
            model: model_gpu.clone(),
            data: *data_gpu,
            buffer_size: *buffer_size,
            model_start_delay: *model_start_delay,
        }
    }
}

/// The devices that a model is trained on, by the driver's numbering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The CPU.
    Cpu,
    /// One GPU.
    One(u32),
    /// A replica on each of these, in this order.
    Mirrored(Vec<u32>),
}

impl Strategy {
    /// The devices of the replicas.
    pub fn devices(&self, found: &AvailableGpus) -> Vec<Device> {
        let device = |gpu: &u32| found.simulated.unwrap_or(Device::Cuda(*gpu as usize));
        match self {
            Strategy::Cpu => vec![Device::Cpu],
            Strategy::One(gpu) => vec![device(gpu)],
            Strategy::Mirrored(gpus) => gpus.iter().map(device).collect(),
        }
    }
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Strategy::Cpu => f.write_str("the CPU"),
            Strategy::One(gpu) => write!(f, "one device, GPU {gpu}"),
            Strategy::Mirrored(gpus) => write!(f, "mirrored on GPUs {}", list_gpus(gpus)),
        }
    }
}

/// How batches get to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// Loader threads, pinned memory, and a ring of slots on the model's device.
    Buffered,
    /// Batches are made on one GPU and wait for the model on others.
    MultiGpu {
        /// The GPU that prepares them.
        data: u32,
        /// The GPUs that train.
        model: Vec<u32>,
        /// Number of batches that may wait.
        buffer_size: usize,
        /// Minimum time before the model starts, in seconds.
        model_start_delay: f64,
    },
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision<T> {
    /// What was chosen.
    pub choice: T,
    /// The reason, as one sentence.
    pub reason: String,
    /// Warnings for the user, each a whole sentence.
    pub warnings: Vec<String>,
}

/// The requested devices cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// A setting names a GPU that does not exist.
    #[error(
        "{setting} names GPU {gpu}, and {there}: {}leave {setting} out",
        if *has_gpus { "name one of these, or " } else { "" }
    )]
    NoSuchGpu {
        /// The setting.
        setting: &'static str,
        /// The GPU.
        gpu: u32,
        /// The GPUs that exist, as text.
        there: String,
        /// Whether there are any.
        has_gpus: bool,
    },
    /// A setting names a GPU more than once.
    #[error("{setting} names GPU {gpu} twice: a replica has a GPU of its own; {there}")]
    Twice {
        /// The setting.
        setting: &'static str,
        /// The GPU.
        gpu: u32,
        /// The GPUs that exist, as text.
        there: String,
    },
    /// A list of GPUs is empty.
    #[error("{setting} names no GPU; {there}: name some, or leave {setting} out")]
    Empty {
        /// The setting.
        setting: &'static str,
        /// The GPUs that exist, as text.
        there: String,
    },
    /// A batch cannot be split evenly over the replicas.
    #[error(
        "data.batch_size = {rows} cannot be split evenly over {replicas} replicas: {} can, or train on fewer devices",
        fitting(*.rows, *.replicas)
    )]
    Uneven {
        /// Rows of a batch, over all replicas.
        rows: usize,
        /// Number of replicas.
        replicas: usize,
    },
    /// Two settings contradict each other.
    #[error("{one} and {other} contradict each other: {why}")]
    Contradiction {
        /// The first setting, with its value.
        one: String,
        /// The second setting, with its value.
        other: String,
        /// The reason, and what to do.
        why: &'static str,
    },
}

/// `54 or 57`
fn fitting(rows: usize, replicas: usize) -> String {
    let (below, above) = (rows / replicas * replicas, rows.div_ceil(replicas) * replicas);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}

/// Rows per replica. The batch size is the user's: it is never adjusted to the devices.
pub fn split(rows: usize, replicas: usize) -> Result<usize, StrategyError> {
    match rows.is_multiple_of(replicas.max(1)) {
        true => Ok(rows / replicas.max(1)),
        false => Err(StrategyError::Uneven { rows, replicas }),
    }
}

const VISIBLE: &str = "training.visible_gpus";
const MODEL: &str = "data.model_gpu";
const DATA: &str = "data.data_gpu";

/// The request without the GPUs of `data.data_gpu` and `data.model_gpu` that do not exist, and a warning about them;
/// `None` if nothing has to be left out. Applies only if both settings are given and a GPU exists: with only one setting
/// given, a missing GPU is an error.
pub fn fall_back(found: &AvailableGpus, request: &StrategyRequest) -> Option<(StrategyRequest, String)> {
    let (Some(data), Some(model)) = (request.data, request.model.as_deref()) else { return None };
    let missing: Vec<u32> = [&[data], model].concat().into_iter().filter(|gpu| !found.has(*gpu)).collect();
    if missing.is_empty() || found.gpus.is_empty() || request.device.is_some() {
        return None;
    }
    let kept: Vec<u32> = model.iter().copied().filter(|gpu| found.has(*gpu)).collect();
    let data_side = (found.has(data) && !kept.is_empty()).then_some(data);
    let instead = match (&kept[..], data_side) {
        ([], _) => {
            "the model trains on the GPU that exists, and batches are made on the CPU and buffered".to_owned()
        }
        (kept, None) => {
            format!("the model trains on {}, and batches are made on the CPU and buffered", list_gpus(kept))
        }
        (kept, Some(data)) => format!("{data} prepares batches for {}", list_gpus(kept)),
    };
    let sentence = format!(
        "{DATA} = {data} and {MODEL} = {} name GPUs that do not exist here ({}); {}: {instead}. --strict-devices makes this an error",
        list_gpus(model),
        list_gpus(&missing),
        found.describe()
    );
    let model = (!kept.is_empty()).then_some(kept);
    Some((StrategyRequest { data: data_side, model, ..request.clone() }, sentence))
}

/// Chooses the devices of a run.
pub fn strategy(
    found: &AvailableGpus,
    request: &StrategyRequest,
) -> Result<Decision<Strategy>, StrategyError> {
    if request.device == Some(Device::Cpu) {
        // In this case neither the visible GPUs nor their existence matter.
        return apply_device_flag(found, request, Device::Cpu);
    }
    let visible = request.visible.as_deref().map(|gpus| known(found, VISIBLE, gpus)).transpose()?;
    let model = request.model.as_deref().map(|gpus| known(found, MODEL, gpus)).transpose()?;
    if let (Some(visible), Some(model)) = (visible, model)
        && let Some(gpu) = model.iter().find(|gpu| !visible.contains(gpu))
    {
        return Err(contradiction(
            format!("{VISIBLE} = {}", list_gpus(visible)),
            format!("{MODEL} with {gpu}"),
            "a model can only be on a GPU that is visible; name it in both, or leave one of them out",
        ));
    }
    if let Some(device) = request.device {
        return apply_device_flag(found, request, device);
    }
    let all: Vec<u32> = found.gpus.iter().map(|(number, _)| *number).collect();
    let may = model.or(visible).unwrap_or(&all);
    let whose = match (model, visible) {
        (Some(_), _) => format!(", of {MODEL}"),
        (None, Some(_)) => format!(", of {VISIBLE}"),
        (None, None) => String::new(),
    };
    let (choice, reason) = match may {
        [] => (Strategy::Cpu, found.describe()),
        [gpu] => (Strategy::One(*gpu), format!("it is the only usable GPU{whose}: {}", found.describe())),
        [first, ..] if !request.multi_gpu && model.is_none() => (
            Strategy::One(*first),
            format!("the first of {}{whose}; --multi-gpu trains on all of them", list_gpus(may)),
        ),
        several if request.multi_gpu => (
            Strategy::Mirrored(several.to_vec()),
            format!("training.multi_gpu is on, and {} are usable{whose}", list_gpus(several)),
        ),
        several => (
            Strategy::Mirrored(several.to_vec()),
            format!("{MODEL} names {}, and a model on several GPUs is mirrored", list_gpus(several)),
        ),
    };
    let mut warnings = Vec::new();
    if request.multi_gpu && !matches!(choice, Strategy::Mirrored(_)) {
        warnings
            .push(format!("training.multi_gpu has no effect: there are fewer than two usable GPUs{whose}"));
    }
    Ok(Decision { choice, reason, warnings })
}

/// Applies `--device`, which overrides everything else; a conflicting setting is an error.
fn apply_device_flag(
    found: &AvailableGpus,
    request: &StrategyRequest,
    device: Device,
) -> Result<Decision<Strategy>, StrategyError> {
    let flag = format!("--device {device}");
    if request.multi_gpu {
        let why = "the first names a single device, the second requests all of them: leave one of them out";
        return Err(contradiction(flag, "training.multi_gpu (--multi-gpu)".to_owned(), why));
    }
    let gpu = match device {
        Device::Cpu => None,
        Device::Cuda(index) => {
            let gpu = u32::try_from(index).unwrap_or(u32::MAX);
            known(found, "--device", &[gpu])?;
            Some(gpu)
        }
    };
    let only = gpu.as_slice();
    if let Some(model) = request.model.as_deref().filter(|model| *model != only) {
        let why = "both choose the device of the model: leave one of them out";
        return Err(contradiction(flag, format!("{MODEL} = {}", list_gpus(model)), why));
    }
    if let (Some(gpu), Some(visible)) = (gpu, request.visible.as_deref())
        && !visible.contains(&gpu)
    {
        let why = "that GPU is not one of the visible ones: name it there too, or leave one of them out";
        return Err(contradiction(flag, format!("{VISIBLE} = {}", list_gpus(visible)), why));
    }
    let choice = gpu.map_or(Strategy::Cpu, Strategy::One);
    Ok(Decision { choice, reason: format!("chosen by {flag}"), warnings: Vec::new() })
}

/// Chooses how batches get to the model: by a GPU of their own only if both settings are given.
pub fn feed(found: &AvailableGpus, request: &StrategyRequest) -> Result<Decision<Feed>, StrategyError> {
    if let Some(gpu) = request.data {
        known(found, DATA, &[gpu])?;
    }
    let model = request.model.as_deref().map(|gpus| known(found, MODEL, gpus)).transpose()?;
    let mut warnings = Vec::new();
    let (choice, reason) = match (request.data, model) {
        (Some(data), Some(model)) => {
            if model.contains(&data) {
                warnings.push(format!(
                    "GPU {data} both prepares batches and trains: the two take turns on it, each on a stream of its own"
                ));
            }
            let (buffer_size, model_start_delay) = (request.buffer_size, request.model_start_delay);
            let reason = format!(
                "GPU {data} prepares batches and {} {}; up to {buffer_size} wait between them, and the model starts when \
                 they are ready, after {model_start_delay} s at the earliest",
                list_gpus(model),
                if model.len() == 1 { "trains" } else { "train" }
            );
            (Feed::MultiGpu { data, model: model.to_vec(), buffer_size, model_start_delay }, reason)
        }
        (data, model) => {
            let missing = match (data, model) {
                (Some(gpu), None) => {
                    warnings.push(format!(
                        "{DATA} = {gpu} has no effect without {MODEL}: batches are made on the CPU"
                    ));
                    MODEL
                }
                (None, Some(_)) => DATA,
                _ => "neither data.data_gpu nor data.model_gpu",
            };
            let reason = match (data, model) {
                (None, None) => format!("{missing} is given"),
                _ => format!("{missing} is not given"),
            };
            (Feed::Buffered, reason)
        }
    };
    Ok(Decision { choice, reason, warnings })
}

/// Checks that every GPU of a list exists and occurs once.
fn known<'a>(
    found: &AvailableGpus,
    setting: &'static str,
    gpus: &'a [u32],
) -> Result<&'a [u32], StrategyError> {
    let there = || found.describe();
    if gpus.is_empty() {
        return Err(StrategyError::Empty { setting, there: there() });
    }
    for (i, &gpu) in gpus.iter().enumerate() {
        if gpus[..i].contains(&gpu) {
            return Err(StrategyError::Twice { setting, gpu, there: there() });
        }
        if !found.has(gpu) {
            return Err(StrategyError::NoSuchGpu {
                setting,
                gpu,
                there: there(),
                has_gpus: !found.gpus.is_empty(),
            });
        }
    }
    Ok(gpus)
}

fn contradiction(one: String, other: String, why: &'static str) -> StrategyError {
    StrategyError::Contradiction { one, other, why }
}

/// `0, 1 and 2`
fn list_gpus(gpus: &[u32]) -> String {
    let words: Vec<String> = gpus.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => "none".to_owned(),
    }
}

//! Where a run trains, by the user's word: one pure function of what there is and what is asked, with its reason.
//!
//! | GPUs that may be used | `multi_gpu` | strategy |
//! |---|---|---|
//! | 0 | any | the processor |
//! | 1 | any | that GPU |
//! | 2 and more | false | the first of them |
//! | 2 and more | true | mirrored: a replica on each |
//!
//! Which may be used: those of `model_gpu` where it is given, else those of `visible_gpus` where it is given, else all
//! that the driver shows. Several in `model_gpu` are mirrored without another word: nobody names three by accident. A
//! `--device` comes before all of it, and what says otherwise beside it is a mistake. `CUDA_VISIBLE_DEVICES` is the
//! driver's own: what it hides is not there, and what is left is counted from 0.
//!
//! [`feed`] is the second decision: how batches come to the model.

use myxtts_run::plan::{DataPlan, Plan};
use myxtts_tensor::Device;
use myxtts_tensor::device::{Inventory, OLDEST_CAPABILITY};
use serde::Serialize;

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Numbers and names of the GPUs that can be used, as the driver counts them.
    pub gpus: Vec<(u32, String)>,
    /// Why there are none, or why some that are there cannot be used.
    pub why: Option<String>,
    /// What `CUDA_VISIBLE_DEVICES` says.
    pub hidden_by: Option<String>,
    /// They are processors that play GPUs.
    pub simulated: bool,
}

impl Found {
    /// The GPUs of this machine that training can use.
    pub fn of(inventory: &Inventory) -> Found {
        let hidden_by = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        if inventory.default.device == Device::Cpu {
            // Also where there are GPUs and a library is missing: the reason says which.
            return Found { why: Some(inventory.default.reason.clone()), hidden_by, ..Found::default() };
        }
        let (new, old): (Vec<_>, Vec<_>) =
            inventory.gpus.iter().partition(|gpu| gpu.capability >= OLDEST_CAPABILITY);
        let named = |gpu: &&myxtts_tensor::device::Gpu| (gpu.index as u32, gpu.name.clone());
        let too_old: Vec<String> = old.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.name)).collect();
        let why = (!too_old.is_empty()).then(|| {
            format!(
                "too old to be used (compute capability below {OLDEST_CAPABILITY}): {}",
                too_old.join(", ")
            )
        });
        Found { gpus: new.iter().map(named).collect(), why, hidden_by, simulated: false }
    }

    /// So many GPUs, each played by the processor.
    pub fn simulated(count: u32) -> Found {
        let gpus = (0..count).map(|number| (number, "simulated".to_owned())).collect();
        Found { gpus, simulated: true, ..Found::default() }
    }

    fn has(&self, gpu: u32) -> bool {
        self.gpus.iter().any(|(number, _)| *number == gpu)
    }

    /// `there are 0 (NVIDIA H200) and 1 (NVIDIA H200)`
    fn words(&self) -> String {
        let mut words = match &self.gpus[..] {
            [] => "there is no GPU".to_owned(),
            [(number, name)] => format!("there is {number} ({name})"),
            gpus => {
                let each: Vec<String> =
                    gpus.iter().map(|(number, name)| format!("{number} ({name})")).collect();
                format!("there are {}", each.join(", "))
            }
        };
        if let Some(why) = &self.why {
            words += &format!("; {why}");
        }
        if let Some(hidden) = &self.hidden_by {
            words += &format!("; CUDA_VISIBLE_DEVICES is {hidden:?}, and the driver counts those from 0");
        }
        words
    }
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StrategyRequest {
    /// `--device`, where it is not auto.
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
    /// What a plan and `--device` ask.
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

/// On what a model is trained. GPUs go by the driver's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The processor.
    Cpu,
    /// One GPU.
    One(u32),
    /// A replica on each of these, in this order.
    Mirrored(Vec<u32>),
}

impl Strategy {
    /// The devices of the replicas.
    pub fn devices(&self, found: &Found) -> Vec<Device> {
        let device = |gpu: &u32| if found.simulated { Device::Cpu } else { Device::Cuda(*gpu as usize) };
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
            Strategy::Cpu => f.write_str("the processor"),
            Strategy::One(gpu) => write!(f, "one device, GPU {gpu}"),
            Strategy::Mirrored(gpus) => write!(f, "mirrored on GPUs {}", listed(gpus)),
        }
    }
}

/// How batches come to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// Loader threads, pinned memory, a ring on the model's device.
    Buffered,
    /// Batches are made on one GPU and wait for the model on others.
    MultiGpu {
        /// Where they are made.
        data: u32,
        /// Where they are used.
        model: Vec<u32>,
        /// Batches that may wait.
        buffer_size: usize,
        /// Seconds before the model starts, at least.
        model_start_delay: f64,
    },
}

/// A decision, and why it is this one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision<T> {
    /// What was chosen.
    pub choice: T,
    /// In a sentence.
    pub reason: String,
    /// What the user should know beside it: whole sentences.
    pub warnings: Vec<String>,
}

/// Devices that cannot be used as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// A GPU that is not there.
    #[error("{setting} names GPU {gpu}, and {there}: name one of these, or leave {setting} out")]
    NoSuchGpu {
        /// Who names it.
        setting: &'static str,
        /// The GPU.
        gpu: u32,
        /// What there is.
        there: String,
    },
    /// A GPU named more than once.
    #[error("{setting} names GPU {gpu} twice: a replica has a GPU of its own; {there}")]
    Twice {
        /// Who names it.
        setting: &'static str,
        /// The GPU.
        gpu: u32,
        /// What there is.
        there: String,
    },
    /// A list of nothing.
    #[error("{setting} names no GPU; {there}: name some, or leave {setting} out")]
    Empty {
        /// The list.
        setting: &'static str,
        /// What there is.
        there: String,
    },
    /// A batch that replicas cannot share.
    #[error(
        "data.batch_size = {rows} cannot be split evenly over {replicas} replicas: {} can, or train on fewer devices",
        fitting(*.rows, *.replicas)
    )]
    Uneven {
        /// Rows of a batch, over all replicas.
        rows: usize,
        /// Replicas.
        replicas: usize,
    },
    /// Two settings that cannot both hold.
    #[error("{one} and {other} cannot both hold: {why}")]
    Contradiction {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// Why, and what to do.
        why: &'static str,
    },
}

/// `54 or 57`
fn fitting(rows: usize, replicas: usize) -> String {
    let (below, above) = (rows / replicas * replicas, rows.div_ceil(replicas) * replicas);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}

/// The rows of each replica. The batch is the user's: it is never changed for the sake of the devices.
pub fn split(rows: usize, replicas: usize) -> Result<usize, StrategyError> {
    match rows.is_multiple_of(replicas.max(1)) {
        true => Ok(rows / replicas.max(1)),
        false => Err(StrategyError::Uneven { rows, replicas }),
    }
}

const VISIBLE: &str = "training.visible_gpus";
const MODEL: &str = "data.model_gpu";
const DATA: &str = "data.data_gpu";

/// What is asked, without the GPUs of `data.data_gpu` and `data.model_gpu` that are not there, and the sentence that says so;
/// none where nothing has to be left out. Only where both are named, and there is a GPU at all: who names one GPU alone means
/// that one.
pub fn fall_back(found: &Found, asked: &StrategyRequest) -> Option<(StrategyRequest, String)> {
    let (Some(data), Some(model)) = (asked.data, asked.model.as_deref()) else { return None };
    let missing: Vec<u32> = [&[data], model].concat().into_iter().filter(|gpu| !found.has(*gpu)).collect();
    if missing.is_empty() || found.gpus.is_empty() || asked.device.is_some() {
        return None;
    }
    let kept: Vec<u32> = model.iter().copied().filter(|gpu| found.has(*gpu)).collect();
    let data_side = (found.has(data) && !kept.is_empty()).then_some(data);
    let instead = match (&kept[..], data_side) {
        ([], _) => "the model trains on the GPU that is there, and batches come buffered".to_owned(),
        (kept, None) => format!("the model trains on {}, and batches come buffered", listed(kept)),
        (kept, Some(data)) => format!("{data} prepares batches for {}", listed(kept)),
    };
    let sentence = format!(
        "{DATA} = {data} and {MODEL} = {} name GPUs that are not here ({}); {}: {instead}. --strict-devices makes this an error",
        listed(model),
        listed(&missing),
        found.words()
    );
    let model = (!kept.is_empty()).then_some(kept);
    Some((StrategyRequest { data: data_side, model, ..asked.clone() }, sentence))
}

/// Where a run trains.
pub fn strategy(found: &Found, asked: &StrategyRequest) -> Result<Decision<Strategy>, StrategyError> {
    if asked.device == Some(Device::Cpu) {
        // Which GPUs may be used is of no account then, and whether there are any.
        return named(found, asked, Device::Cpu);
    }
    let visible = asked.visible.as_deref().map(|gpus| known(found, VISIBLE, gpus)).transpose()?;
    let model = asked.model.as_deref().map(|gpus| known(found, MODEL, gpus)).transpose()?;
    if let (Some(visible), Some(model)) = (visible, model)
        && let Some(gpu) = model.iter().find(|gpu| !visible.contains(gpu))
    {
        return Err(contradiction(
            format!("{VISIBLE} = {}", listed(visible)),
            format!("{MODEL} with {gpu}"),
            "a model can only be on a GPU that is visible; name it in both, or leave one of them out",
        ));
    }
    if let Some(device) = asked.device {
        return named(found, asked, device);
    }
    let all: Vec<u32> = found.gpus.iter().map(|(number, _)| *number).collect();
    let may = model.or(visible).unwrap_or(&all);
    let whose = match (model, visible) {
        (Some(_), _) => format!(", of {MODEL}"),
        (None, Some(_)) => format!(", of {VISIBLE}"),
        (None, None) => String::new(),
    };
    let (choice, reason) = match may {
        [] => (Strategy::Cpu, found.words()),
        [gpu] => {
            (Strategy::One(*gpu), format!("it is the only one that may be used{whose}: {}", found.words()))
        }
        [first, ..] if !asked.multi_gpu && model.is_none() => (
            Strategy::One(*first),
            format!("the first of {}{whose}; --multi-gpu trains on all of them", listed(may)),
        ),
        several if asked.multi_gpu => (
            Strategy::Mirrored(several.to_vec()),
            format!("training.multi_gpu is on, and {} may be used{whose}", listed(several)),
        ),
        several => (
            Strategy::Mirrored(several.to_vec()),
            format!("{MODEL} names {}, and a model on several is mirrored", listed(several)),
        ),
    };
    let mut warnings = Vec::new();
    if asked.multi_gpu && !matches!(choice, Strategy::Mirrored(_)) {
        warnings.push(format!("training.multi_gpu has no effect: there are not two to be used{whose}"));
    }
    Ok(Decision { choice, reason, warnings })
}

/// `--device`: it wins, and nothing may say otherwise.
fn named(
    found: &Found,
    asked: &StrategyRequest,
    device: Device,
) -> Result<Decision<Strategy>, StrategyError> {
    let flag = format!("--device {device}");
    if asked.multi_gpu {
        let why = "the one names a single device, the other asks for all: leave one of them out";
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
    if let Some(model) = asked.model.as_deref().filter(|model| *model != only) {
        let why = "both say where the model is: leave one of them out";
        return Err(contradiction(flag, format!("{MODEL} = {}", listed(model)), why));
    }
    if let (Some(gpu), Some(visible)) = (gpu, asked.visible.as_deref())
        && !visible.contains(&gpu)
    {
        let why = "that GPU is not one of the visible ones: name it there too, or leave one of them out";
        return Err(contradiction(flag, format!("{VISIBLE} = {}", listed(visible)), why));
    }
    let choice = gpu.map_or(Strategy::Cpu, Strategy::One);
    Ok(Decision { choice, reason: format!("{flag} says so"), warnings: Vec::new() })
}

/// How batches come to the model: on two sets of GPUs exactly where both are named.
pub fn feed(found: &Found, asked: &StrategyRequest) -> Result<Decision<Feed>, StrategyError> {
    if let Some(gpu) = asked.data {
        known(found, DATA, &[gpu])?;
    }
    let model = asked.model.as_deref().map(|gpus| known(found, MODEL, gpus)).transpose()?;
    let mut warnings = Vec::new();
    let (choice, reason) = match (asked.data, model) {
        (Some(data), Some(model)) => {
            if model.contains(&data) {
                warnings.push(format!(
                    "GPU {data} both prepares batches and trains: the two take turns on it, each on a stream of its own"
                ));
            }
            let (buffer_size, model_start_delay) = (asked.buffer_size, asked.model_start_delay);
            let reason = format!(
                "GPU {data} prepares batches and {} {}; up to {buffer_size} wait between them, and the model starts when \
                 they are ready, after {model_start_delay} s at the earliest",
                listed(model),
                if model.len() == 1 { "trains" } else { "train" }
            );
            (Feed::MultiGpu { data, model: model.to_vec(), buffer_size, model_start_delay }, reason)
        }
        (data, model) => {
            let missing = match (data, model) {
                (Some(gpu), None) => {
                    warnings.push(format!(
                        "{DATA} = {gpu} has no effect without {MODEL}: batches are made on the processor"
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

/// A list whose GPUs are there, each once.
fn known<'a>(found: &Found, setting: &'static str, gpus: &'a [u32]) -> Result<&'a [u32], StrategyError> {
    let there = || found.words();
    if gpus.is_empty() {
        return Err(StrategyError::Empty { setting, there: there() });
    }
    for (i, &gpu) in gpus.iter().enumerate() {
        if gpus[..i].contains(&gpu) {
            return Err(StrategyError::Twice { setting, gpu, there: there() });
        }
        if !found.has(gpu) {
            return Err(StrategyError::NoSuchGpu { setting, gpu, there: there() });
        }
    }
    Ok(gpus)
}

fn contradiction(one: String, other: String, why: &'static str) -> StrategyError {
    StrategyError::Contradiction { one, other, why }
}

/// `0, 1 and 2`
fn listed(gpus: &[u32]) -> String {
    let words: Vec<String> = gpus.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => "none".to_owned(),
    }
}

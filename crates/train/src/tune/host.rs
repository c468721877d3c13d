//! The host memory that a run on the CPU is planned to need: reported before the run begins, and refused if the machine
//! has less. A GPU reports an error when it is full; a machine that is full kills processes.

use super::rules::Memory;
use super::with_forecast;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::{Model, SPEAKER};
use crate::pipeline::{Request, due_stages};
use crate::replica_slice::Replicas;
use crate::sizes::Sizes;
use crate::stage_settings::dvae_settings;
use crate::stages::decoder::DecoderSettings;
use crate::stages::decoder::forecast::Speakers;
use crate::stages::dvae::{DvaeSettings, TokenTargets};
use crate::stages::{StageKind, decoder, dvae};
use crate::training_data::Corpus;
use myxtts_run::memory_size::memory_size;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;
use std::sync::Arc;

/// The lower limit of `data.frame_budget`.
const LEAST_FRAMES: usize = 16;

/// The machine's memory in bytes; `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Maximum that this process can get.
    pub total: Option<u64>,
    /// Memory that is free now.
    pub free: Option<u64>,
}

impl Host {
    /// The memory of this machine.
    pub fn detect() -> Host {
        let total = myxtts_run::config::HostResources::detect().memory_bytes;
        Host { total, free: myxtts_run::config::host::free_memory() }
    }
}

/// The batches of a stage.
#[derive(Clone, Copy, Debug)]
pub struct StageBatches {
    /// The stage.
    pub stage: StageKind,
    /// Clips or windows per batch; mel frames with `by_frames`.
    pub rows: usize,
    /// Number of replicas that every batch has to be split over evenly; 1 if a batch may leave some idle.
    pub replicas: usize,
    /// Whether batches are limited by `data.frame_budget`; the GPT's can be.
    pub by_frames: bool,
}

impl StageBatches {
    /// The setting that reduces the batches.
    fn setting(&self) -> &'static str {
        match self.stage {
            StageKind::Dvae => "data.dvae_batch_size",
            StageKind::Gpt if self.by_frames => "data.frame_budget",
            StageKind::Gpt => "data.batch_size",
            StageKind::Decoder => "data.decoder_batch_size",
        }
    }

    /// The smallest value of that setting.
    fn least(&self) -> usize {
        if self.by_frames { LEAST_FRAMES } else { self.replicas.max(1) }
    }

    fn name(&self) -> &'static str {
        match self.stage {
            StageKind::Dvae => "DVAE",
            StageKind::Gpt => "GPT",
            StageKind::Decoder => "decoder",
        }
    }
}

/// A line on the memory of every stage's steps; `None` if they run on GPUs or no stage is to run.
///
/// # Errors
/// A stage would need more memory than the machine has.
pub fn host_memory(
    plan: &Plan,
    request: &Request,
    corpus: &Corpus,
    machines: &[ComputeDevice],
    host: Host,
) -> Result<Option<String>, TrainError> {
    let count = machines.iter().filter(|machine| machine.device == Device::Cpu).count();
    if count == 0 {
        return Ok(None);
    }
    let fine_tune = request.from.is_some();
    let model = request.from.as_deref().map(Model::open).transpose()?.unwrap_or_default();
    let has = |part: &str| model.has(part);
    let due = due_stages(plan, request.only, fine_tune.then_some(&has as &dyn Fn(&str) -> bool));
    let replicas = Replicas { machine: ComputeDevice::CPU, count };
    let sizes = Sizes::of(plan, replicas.machine, &corpus.tokenizer, &model)?;
    let of = |stage, rows| StageBatches { stage, rows, replicas: 1, by_frames: false };
    let mut planned = Vec::new();
    if due.contains(&StageKind::Dvae) {
        let recipe = plan.recipe(StageKind::Dvae, fine_tune);
        let mut settings = dvae_settings(plan, &sizes);
        let weight = plan.training.code_token_weight.unwrap_or(0.0);
        let vocabulary = corpus.tokenizer.vocabulary_size();
        settings.token_targets =
            (weight > 0.0).then(|| TokenTargets { weight, vocabulary, alignments: Arc::default() });
        let need = |rows: usize| {
            dvae::forecast::planned(
                &DvaeSettings { rows: rows as u32, ..settings.clone() },
                &recipe,
                replicas,
            )
        };
        let batches = of(StageKind::Dvae, settings.rows as usize);
        planned.push((batches, check_host_memory(batches, host, need)?));
    }
    if due.contains(&StageKind::Gpt) {
        let batches = match plan.data.frame_budget {
            // Rows then come in multiples of the replicas, whatever the budget.
            Some(frames) => StageBatches { by_frames: true, ..of(StageKind::Gpt, frames) },
            None => StageBatches { replicas: count, ..of(StageKind::Gpt, plan.data.batch_size) },
        };
        let need = |rows: usize| {
            let mut plan = plan.clone();
            plan.data.frame_budget = plan.data.frame_budget.map(|_| rows);
            with_forecast(&plan, corpus, machines, &model, fine_tune, |memory| {
                gpt_need(memory, &plan, count, rows)
            })
        };
        planned.push((batches, check_host_memory(batches, host, need)?));
    }
    if due.contains(&StageKind::Decoder) {
        let recipe = plan.recipe(StageKind::Decoder, fine_tune);
        let settings = DecoderSettings::from_plan(plan, &sizes);
        let speakers = Speakers { known: model.has(SPEAKER), count: corpus.source.speakers().len() };
        let need = |rows| {
            decoder::forecast::planned(
                &DecoderSettings { rows, ..settings.clone() },
                &recipe,
                replicas,
                speakers,
            )
        };
        let batches = of(StageKind::Decoder, settings.rows);
        planned.push((batches, check_host_memory(batches, host, need)?));
    }
    Ok((!planned.is_empty()).then(|| line(&planned, host)))
}

/// Bytes of all replicas of the GPT, including waiting batches.
fn gpt_need(memory: &dyn Memory, plan: &Plan, replicas: usize, rows: usize) -> Result<u64, TrainError> {
    let steps = memory.planned(rows, plan.training.gradient_accumulation_steps)?;
    let waiting = memory.waiting(rows)?.saturating_mul(plan.data.buffer_size as u64);
    Ok(steps.saturating_add(waiting).saturating_mul(replicas as u64))
}

/// The bytes that the steps of a stage are planned to need; an error if the machine has less, with a value of
/// its setting that fits.
pub fn check_host_memory(
    batches: StageBatches,
    host: Host,
    need: impl Fn(usize) -> Result<u64, TrainError>,
) -> Result<u64, TrainError> {
    let StageBatches { rows, replicas, .. } = batches;
    let planned = need(rows)?;
    let Some(total) = host.total.filter(|total| planned > *total) else { return Ok(planned) };
    let mut fitting = None;
    let mut fewer = rows / 2;
    while fewer >= batches.least() {
        let even = fewer / replicas * replicas;
        let bytes = need(even)?;
        if bytes <= total {
            fitting = Some((even, bytes));
            break;
        }
        fewer /= 2;
    }
    let setting = batches.setting();
    let advice = match fitting {
        Some((rows, bytes)) => format!("{setting} = {rows} fits, with {}", memory_size(bytes)),
        None if batches.stage == StageKind::Gpt => {
            let what = if batches.by_frames { setting } else { "batch size" };
            format!("no {what} fits: lower data.max_seconds, or take a smaller model.preset")
        }
        None => "no batch size fits: take a smaller model.preset".to_owned(),
    };
    Err(TrainError::HostMemory(format!(
        "{setting} = {rows} is planned to take {} of this machine's memory for the {}'s steps, and it has {}: {advice}",
        memory_size(planned),
        batches.name(),
        memory_size(total)
    )))
}

/// The planned bytes of each stage, as one line. Stages run one after the other, so only the largest is compared with the
/// free memory.
pub fn line(planned: &[(StageBatches, u64)], host: Host) -> String {
    let stages: Vec<String> = planned
        .iter()
        .map(|(batches, bytes)| format!("{} {}", batches.name(), memory_size(*bytes)))
        .collect();
    let free = host.free.map_or(String::new(), |free| format!("; {} are free", memory_size(free)));
    let largest = planned.iter().max_by_key(|(_, bytes)| *bytes);
    let advice = match (largest, host.free) {
        (Some((batches, bytes)), Some(free)) if *bytes > free => {
            format!(", which is less: end other programs, or lower {}", batches.setting())
        }
        _ => String::new(),
    };
    format!("memory       planned for training steps: {}{free}{advice}", stages.join(", "))
}

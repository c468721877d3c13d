//! The host memory that a run on the CPU is planned to need: reported before the run begins, and refused if the machine
//! has less. A GPU reports an error when it is full; a machine that is full kills processes.

use super::rules::Memory;
use super::with_forecast;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::{DECODER, DVAE, GPT, Model, SPEAKER};
use crate::pipeline::{Request, retrained_parts};
use crate::replica_slice::Replicas;
use crate::sizes::Sizes;
use crate::stage_settings::dvae_settings;
use crate::stages::decoder::DecoderSettings;
use crate::stages::decoder::forecast::Speakers;
use crate::stages::dvae::{DvaeSettings, TokenTargets};
use crate::stages::{StageKind, decoder, dvae};
use crate::training_data::Corpus;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;
use std::sync::Arc;

const GIB: f64 = (1u64 << 30) as f64;

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
    /// Clips or windows per batch.
    pub rows: usize,
    /// Number of replicas that every batch has to be split over evenly; 1 if a batch may leave some idle.
    pub replicas: usize,
}

impl StageBatches {
    /// The setting that reduces the batches.
    fn setting(&self) -> &'static str {
        match self.stage {
            StageKind::Dvae => "data.dvae_batch_size",
            StageKind::Gpt => "data.batch_size",
            StageKind::Decoder => "data.decoder_batch_size",
        }
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
    let retrained = if fine_tune { retrained_parts(plan, request.only) } else { Vec::new() };
    let is_due = |stage: StageKind, part: &str| {
        request.only.is_none_or(|only| only == stage)
            && (!model.has(part) || retrained.contains(&part))
            && plan.recipe(stage, fine_tune).steps > 0
    };
    let replicas = Replicas { machine: ComputeDevice::CPU, count };
    let sizes = Sizes::of(plan, replicas.machine, &corpus.tokenizer, &model)?;
    let mut planned = Vec::new();
    if is_due(StageKind::Dvae, DVAE) {
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
        let batches = StageBatches { stage: StageKind::Dvae, rows: settings.rows as usize, replicas: 1 };
        planned.push((batches, check_host_memory(batches, host, need)?));
    }
    if is_due(StageKind::Gpt, GPT) {
        let batches = StageBatches { stage: StageKind::Gpt, rows: plan.data.batch_size, replicas: count };
        let bytes = with_forecast(plan, corpus, machines, &model, fine_tune, |memory| {
            check_host_memory(batches, host, |rows| gpt_need(memory, plan, count, rows))
        })?;
        planned.push((batches, bytes));
    }
    if is_due(StageKind::Decoder, DECODER) {
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
        let batches = StageBatches { stage: StageKind::Decoder, rows: settings.rows, replicas: 1 };
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

/// The bytes that the steps of a stage are planned to need; an error if the machine has less, with a batch size that fits.
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
    while fewer >= replicas.max(1) {
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
        Some((rows, bytes)) => format!("{setting} = {rows} fits, with {}", gib(bytes)),
        None if batches.stage == StageKind::Gpt => {
            "no batch size fits: lower data.max_seconds, or take a smaller model.preset".to_owned()
        }
        None => "no batch size fits: take a smaller model.preset".to_owned(),
    };
    Err(TrainError::HostMemory(format!(
        "{setting} = {rows} is planned to take {} of this machine's memory for the {}'s steps, and it has {}: {advice}",
        gib(planned),
        batches.name(),
        gib(total)
    )))
}

/// The planned bytes of each stage, as one line. Stages run one after the other, so only the largest is compared with the
/// free memory.
pub fn line(planned: &[(StageBatches, u64)], host: Host) -> String {
    let stages: Vec<String> =
        planned.iter().map(|(batches, bytes)| format!("{} {}", batches.name(), gib(*bytes))).collect();
    let free = host.free.map_or(String::new(), |free| format!("; {} are free", gib(free)));
    let largest = planned.iter().max_by_key(|(_, bytes)| *bytes);
    let advice = match (largest, host.free) {
        (Some((batches, bytes)), Some(free)) if *bytes > free => {
            format!(", which is less: end other programs, or lower {}", batches.setting())
        }
        _ => String::new(),
    };
    format!("memory       planned for training steps: {}{free}{advice}", stages.join(", "))
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB)
}

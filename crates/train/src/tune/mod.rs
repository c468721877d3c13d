//! What suits this machine, corpus and network: rules that need no step to be taken, and a sweep that measures.
//!
//! [`facts`] (what there is) and [`lengths`] (what clips will be, before their codes are made) -> [`rules`] (settings with
//! their reasons, pure) for every run, [`host`] (what that takes of the machine's own memory); [`sweep`] (what is measured, and which of it is chosen) for `myxtts tune`, on a
//! processor by a [`race`].

pub mod facts;
pub mod host;
pub mod lengths;
pub mod race;
pub mod rules;
pub mod sweep;
pub mod sweeper;

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::Model;
use crate::pipeline::Request;
use crate::replica_slice::Replicas;
use crate::sizes::Sizes;
use crate::stage_settings::{conditioning, gpt_rows, gpt_settings};
use crate::stages::StageKind;
use crate::stages::gpt::{Conditioning, GptForecast, GptSettings};
use crate::training_data::Corpus;
use facts::Facts;
use lengths::Lengths;
use myxtts_run::config::Tuned;
use myxtts_run::plan::{Plan, TuningChange};
use rules::Memory;

/// What the rules choose for a run, of its settings that are open. No step is taken and nothing is loaded.
pub fn tuned(
    plan: &Plan,
    request: &Request,
    corpus: &Corpus,
    machines: &[ComputeDevice],
) -> Result<Vec<Tuned>, TrainError> {
    let facts = Facts::of(machines)?;
    let recipe = plan.recipe(StageKind::Gpt, request.from.is_some());
    if request.only.is_some_and(|only| only != StageKind::Gpt) || recipe.steps == 0 {
        // The batches of the other stages are of the size their presets have.
        return rules::choose(&facts, plan, None);
    }
    let model = match &request.from {
        Some(from) => Model::open(from)?,
        None => Model::default(),
    };
    with_forecast(plan, corpus, machines, &model, request.from.is_some(), |memory| {
        rules::choose(&facts, plan, Some(memory))
    })
}

/// Asks what a GPT stage would take of its devices, before there is one.
pub fn with_forecast<T>(
    plan: &Plan,
    corpus: &Corpus,
    machines: &[ComputeDevice],
    model: &Model,
    fine_tune: bool,
    ask: impl FnOnce(&dyn Memory) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let machine = machines.first().copied().unwrap_or(ComputeDevice::CPU);
    let sizes = Sizes::of(plan, machine, &corpus.tokenizer, model)?;
    let source = Lengths::new(&*corpus.source, sizes.dvae.clone());
    let conditioning = conditioning(plan, corpus, machine);
    let memory = match conditioning {
        // It depends on the device whether it can lie there.
        Conditioning::Resident { .. } => Facts::of(machines)?.gpu.map(|gpu| gpu.total),
        _ => None,
    };
    let forecast = GptForecast::new(
        GptSettings { conditioning, rows: gpt_rows(plan, machines.len()), ..gpt_settings(plan, &sizes) },
        plan.recipe(StageKind::Gpt, fine_tune),
        Replicas { machine, count: machines.len() },
        &source,
        corpus.split(),
    )
    .on_memory_of(memory.unwrap_or(u64::MAX));
    ask(&forecast)
}

impl Memory for GptForecast<'_> {
    fn planned(&self, rows: usize, accumulate: usize) -> Result<u64, TrainError> {
        GptForecast::planned(self, rows, accumulate)
    }

    fn waiting(&self, rows: usize) -> Result<u64, TrainError> {
        GptForecast::waiting(self, rows)
    }
}

/// What was tuned, for whoever begins a run; nothing where nothing was.
pub fn line(changes: &[TuningChange]) -> Option<String> {
    let words: Vec<String> = changes
        .iter()
        .map(|change| format!("{} = {} ({})", change.setting, change.value, change.reason))
        .collect();
    (!words.is_empty()).then(|| format!("tuned for this machine: {}", words.join("; ")))
}

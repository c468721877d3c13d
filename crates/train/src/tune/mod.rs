//! Settings that suit this machine, corpus and network: by rules that need no step, and by a sweep that measures.
//!
//! [`facts`] (the hardware) and [`lengths`] (lengths of clips before their codes exist) -> [`rules`] (settings with their
//! reasons, pure) for every run, [`host`] (the RAM that these settings need); [`sweep`] (candidates, and the choice among
//! them) for `myxtts tune`, on a CPU by a [`race`].

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
use std::sync::Arc;

/// The settings that the rules choose for a run, of those left unset. Runs no step and loads nothing.
pub fn tuned(
    plan: &Plan,
    request: &Request,
    corpus: &Corpus,
    machines: &[ComputeDevice],
) -> Result<Vec<Tuned>, TrainError> {
    let facts = Facts::of(machines)?;
    let recipe = plan.recipe(StageKind::Gpt, request.from.is_some());
    if request.only.is_some_and(|only| only != StageKind::Gpt) || recipe.steps == 0 {
        // The other stages have the batch sizes of their presets.
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

/// Calls `ask` with the memory forecast of a GPT stage, without building the stage.
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
        // Whether conditioning can be resident depends on the device's memory.
        Conditioning::Resident { .. } => Facts::of(machines)?.gpu.map(|gpu| gpu.total),
        _ => None,
    };
    let mut settings =
        GptSettings { conditioning, rows: gpt_rows(plan, machines.len()), ..gpt_settings(plan, &sizes) };
    // There are none yet, and heads that need them take memory.
    settings.regularization.alignments = Some(Arc::default());
    let forecast = GptForecast::new(
        settings,
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

/// The tuned settings as one line for the user; `None` if there are none.
pub fn line(changes: &[TuningChange]) -> Option<String> {
    let words: Vec<String> = changes
        .iter()
        .map(|change| format!("{} = {} ({})", change.setting, change.value, change.reason))
        .collect();
    (!words.is_empty()).then(|| format!("tuned for this machine: {}", words.join("; ")))
}

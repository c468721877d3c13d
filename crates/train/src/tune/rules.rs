//! The rules: settings for a machine, with their reasons. Pure: equal facts give equal choices.
//!
//! | setting | rule |
//! |---|---|
//! | `data.batch_size` | 64 on a GPU with 24 GB, 48 with 12, 32 below, 16 on a CPU; then its largest divisor that is planned to fit |
//! | `training.gradient_accumulation_steps` | the number of batches that add up to that first number |
//! | `data.num_workers` | all cores but the one that launches steps, at most 18; on a CPU one per eight cores, since steps need the cores |
//! | `data.prefetch_buffer_size` | the default, or what fits a 32nd of the GPU's memory and a 16th of the free RAM; 4 on a CPU |
//! | `data.buffer_size` | the default, or what fits an eighth of the free RAM; 8 on a CPU |
//!
//! Settings that the user made are kept, and the others are chosen to suit them.

use super::facts::Facts;
use crate::error::TrainError;
use myxtts_run::config::tune::{cores_reason, first_batch, loader_threads};
use myxtts_run::config::{Key, Tuned, Value};
use myxtts_run::memory_size::memory_size;
use myxtts_run::plan::Plan;

/// Memory that batches need on a device.
pub trait Memory {
    /// Total bytes with batches of `rows` rows over all replicas and steps of `accumulate` batches, without waiting batches.
    fn planned(&self, rows: usize, accumulate: usize) -> Result<u64, TrainError>;
    /// Bytes of one waiting batch.
    fn waiting(&self, rows: usize) -> Result<u64, TrainError>;
}

/// Candidate rows of a batch per device, if any number is allowed: each is a multiple of many smaller ones.
const ROWS: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Rows on a CPU, which is as fast on few rows as on many.
const ROWS_ON_CPU: usize = 16;
/// Minimum number of waiting batches: those a feed starts with.
const MIN_WAITING: u64 = 4;
/// Buffers on a CPU: its steps are long, and its memory is shared with everything else.
const READY_ON_CPU: usize = 4;
const IN_PREPARATION_ON_CPU: usize = 8;

/// The initial batch size, before its memory is planned: the number of clips per step.
pub fn first_rows(facts: &Facts) -> usize {
    let rows = facts.gpu.map_or(ROWS_ON_CPU, |gpu| first_batch(gpu.total) as usize);
    let each = rows.div_ceil(facts.replicas);
    // 64 rows cannot be split evenly over three devices: 72 can, and can be halved again.
    facts.replicas * ROWS.iter().copied().find(|&rows| rows >= each).unwrap_or(each)
}

/// Bytes of a device that a plan may use; `None` if the memory is unknown. A share is left for other programs, for the
/// driver's memory of captured steps, and as a margin.
pub fn budget(facts: &Facts, limit: Option<u64>) -> Option<u64> {
    let most = match facts.gpu {
        Some(gpu) => Some(gpu.free - gpu.free / 10),
        // RAM is shared with everything else.
        None => facts.ram_free.map(|free| free / 2),
    };
    match (most, limit) {
        (Some(most), Some(limit)) => Some(most.min(limit)),
        (most, limit) => most.or(limit),
    }
}

/// Chooses the settings for these facts, of those left unset in a plan. Without `memory`, batch settings are left out.
pub fn choose(facts: &Facts, plan: &Plan, memory: Option<&dyn Memory>) -> Result<Vec<Tuned>, TrainError> {
    let mut chosen = Vec::new();
    let mut say = |path: &'static str, value: usize, reason: String| {
        if plan.is_pending(path) {
            chosen.push(Tuned { path, value: value.to_string(), reason });
        }
    };
    let workers = match facts.gpu {
        Some(_) => loader_threads(facts.cores) as usize,
        None => (facts.cores / 8).max(1),
    };
    let why = match facts.gpu {
        Some(_) => cores_reason(facts.cores),
        None => format!(
            "training on the CPU: {} for its steps",
            cores_reason(facts.cores).replace(", one kept free", "")
        ),
    };
    say("data.num_workers", workers, why);
    let Some(memory) = memory else { return Ok(chosen) };

    let budget = budget(facts, plan.training.memory_limit);
    let rows = match plan.is_pending("data.batch_size") {
        false => plan.data.batch_size,
        true => {
            let batch = batch(facts, plan, budget, memory)?;
            say("data.batch_size", batch.rows, batch.reason);
            if batch.accumulate > 1 {
                let reason = format!("a step still has {} clips", batch.accumulate * batch.rows);
                say("training.gradient_accumulation_steps", batch.accumulate, reason);
            }
            batch.rows
        }
    };

    let bytes = memory.waiting(rows)?.max(1);
    let (ready, under_way) = match facts.gpu {
        Some(_) => (default_of("data.prefetch_buffer_size"), default_of("data.buffer_size")),
        None => (READY_ON_CPU, IN_PREPARATION_ON_CPU),
    };
    let of_ram = |share: u64| facts.ram_free.map(|free| free / share);
    let of_gpu = facts.gpu.map(|gpu| gpu.total / 32);
    let fitting = |most: usize, bounds: [Option<u64>; 2]| {
        let bytes_at_most = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
        (bytes_at_most / bytes).clamp(2, most.max(2) as u64) as usize
    };
    // Buffers only ever shrink: the defaults are deep enough, and deeper ones only delay a stop.
    let why = |held: &str| match facts.gpu {
        Some(_) => format!("a batch has {}, {held}", memory_size(bytes)),
        None => "training on the CPU".to_owned(),
    };
    let ready = match plan.is_pending("data.prefetch_buffer_size") {
        true => fitting(ready, [of_gpu, of_ram(16)]),
        false => plan.data.prefetch_buffer_size,
    };
    say("data.prefetch_buffer_size", ready, why("on the GPU and again in RAM"));
    // With a GPU that prepares batches, finished batches wait on the model's GPU.
    let on_model_gpu = plan.data.data_gpu.and(of_gpu);
    say("data.buffer_size", fitting(under_way, [on_model_gpu, of_ram(8)]).max(ready), why("in RAM"));
    Ok(chosen)
}

/// The default of an integer setting.
fn default_of(path: &str) -> usize {
    match Key::find(path).map(Key::default_value) {
        Some(Value::Int(number)) => number as usize,
        other => unreachable!("{path} is an integer setting, not {other:?}"),
    }
}

/// A batch size and its reason.
struct Batch {
    rows: usize,
    accumulate: usize,
    reason: String,
}

/// The largest batch that is planned to fit; a divisor of the initial size, if gradient accumulation can make up for it.
fn batch(facts: &Facts, plan: &Plan, budget: Option<u64>, memory: &dyn Memory) -> Result<Batch, TrainError> {
    let first = first_rows(facts);
    let each = first / facts.replicas;
    let whole = plan.is_pending("training.gradient_accumulation_steps");
    let parts = (1..=each).rev().filter(|part| match whole {
        true => each.is_multiple_of(*part),
        false => ROWS.contains(part),
    });
    let what = match facts.gpu {
        Some(gpu) => format!("a GPU with {}", memory_size(gpu.total)),
        None => "training on the CPU".to_owned(),
    };
    let mut tried: Option<(usize, u64)> = None;
    for part in parts {
        let rows = part * facts.replicas;
        let accumulate = if whole { each / part } else { plan.training.gradient_accumulation_steps };
        let Some(budget) = budget else {
            return Ok(Batch { rows, accumulate, reason: what });
        };
        let planned = memory.planned(rows, accumulate)? + MIN_WAITING * memory.waiting(rows)?;
        if planned <= budget {
            let reason = match tried {
                None => format!("{what}; planned to use {} of {}", memory_size(planned), memory_size(budget)),
                Some((more, needed)) => {
                    format!(
                        "{more} would need {} of {}, this one {}",
                        memory_size(needed),
                        memory_size(budget),
                        memory_size(planned)
                    )
                }
            };
            return Ok(Batch { rows, accumulate, reason });
        }
        tried = Some((rows, planned));
        if part == 1 {
            let reason = format!(
                "even this is planned to need {} of {}: set training.memory_limit to recompute blocks in the backward pass",
                memory_size(planned),
                memory_size(budget)
            );
            return Ok(Batch { rows, accumulate, reason });
        }
    }
    Ok(Batch { rows: facts.replicas, accumulate: 1, reason: what })
}

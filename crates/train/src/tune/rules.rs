//! The rules: settings for a machine, with their reasons. Pure: the same facts, the same choice.
//!
//! | setting | rule |
//! |---|---|
//! | `data.batch_size` | 64 where a GPU has 24 GB, 48 at 12, 32 below, 16 on the processor; then the largest part of it that is planned to fit |
//! | `training.gradient_accumulation_steps` | as many batches as make that first number again |
//! | `data.num_workers` | a thread for every core but the one that launches steps, 18 at most; on the processor one for every eight cores, for the steps need them |
//! | `data.prefetch_buffer_size` | the default, or what fits a 32nd of the GPU's memory and a 16th of the free RAM; 4 on the processor |
//! | `data.buffer_size` | the default, or what fits an eighth of the free RAM; 8 on the processor |
//!
//! A setting that somebody made is left as it is, and the others are fitted around it.

use super::facts::Facts;
use crate::error::TrainError;
use myxtts_run::config::tune::{cores_reason, first_batch, loader_threads};
use myxtts_run::config::{Key, Tuned, Value};
use myxtts_run::plan::Plan;

/// What a batch takes of a device.
pub trait Memory {
    /// Bytes in all with batches of so many rows, over all replicas, and steps of so many batches; all but batches that wait.
    fn planned(&self, rows: usize, accumulate: usize) -> Result<u64, TrainError>;
    /// Bytes of one batch that waits.
    fn waiting(&self, rows: usize) -> Result<u64, TrainError>;
}

/// Rows of a batch for one device, where it may be any: each is a multiple of many smaller ones.
const ROWS: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Of a processor: it computes as fast on few rows as on many.
const ROWS_ON_PROCESSOR: usize = 16;
/// Batches that wait at least: those a feed begins with.
const WAITING: u64 = 4;
/// Of a processor: its steps are long and its memory is that of everybody.
const READY_ON_PROCESSOR: usize = 4;
const UNDER_WAY_ON_PROCESSOR: usize = 8;

/// The batch that is thought of first, before its memory is planned: what a step learns from at once.
pub fn first_rows(facts: &Facts) -> usize {
    let rows = facts.gpu.map_or(ROWS_ON_PROCESSOR, |gpu| first_batch(gpu.total) as usize);
    let each = rows.div_ceil(facts.replicas);
    // Over three devices 64 rows cannot be dealt evenly: 72 can, and be halved again.
    facts.replicas * ROWS.iter().copied().find(|&rows| rows >= each).unwrap_or(each)
}

/// Bytes of a device that may be planned with; none where nothing is known. A share is left to other programs, to what
/// the driver takes for recorded steps, and to chance.
pub fn budget(facts: &Facts, limit: Option<u64>) -> Option<u64> {
    let most = match facts.gpu {
        Some(gpu) => Some(gpu.free - gpu.free / 10),
        // Of RAM everybody has a part.
        None => facts.ram_free.map(|free| free / 2),
    };
    match (most, limit) {
        (Some(most), Some(limit)) => Some(most.min(limit)),
        (most, limit) => most.or(limit),
    }
}

/// The settings for these facts, of those that are open in a plan. Without `memory`, nothing is said of batches.
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
            "the processor trains: {} for its steps",
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
                let reason =
                    format!("a step learns from {} clips all the same", batch.accumulate * batch.rows);
                say("training.gradient_accumulation_steps", batch.accumulate, reason);
            }
            batch.rows
        }
    };

    let bytes = memory.waiting(rows)?.max(1);
    let (ready, under_way) = match facts.gpu {
        Some(_) => (default_of("data.prefetch_buffer_size"), default_of("data.buffer_size")),
        None => (READY_ON_PROCESSOR, UNDER_WAY_ON_PROCESSOR),
    };
    let of_ram = |share: u64| facts.ram_free.map(|free| free / share);
    let of_gpu = facts.gpu.map(|gpu| gpu.total / 32);
    let fitting = |most: usize, bounds: [Option<u64>; 2]| {
        let bytes_at_most = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
        (bytes_at_most / bytes).clamp(2, most.max(2) as u64) as usize
    };
    // Buffers only ever shrink: the defaults are deep enough, and deeper ones only delay a stop.
    let why = |held: &str| match facts.gpu {
        Some(_) => format!("a batch has {}, {held}", size(bytes)),
        None => "the processor trains".to_owned(),
    };
    let ready = match plan.is_pending("data.prefetch_buffer_size") {
        true => fitting(ready, [of_gpu, of_ram(16)]),
        false => plan.data.prefetch_buffer_size,
    };
    say("data.prefetch_buffer_size", ready, why("on the GPU and again in RAM"));
    // With a GPU of their own, finished batches wait beside the model.
    let beside = plan.data.data_gpu.and(of_gpu);
    say("data.buffer_size", fitting(under_way, [beside, of_ram(8)]).max(ready), why("in RAM"));
    Ok(chosen)
}

/// The default of a setting that is a whole number.
fn default_of(path: &str) -> usize {
    match Key::find(path).map(Key::default_value) {
        Some(Value::Int(number)) => number as usize,
        other => unreachable!("{path} is a whole number in the table, not {other:?}"),
    }
}

/// A batch and its reason.
struct Batch {
    rows: usize,
    accumulate: usize,
    reason: String,
}

/// The largest batch that is planned to fit; of equal parts of the first guess, where those may be made one step again.
fn batch(facts: &Facts, plan: &Plan, budget: Option<u64>, memory: &dyn Memory) -> Result<Batch, TrainError> {
    let first = first_rows(facts);
    let each = first / facts.replicas;
    let whole = plan.is_pending("training.gradient_accumulation_steps");
    let parts = (1..=each).rev().filter(|part| match whole {
        true => each.is_multiple_of(*part),
        false => ROWS.contains(part),
    });
    let what = match facts.gpu {
        Some(gpu) => format!("a GPU with {:.0} GB", gpu.total as f64 / 1e9),
        None => "the processor trains".to_owned(),
    };
    let mut tried: Option<(usize, u64)> = None;
    for part in parts {
        let rows = part * facts.replicas;
        let accumulate = if whole { each / part } else { plan.training.gradient_accumulation_steps };
        let Some(budget) = budget else {
            return Ok(Batch { rows, accumulate, reason: what });
        };
        let planned = memory.planned(rows, accumulate)? + WAITING * memory.waiting(rows)?;
        if planned <= budget {
            let reason = match tried {
                None => format!("{what}; {} planned of {}", size(planned), size(budget)),
                Some((more, needed)) => {
                    format!("{more} would take {} of {}, this {}", size(needed), size(budget), size(planned))
                }
            };
            return Ok(Batch { rows, accumulate, reason });
        }
        tried = Some((rows, planned));
        if part == 1 {
            let reason = format!(
                "even this is planned to take {} of {}: training.memory_limit has blocks computed again",
                size(planned),
                size(budget)
            );
            return Ok(Batch { rows, accumulate, reason });
        }
    }
    Ok(Batch { rows: facts.replicas, accumulate: 1, reason: what })
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

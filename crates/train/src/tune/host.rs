//! The memory of the machine itself that a run on the processor is planned to take: said before it begins, and refused where
//! there is not so much. A GPU says by itself that it is full; a machine that is full ends whatever it likes.

use super::rules::Memory;
use super::with_forecast;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::Model;
use crate::pipeline::Request;
use crate::stages::StageKind;
use crate::training_data::Corpus;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;

const GIB: f64 = (1u64 << 30) as f64;

/// What there is of it, in bytes; none where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// That this process may ever have.
    pub total: Option<u64>,
    /// That nobody has now.
    pub free: Option<u64>,
}

impl Host {
    /// This machine's.
    pub fn detect() -> Host {
        let total = myxtts_run::config::HostResources::detect().memory_bytes;
        Host { total, free: myxtts_run::config::host::free_memory() }
    }
}

/// A sentence on the memory of the GPT's steps; none where they run on GPUs, or are not to run. An error where they cannot.
pub fn host_memory(
    plan: &Plan,
    request: &Request,
    corpus: &Corpus,
    machines: &[ComputeDevice],
    host: Host,
) -> Result<Option<String>, TrainError> {
    let replicas = machines.iter().filter(|machine| machine.device == Device::Cpu).count();
    let fine_tune = request.from.is_some();
    let is_due = request.only.is_none_or(|only| only == StageKind::Gpt)
        && plan.recipe(StageKind::Gpt, fine_tune).steps > 0;
    if replicas == 0 || !is_due {
        return Ok(None);
    }
    let model = request.from.as_deref().map(Model::open).transpose()?.unwrap_or_default();
    with_forecast(plan, corpus, machines, &model, fine_tune, |memory| {
        judge(plan.data.batch_size, replicas, host, |rows| need(memory, plan, replicas, rows)).map(Some)
    })
}

/// Bytes of all replicas, and of the batches that wait.
fn need(memory: &dyn Memory, plan: &Plan, replicas: usize, rows: usize) -> Result<u64, TrainError> {
    let steps = memory.planned(rows, plan.training.gradient_accumulation_steps)?;
    let waiting = memory.waiting(rows)?.saturating_mul(plan.data.buffer_size as u64);
    Ok(steps.saturating_add(waiting).saturating_mul(replicas as u64))
}

/// Whether batches of so many rows have room, and what else would.
pub fn judge(
    rows: usize,
    replicas: usize,
    host: Host,
    need: impl Fn(usize) -> Result<u64, TrainError>,
) -> Result<String, TrainError> {
    let planned = need(rows)?;
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
    if let Some(total) = host.total.filter(|total| planned > *total) {
        let mut fitting = None;
        let mut fewer = rows / 2;
        while fewer >= replicas {
            let even = fewer / replicas * replicas;
            let bytes = need(even)?;
            if bytes <= total {
                fitting = Some((even, bytes));
                break;
            }
            fewer /= 2;
        }
        let advice = match fitting {
            Some((rows, bytes)) => format!("data.batch_size = {rows} fits, with {}", gib(bytes)),
            None => "no batch size fits: lower data.max_seconds, or take a smaller model.preset".to_owned(),
        };
        return Err(TrainError::HostMemory(format!(
            "data.batch_size = {rows} is planned to take {} of this machine's memory for the GPT's steps, and it has {}: {advice}",
            gib(planned),
            gib(total)
        )));
    }
    let free = host.free.map_or(String::new(), |free| format!(" of {} that are free", gib(free)));
    let tight = match host.free {
        Some(free) if planned > free => "; that is more: end other programs, or lower data.batch_size",
        _ => "",
    };
    Ok(format!("memory       the GPT's steps are planned to take {}{free}{tight}", gib(planned)))
}

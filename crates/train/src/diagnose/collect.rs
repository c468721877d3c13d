//! Traces a stage on its own feed: steps queued as in training, then the same shapes without a feed.

use super::cpu_usage::Counted;
use super::trace::{Batch, CoresSample, GpuSample, Setup, Trace};
use crate::error::TrainError;
use crate::fault::Fault;
use crate::stages::{Stage, Submitted};
use crate::step_queue::{CompletedStep, StepQueue, control};
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use std::collections::BTreeMap;
use std::time::Instant;

/// How much is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Number of batches in the trace.
    pub batches: u64,
    /// Number of batches before the trace: buffers fill, and most shapes occur.
    pub warm: u64,
    /// Number of steps that may be queued on a GPU before the first is waited for.
    pub ahead: usize,
}

/// Samples of the machine, in time order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSamples {
    /// CPU usage.
    pub cores: Vec<CoresSample>,
    /// GPU state.
    pub gpu: Vec<GpuSample>,
    /// Why there are no GPU samples.
    pub no_gpu: Option<String>,
}

/// Samples the machine while a stage runs.
pub trait MachineSampler {
    /// The samples between two moments; their times count from the first.
    fn samples(&mut self, _from: Instant, _to: Instant) -> MachineSamples {
        MachineSamples::default()
    }
}

/// Samples nothing.
pub struct NoMachineSampler;

impl MachineSampler for NoMachineSampler {}

/// Maximum number of batches that are replayed.
const REPLAYED: usize = 30;

/// How batches are made, as far as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSetup {
    /// Loader threads.
    pub workers: usize,
    /// Rows of a batch.
    pub batch_size: usize,
}

/// Runs a stage and measures where every batch spends its time, with samples of the machine; `fault` acts on the traced
/// steps. The weights of the stage change.
pub fn collect(
    stage: &mut dyn Stage,
    recipe: &Recipe,
    seed: u64,
    amount: TraceSettings,
    BatchSetup { workers, batch_size }: BatchSetup,
    fault: Option<&Fault>,
    sampler: &mut dyn MachineSampler,
) -> Result<Trace, TrainError> {
    let on_gpu = stage.engine().cuda().is_some();
    let seed = Seed::new(seed).derive("diagnose");
    // Starts in the middle of the stage, as a benchmark does, so that parts that join later are included.
    let middle = recipe.steps / 2;
    let ahead = if on_gpu { amount.ahead } else { 0 };
    let mut in_flight = StepQueue::start(stage);
    // On a GPU the first run of a shape measures it and the second captures it.
    let captured = if on_gpu { 2 } else { 1 };
    let mut runs: BTreeMap<[usize; 3], u64> = BTreeMap::new();
    let mut batches: Vec<Batch> = Vec::new();
    let (mut slots, mut bytes, mut pinned, mut done) = (0, 0, true, 0);
    let mut began = Counted::now();
    let end = middle + amount.warm + amount.batches;
    for step in middle..end {
        let step_control = control(recipe, middle, seed.at(step));
        let mut queued = stage.submit(step, &step_control)?;
        if let Some(fault) = fault {
            fault.on_submit(stage, step, &step_control, &mut queued)?;
        }
        let met = runs.entry(queued.shape).or_default();
        *met += 1;
        let is_new = *met <= captured;
        // While a shape is captured the loop does not wait for the steps before it: the first of them seems to end late, and
        // the others at once.
        in_flight.in_flight_mut().for_each(|other: &mut Queued| other.beside_new |= is_new);
        in_flight.push(queued.ticket, Queued { queued, is_new, beside_new: false });
        let keep = if step + 1 == end { 0 } else { ahead };
        while let Some(ended) = in_flight.complete_next(keep, stage)? {
            let CompletedStep { step: Queued { queued, is_new, beside_new }, period, on_device, .. } = ended;
            let made = &queued.fed.last_made;
            (slots, bytes) = (queued.fed.slots, made.bytes.max(bytes));
            pinned &= !made.pageable;
            done += 1;
            if done <= amount.warm {
                // Only once: reading the counters of every thread takes a while.
                if done == amount.warm {
                    began = Counted::now();
                }
                continue;
            }
            // The CPU works on the step whenever the loop does not wait.
            let step = on_device.unwrap_or_else(|| period.saturating_sub(queued.waited));
            let times = (step.as_secs_f64(), period.as_secs_f64());
            batches.push(Batch { compiled: is_new, beside_new, ..batch(&queued, times.0, times.1) });
        }
    }
    let ended = Counted::now();
    let cpu = began.until(&ended, workers);
    let seen = sampler.samples(began.at, ended.at);
    let shapes: Vec<[usize; 3]> = batches.iter().rev().take(REPLAYED).map(|batch| batch.shape).collect();
    let (mut alone, mut replayed) = (Vec::new(), Vec::new());
    let mut in_flight = StepQueue::start(stage);
    let mut is_first = true;
    for (number, shape) in shapes.iter().copied().enumerate() {
        if let Some(ticket) = stage.replay(shape, &control(recipe, middle, seed.at(number as u64)))? {
            in_flight.push(ticket, shape);
        }
        let keep = if number + 1 == shapes.len() { 0 } else { ahead };
        for timed in in_flight.complete(keep, stage)? {
            // The first may have waited for work that was already queued.
            if !std::mem::take(&mut is_first) {
                let period = timed.period.as_secs_f64();
                alone.push((timed.step, timed.on_device.map_or(period, |step| step.as_secs_f64())));
                replayed.push((timed.step, period));
            }
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let setup = Setup { workers, slots, batch_size, cores, batch_bytes: bytes, pinned, on_gpu };
    let MachineSamples { cores, gpu, no_gpu } = seen;
    Ok(Trace { setup, batches, cpu, cores, gpu, no_gpu, alone, replayed })
}

fn batch(queued: &Submitted, step: f64, period: f64) -> Batch {
    let made = &queued.fed.last_made;
    Batch {
        shape: queued.shape,
        compiled: false,
        beside_new: false,
        worker: made.worker,
        read: made.reading.as_secs_f64(),
        // Decoding and features together: both are done in one pass.
        decode: made.computing.as_secs_f64(),
        collate: made.collating.as_secs_f64(),
        fill: made.filling.as_secs_f64(),
        blocked: made.blocked.as_secs_f64(),
        upload: made.sending.as_secs_f64(),
        wait: queued.waited.as_secs_f64(),
        step,
        period,
    }
}

/// A step in flight.
struct Queued {
    queued: Submitted,
    /// Whether its shape was measured or captured when it was queued.
    is_new: bool,
    /// Whether another shape was, before the end of this step was observed.
    beside_new: bool,
}

//! A trace of a stage on its own feed: its steps as training queues them, then the same shapes with nothing fed.

use super::processor::Counted;
use super::trace::{Batch, CoresSample, GpuSample, Setup, Trace};
use crate::error::TrainError;
use crate::stages::{Stage, Submitted};
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Ticket;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Batches in the trace.
    pub batches: u64,
    /// Batches before them: buffers fill, and most shapes are met.
    pub warm: u64,
    /// Steps that may be queued on a GPU before the first is waited for.
    pub ahead: usize,
}

/// What was seen of the machine from outside, in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSamples {
    /// The processor.
    pub cores: Vec<CoresSample>,
    /// The GPU.
    pub gpu: Vec<GpuSample>,
    /// Why there is nothing of it.
    pub no_gpu: Option<String>,
}

/// Who looks at the machine while a stage runs.
pub trait MachineSampler {
    /// What was seen between two moments; times count from the first of them.
    fn samples(&mut self, _from: Instant, _to: Instant) -> MachineSamples {
        MachineSamples::default()
    }
}

/// Samples nothing.
pub struct NoMachineSampler;

impl MachineSampler for NoMachineSampler {}

/// Batches that are replayed at most.
const REPLAYED: usize = 30;

/// Runs a stage and notes where every batch spends its time, and what was seen beside it. The stage's weights are not what
/// they were.
pub fn collect(
    stage: &mut dyn Stage,
    recipe: &Recipe,
    seed: u64,
    amount: Amount,
    (workers, batch_size): (usize, usize),
    sampler: &mut dyn MachineSampler,
) -> Result<Trace, TrainError> {
    let on_gpu = stage.engine().cuda().is_some();
    let seed = Seed::new(seed).derive("diagnose");
    // From the middle of the stage, as for a benchmark: what joins late has joined.
    let control = |step: u64| Control {
        rate: recipe.schedule.at((recipe.steps / 2).min(recipe.steps.max(1) - 1)) as f32,
        weight: 1.0,
        clip: recipe.clip.unwrap_or(0.0) as f32,
        average: recipe.ema_decay.unwrap_or(0.0) as f32,
        seed: seed.at(step),
    };
    let mut clock = Clock::start(stage, if on_gpu { amount.ahead } else { 0 });
    // On a GPU a shape's first run measures and its second records.
    let recorded = if on_gpu { 2 } else { 1 };
    let mut runs: BTreeMap<[usize; 3], u64> = BTreeMap::new();
    let mut batches: Vec<Batch> = Vec::new();
    let (mut slots, mut bytes, mut pinned) = (0, 0, true);
    let mut began = Counted::now();
    let first = recipe.steps / 2;
    for step in first..first + amount.warm + amount.batches {
        let queued = stage.submit(step, &control(step))?;
        let met = runs.entry(queued.shape).or_default();
        *met += 1;
        let is_new = *met <= recorded;
        let last = step + 1 == first + amount.warm + amount.batches;
        clock.queue(queued, is_new);
        for (Queued { queued, is_new, beside_new }, step, period) in clock.ended(stage, last)? {
            let made = &queued.fed.last_made;
            (slots, bytes) = (queued.fed.slots, made.bytes.max(bytes));
            pinned &= !made.pageable;
            if clock.done <= amount.warm {
                // Once: it asks for every thread, and that takes a while.
                if clock.done == amount.warm {
                    began = Counted::now();
                }
                continue;
            }
            batches.push(Batch { compiled: is_new, beside_new, ..batch(&queued, step, period) });
        }
    }
    let ended = Counted::now();
    let processor = began.until(&ended, workers);
    let seen = sampler.samples(began.at, ended.at);
    let shapes: Vec<[usize; 3]> = batches.iter().rev().take(REPLAYED).map(|batch| batch.shape).collect();
    let (mut alone, mut replayed) = (Vec::new(), Vec::new());
    let mut clock = Clock::start(stage, 0);
    let mut in_flight: VecDeque<([usize; 3], Ticket)> = VecDeque::new();
    for (number, shape) in shapes.iter().copied().enumerate() {
        in_flight.extend(stage.replay(shape, &control(number as u64))?.map(|ticket| (shape, ticket)));
        let left = if on_gpu && number + 1 < shapes.len() { amount.ahead } else { 0 };
        while in_flight.len() > left
            && let Some((shape, ticket)) = in_flight.pop_front()
        {
            stage.wait(ticket)?;
            let (step, period) = clock.tick(stage, Duration::ZERO);
            clock.done += 1;
            // The first may have waited for whatever was under way.
            if clock.done > 1 {
                alone.push((shape, if on_gpu { step } else { period }));
                replayed.push((shape, period));
            }
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let setup = Setup { workers, slots, batch_size, cores, batch_bytes: bytes, pinned, on_gpu };
    let MachineSamples { cores, gpu, no_gpu } = seen;
    Ok(Trace { setup, batches, processor, cores, gpu, no_gpu, alone, replayed })
}

fn batch(queued: &Submitted, step: f64, period: f64) -> Batch {
    let made = &queued.fed.last_made;
    Batch {
        shape: queued.shape,
        compiled: false,
        beside_new: false,
        worker: made.worker,
        read: made.reading.as_secs_f64(),
        // Both together: a record is decoded and its features computed in one go.
        decode: made.computing.as_secs_f64(),
        features: 0.0,
        collate: made.collating.as_secs_f64(),
        fill: made.filling.as_secs_f64(),
        blocked: made.blocked.as_secs_f64(),
        upload: made.sending.as_secs_f64(),
        wait: queued.waited.as_secs_f64(),
        step,
        period,
    }
}

/// A step under way.
struct Queued {
    queued: Submitted,
    /// Its shape was measured or recorded when it was queued.
    is_new: bool,
    /// That of another was, before this one's end was seen.
    beside_new: bool,
}

/// Steps under way, and when the last one ended.
struct Clock {
    in_flight: VecDeque<Queued>,
    ahead: usize,
    done: u64,
    last: Instant,
    busy: Option<Duration>,
}

impl Clock {
    fn start(stage: &dyn Stage, ahead: usize) -> Clock {
        let (last, busy) = (Instant::now(), stage.engine().busy());
        Clock { in_flight: VecDeque::new(), ahead, done: 0, last, busy }
    }

    fn queue(&mut self, queued: Submitted, is_new: bool) {
        // While a shape is recorded nobody waits for the steps before it: the first of them seems to end late, and the
        // others at once.
        self.in_flight.iter_mut().for_each(|other| other.beside_new |= is_new);
        self.in_flight.push_back(Queued { queued, is_new, beside_new: false });
    }

    /// Waits until no more steps are under way than may be, or none, and says how long each of the ended took.
    fn ended(&mut self, stage: &mut dyn Stage, all: bool) -> Result<Vec<(Queued, f64, f64)>, TrainError> {
        let mut ended = Vec::new();
        let left = if all { 0 } else { self.ahead };
        while self.in_flight.len() > left
            && let Some(queued) = self.in_flight.pop_front()
        {
            stage.wait(queued.queued.ticket)?;
            let (step, period) = self.tick(stage, queued.queued.waited);
            self.done += 1;
            ended.push((queued, step, period));
        }
        Ok(ended)
    }

    /// Seconds of the step that has just ended, and since the one before it ended.
    fn tick(&mut self, stage: &dyn Stage, waited: Duration) -> (f64, f64) {
        let (now, busy) = (Instant::now(), stage.engine().busy());
        let period = now - std::mem::replace(&mut self.last, now);
        let step = match (std::mem::replace(&mut self.busy, busy), busy) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            // The processor is at the step whenever the loop does not wait.
            _ => period.saturating_sub(waited),
        };
        (step.as_secs_f64(), period.as_secs_f64())
    }
}

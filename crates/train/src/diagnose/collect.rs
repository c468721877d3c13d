//! A trace of a stage on its own feed: its steps as training queues them, then the same shapes with nothing fed.

use super::trace::{Batch, Gpu, Processor, Setup, Trace};
use crate::bench::processor_seconds;
use crate::error::TrainError;
use crate::stages::{Stage, Submitted};
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use myxtts_tensor::Control;
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

/// Batches that are replayed at most.
const REPLAYED: usize = 30;

/// Runs a stage and notes where every batch spends its time; `look` is asked after each for the GPU as it is. The stage's
/// weights are not what they were.
pub fn collect(
    stage: &mut dyn Stage,
    recipe: &Recipe,
    seed: u64,
    amount: Amount,
    (workers, batch_size): (usize, usize),
    look: &mut dyn FnMut() -> Option<Gpu>,
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
    let (mut batches, mut gpu): (Vec<Batch>, Vec<Gpu>) = (Vec::new(), Vec::new());
    let (mut slots, mut bytes) = (0, 0);
    let mut began = Machine::now();
    let first = recipe.steps / 2;
    for step in first..first + amount.warm + amount.batches {
        let queued = stage.submit(step, &control(step))?;
        let last = step + 1 == first + amount.warm + amount.batches;
        clock.queue(queued);
        for (queued, step, period) in clock.ended(stage, last)? {
            let met = runs.entry(queued.shape).or_default();
            *met += 1;
            (slots, bytes) = (queued.fed.slots, queued.fed.last_made.bytes.max(bytes));
            if clock.done <= amount.warm {
                began = Machine::now();
                continue;
            }
            batches.push(batch(&queued, *met <= recorded, step, period));
            gpu.extend(look());
        }
    }
    let processor = began.until(&Machine::now());
    let shapes: Vec<[usize; 3]> = batches.iter().rev().take(REPLAYED).map(|batch| batch.shape).collect();
    let mut alone = Vec::new();
    let mut clock = Clock::start(stage, 0);
    for (number, shape) in shapes.into_iter().enumerate() {
        let Some(ticket) = stage.replay(shape, &control(number as u64))? else { continue };
        stage.wait(ticket)?;
        let (step, period) = clock.tick(stage, Duration::ZERO);
        // The first may have waited for whatever was under way.
        if number > 0 {
            alone.push((shape, if on_gpu { step } else { period }));
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let setup = Setup { workers, slots, batch_size, cores, batch_bytes: bytes, pinned: true };
    Ok(Trace { setup, batches, processor, gpu, alone })
}

fn batch(queued: &Submitted, compiled: bool, step: f64, period: f64) -> Batch {
    let made = &queued.fed.last_made;
    Batch {
        shape: queued.shape,
        compiled,
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

/// Steps under way, and when the last one ended.
struct Clock {
    flying: VecDeque<Submitted>,
    ahead: usize,
    done: u64,
    last: Instant,
    busy: Option<Duration>,
}

impl Clock {
    fn start(stage: &dyn Stage, ahead: usize) -> Clock {
        let (last, busy) = (Instant::now(), stage.engine().busy());
        Clock { flying: VecDeque::new(), ahead, done: 0, last, busy }
    }

    fn queue(&mut self, queued: Submitted) {
        self.flying.push_back(queued);
    }

    /// Waits until no more steps are under way than may be, or none, and says how long each of the ended took.
    fn ended(&mut self, stage: &mut dyn Stage, all: bool) -> Result<Vec<(Submitted, f64, f64)>, TrainError> {
        let mut ended = Vec::new();
        let left = if all { 0 } else { self.ahead };
        while self.flying.len() > left
            && let Some(queued) = self.flying.pop_front()
        {
            stage.wait(queued.ticket)?;
            let (step, period) = self.tick(stage, queued.waited);
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

/// Processor time, in seconds of one core.
struct Machine {
    own: f64,
    /// Busy and in all; none where the system does not tell.
    all: Option<(f64, f64)>,
}

impl Machine {
    fn now() -> Machine {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Machine { own: processor_seconds(), all: counted(&stat) }
    }

    fn until(&self, later: &Machine) -> Option<Processor> {
        let ((busy, all), (later_busy, later_all)) = (self.all?, later.all?);
        let time = later_all - all;
        (time > 0.0)
            .then(|| Processor { own: (later.own - self.own) / time, all: (later_busy - busy) / time })
    }
}

/// Seconds that all cores together were busy, and seconds in all, of the system's statistics.
fn counted(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, waiting for a disk, ...; what guests use is counted in user already.
    let ticks: Vec<f64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let (all, idle) = (ticks.iter().sum::<f64>(), ticks.get(3)? + ticks.get(4)?);
    Some(((all - idle) / 100.0, all / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_processor_are_of_all_cores() {
        let at = |own, text: &str| Machine { own, all: counted(text) };
        let before = at(1.0, "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = at(2.0, "cpu  400 0 200 1300 100 0 0 0 7 0\n");
        let found = before.until(&after).unwrap();
        assert_eq!((found.own, found.all), (0.1, 0.4));
        assert_eq!(counted("nothing"), None);
        assert_eq!(after.until(&after), None);
    }
}

//! How fast a stage trains and what it waits for: its own steps on its own feed, timed.
//!
//! Steps are queued a few ahead of their reports, as training queues them. A step's time is from the end of the one
//! before to its own end. The time kernels run is CUPTI's, taken in a second pass over the last of the same batches, and
//! looking on changes it: gaps become wider, and kernels of two streams hinder each other more. So no time of one pass is
//! divided by a time of the other. See [`Shares`].

pub mod chart;
pub mod timed_stage;

use crate::error::TrainError;
use crate::stages::Stage;
use crate::statistics::{median, percentile, variation};
use crate::step_timer::{StepTimer, TimedStep, control};
use myxtts_run::plan::Recipe;
use myxtts_run::procfs::ProcessStat;
use myxtts_run::seed::Seed;
use myxtts_tensor::cuda::cupti::{Activity, KernelTimes, busy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchSettings {
    /// Steps that are timed.
    pub steps: u64,
    /// Steps before them, at least: every shape has to be recorded, and clocks have to settle.
    pub warm: u64,
    /// Steps that may be queued before the first is waited for.
    pub ahead: usize,
    /// Steps under CUPTI's eyes.
    pub watched: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Clips (or windows of clips) per second.
    pub samples_per_second: f64,
    /// Steps per second.
    pub steps_per_second: f64,
    /// Median of the steps' times, in milliseconds.
    pub step_ms: f64,
    /// 99 of 100 are at most this.
    pub step_p99_ms: f64,
    /// Standard deviation over mean, all steps together: shapes differ.
    pub variation: f64,
    /// The same among steps of equal shape, weighed by their number; on a GPU by its own clock.
    pub variation_at_equal_shape: f64,
    /// Shapes met.
    pub shapes: usize,
    /// Rows, places of text and places of sound of a step, on average.
    pub mean_shape: [f64; 3],
    /// Share of the time the loop stood waiting for a batch.
    pub wait_share: f64,
    /// Of the waits, in milliseconds.
    pub wait_p99_ms: f64,
    /// The share of the time in which kernels of steps ran, as [`Shares::busy`] has it; none without a GPU or CUPTI.
    pub busy: Option<f64>,
    /// The share of the time in which a step was on the device, by the device's clock, with nobody looking on.
    pub on_device: Option<f64>,
    /// Kernel time over the time while CUPTI looked on.
    pub busy_watched: Option<f64>,
    /// Kernel time of a watched step, in milliseconds.
    pub kernel_ms: Option<f64>,
    /// Why there is no share, where there should be one.
    pub no_busy: Option<String>,
    /// Processor cores this process kept busy.
    pub cores: f64,
    /// Device memory as planned, in bytes.
    pub planned_bytes: u64,
    /// Device memory in use by the driver's count, in bytes.
    pub used_bytes: Option<u64>,
    /// Every timed step: rows, places of text, places of sound, milliseconds, milliseconds waited for its batch, and
    /// milliseconds on the device's clock.
    pub raw: Vec<(usize, usize, usize, f64, f64, Option<f64>)>,
}

struct Timed {
    shape: [usize; 3],
    rows: u64,
    seconds: f64,
    /// From the step's beginning to its end on the device, where one tells.
    spanned: Option<f64>,
    waited: Duration,
}

/// Steps of a stage, queued `ahead`, each with its time.
struct Runner<'a> {
    stage: &'a mut dyn Stage,
    recipe: &'a Recipe,
    seed: Seed,
    next: u64,
    ahead: usize,
}

impl Runner<'_> {
    fn run(&mut self, steps: u64) -> Result<Vec<Timed>, TrainError> {
        let mut timer = StepTimer::start(self.stage, self.ahead);
        let mut done = Vec::with_capacity(steps as usize);
        for step in self.next..self.next + steps {
            let queued = self.stage.submit(step, &control(self.recipe, step, self.seed.at(step)))?;
            timer.push(queued.ticket, (queued.shape, queued.rows, queued.waited));
            done.extend(timer.complete(self.stage)?.into_iter().map(Timed::from));
        }
        done.extend(timer.complete_all(self.stage)?.into_iter().map(Timed::from));
        self.next += steps;
        Ok(done)
    }
}

impl From<TimedStep<([usize; 3], u64, Duration)>> for Timed {
    fn from(timed: TimedStep<([usize; 3], u64, Duration)>) -> Timed {
        let (shape, rows, waited) = timed.step;
        let spanned = timed.on_device.map(|time| time.as_secs_f64());
        Timed { shape, rows, seconds: timed.period.as_secs_f64(), spanned, waited }
    }
}

/// Runs a stage and times it. Its weights are not what they were.
pub fn measure(
    stage: &mut dyn Stage,
    recipe: &Recipe,
    seed: u64,
    amount: BenchSettings,
) -> Result<Figures, TrainError> {
    let on_gpu = stage.engine().cuda().is_some();
    let ahead = if on_gpu { amount.ahead } else { 0 };
    // From the middle of the stage: what joins later, as the discriminators of the decoder, has joined.
    let first = recipe.steps / 2;
    let mut runner = Runner { stage, recipe, seed: Seed::new(seed).derive("bench"), next: first, ahead };
    // A shape's first run measures, its second records: a shape met for the first time later would be timed with that. Two
    // epochs meet all of them, wherever they begin. On a processor there is nothing to record, and what a first run takes
    // longer is little beside its step.
    let settled = if on_gpu { 3 } else { 1 };
    let warm = match on_gpu {
        true => amount.warm.max((2 * runner.stage.epoch_steps()).min(10 * amount.warm)),
        false => amount.warm,
    };
    let mut seen: BTreeMap<[usize; 3], u64> = BTreeMap::new();
    while runner.next - first < warm || seen.values().any(|&runs| runs < settled) {
        for timed in runner.run(amount.warm.clamp(1, 10))? {
            *seen.entry(timed.shape).or_default() += 1;
        }
        if runner.next - first > 20 * warm.max(10) {
            break;
        }
    }
    let (start, before) = (Instant::now(), processor_seconds());
    let timed = runner.run(amount.steps.max(2))?;
    let (wall, cores) = (start.elapsed().as_secs_f64(), processor_seconds() - before);
    let (watched, no_busy) = match on_gpu && amount.watched > 0 {
        false => (None, None),
        true => {
            let again = amount.watched.min(timed.len() as u64 - 1);
            runner.next -= again;
            match watch(&mut runner, again) {
                Ok(watched) => (Some((watched, again)), None),
                Err(why) => (None, Some(why)),
            }
        }
    };
    let engine = runner.stage.engine();
    let used = engine.cuda().and_then(|cuda| cuda.memory().ok()).map(|(free, total)| (total - free) as u64);
    let mut figures = figures(&timed, wall);
    figures.cores = cores / wall;
    figures.planned_bytes = engine.memory().total() as u64;
    figures.used_bytes = used;
    figures.on_device = spans(&timed).map(|spans| spans / wall);
    if let Some((watched, steps)) = watched {
        let shares = figures.on_device.zip(watched.inside_steps());
        figures.busy = shares.map(|(on_device, inside)| Shares { on_device, inside }.busy());
        figures.busy_watched = Some(watched.share);
        figures.kernel_ms = Some(watched.kernels * 1e3 / steps as f64);
    }
    figures.no_busy = no_busy;
    Ok(figures)
}

/// The busy share, of two quotients that each have both times of one pass and its steps: device events over the wall, and CUPTI over device events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// With nobody looking on: the share of the time in which a step was on the device.
    pub on_device: f64,
    /// Under CUPTI's eyes: the share of the steps' time on the device in which kernels ran.
    pub inside: f64,
}

impl Shares {
    /// Of all the time, that in which kernels ran. Gaps between steps are those of the time nobody looked on; gaps inside
    /// steps are those of the watched pass, which makes them somewhat wider: it is rather too low than too high.
    pub fn busy(self) -> f64 {
        self.on_device * self.inside
    }
}

/// Steps under CUPTI's eyes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Watched {
    /// Kernel time over the time from the first kernel's beginning to the last one's end.
    share: f64,
    /// The seconds of that in which a kernel ran.
    kernels: f64,
    /// The seconds that the same steps were on the device.
    spans: Option<f64>,
}

impl Watched {
    /// The share of the steps' time in which kernels ran. Another stream's kernels, as those that prepare batches, also run
    /// while no step does: inside of steps there are never more than their own time has room for.
    fn inside_steps(&self) -> Option<f64> {
        self.spans.filter(|spans| *spans > 0.0).map(|spans| self.kernels.min(spans) / spans)
    }
}

/// The seconds that steps were on the device, each from its beginning to its end; none where the device does not tell.
fn spans(timed: &[Timed]) -> Option<f64> {
    timed.iter().map(|step| step.spanned).sum()
}

/// Runs steps with CUPTI looking on.
fn watch(runner: &mut Runner<'_>, steps: u64) -> Result<Watched, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let Some(device) = runner.stage.engine().cuda().map(|cuda| cuda.ordinal() as u32) else {
        return Err("the stage does not run on a GPU".to_owned());
    };
    let times = KernelTimes::start().map_err(|error| words(&error))?;
    let timed = runner.run(steps).map_err(|error| words(&error))?;
    runner.stage.engine().synchronize().map_err(|error| words(&error))?;
    let mut records = times.stop().map_err(|error| words(&error))?.records;
    // A GPU that prepares batches has kernels of its own.
    records.retain(|record| record.device == device && record.activity == Activity::Kernel);
    let from = records.iter().map(|record| record.start_ns).min();
    let to = records.iter().map(|record| record.end_ns).max();
    let Some((from, to)) = from.zip(to) else { return Err(format!("CUPTI saw no kernel on cuda:{device}")) };
    let share = busy(&records, from, to);
    Ok(Watched { share, kernels: share * (to - from) as f64 * 1e-9, spans: spans(&timed) })
}

fn figures(timed: &[Timed], wall: f64) -> Figures {
    let mut by_shape: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
    // The first step's time begins before anything was queued.
    for step in &timed[1..] {
        // By the device's clock where there is one: the host may be late to see a step end while it queues another.
        by_shape.entry(step.shape).or_default().push(step.spanned.unwrap_or(step.seconds));
    }
    let all: Vec<f64> = timed[1..].iter().map(|step| step.seconds).collect();
    let weighed = by_shape.values().filter(|times| times.len() > 1);
    let (sum, count) = weighed.fold((0.0, 0usize), |(sum, count), times| {
        (sum + variation(times) * times.len() as f64, count + times.len())
    });
    let waits: Vec<f64> = timed.iter().map(|step| step.waited.as_secs_f64()).collect();
    let rows: u64 = timed.iter().map(|step| step.rows).sum();
    Figures {
        samples_per_second: rows as f64 / wall,
        steps_per_second: timed.len() as f64 / wall,
        step_ms: median(&all) * 1e3,
        step_p99_ms: percentile(&all, 0.99) * 1e3,
        variation: variation(&all),
        variation_at_equal_shape: if count == 0 { 0.0 } else { sum / count as f64 },
        shapes: by_shape.len(),
        mean_shape: std::array::from_fn(|i| {
            timed.iter().map(|step| step.shape[i] as f64).sum::<f64>() / timed.len() as f64
        }),
        wait_share: waits.iter().sum::<f64>() / wall,
        wait_p99_ms: percentile(&waits, 0.99) * 1e3,
        busy: None,
        on_device: None,
        busy_watched: None,
        kernel_ms: None,
        no_busy: None,
        cores: 0.0,
        planned_bytes: 0,
        used_bytes: None,
        raw: timed
            .iter()
            .map(|Timed { shape: [rows, text, sound], seconds, spanned, waited, .. }| {
                (*rows, *text, *sound, seconds * 1e3, waited.as_secs_f64() * 1e3, spanned.map(|s| s * 1e3))
            })
            .collect(),
    }
}

/// Seconds of processor time this process has used, all threads together.
pub(crate) fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // A tick is a hundredth of a second.
    ProcessStat::parse(&stat).map_or(0.0, |stat| stat.cpu_ticks as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(spanned: Option<f64>) -> Timed {
        Timed { shape: [1, 2, 3], rows: 1, seconds: 0.1, spanned, waited: Duration::ZERO }
    }

    #[test]
    fn a_busy_share_is_never_more_than_all_of_the_time() {
        // Ten steps of 90 ms on the device in a second; watched, three of them took 100 ms each, 80 of it kernels.
        let timed: Vec<Timed> = (0..10).map(|_| step(Some(0.09))).collect();
        let on_device = spans(&timed).unwrap();
        assert!((on_device - 0.9).abs() < 1e-9);
        let watched = Watched { share: 0.75, kernels: 0.24, spans: Some(0.3) };
        let inside = watched.inside_steps().unwrap();
        assert!((Shares { on_device, inside }.busy() - 0.72).abs() < 1e-9);
        // Kernels that are slower while they are watched: 0.33 s of them over the 0.27 s that the steps took with nobody
        // looking on was a share of 122 %, and was dropped.
        let slow = Watched { share: 0.98, kernels: 0.33, spans: Some(0.335) };
        let busy = Shares { on_device, inside: slow.inside_steps().unwrap() }.busy();
        assert!((0.88..0.9).contains(&busy), "{busy}");
        // Batches that are prepared beside the steps: kernels also run while no step does.
        let beside = Watched { share: 0.9, kernels: 0.5, spans: Some(0.3) };
        assert_eq!(beside.inside_steps(), Some(1.0));
    }

    #[test]
    fn a_device_that_tells_no_times_has_no_share() {
        assert_eq!(spans(&[step(Some(0.1)), step(None)]), None);
        assert_eq!(Watched { share: 0.5, kernels: 0.1, spans: None }.inside_steps(), None);
        assert_eq!(Watched { share: 0.0, kernels: 0.0, spans: Some(0.0) }.inside_steps(), None);
    }
}

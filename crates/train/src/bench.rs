//! Measures how fast a stage trains and what it waits for, with the stage's own steps and feed.
//!
//! Steps are queued a few ahead of their reports, as in training. The time of a step runs from the end of the step before it
//! to its own end. Kernel time comes from CUPTI, in a second pass over the last of the same batches. Profiling changes the
//! timing: gaps widen, and kernels of two streams slow each other down more. So a time of one pass is never divided by a
//! time of the other. See [`Shares`].

pub mod chart;
pub mod timed_stage;
pub mod variants;

use crate::error::TrainError;
use crate::stages::Stage;
use crate::statistics::{median, percentile, variation};
use crate::step_queue::{CompletedStep, StepQueue, control};
use myxtts_run::plan::Recipe;
use myxtts_run::procfs::ProcessStat;
use myxtts_run::seed::Seed;
use myxtts_tensor::cuda::cupti::{Activity, KernelTimes, busy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Numbers of steps to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchSettings {
    /// Number of timed steps.
    pub steps: u64,
    /// Minimum number of warm-up steps: every shape has to be captured, and clocks have to settle.
    pub warm: u64,
    /// Number of steps that may be queued before the first is waited for.
    pub ahead: usize,
    /// Number of steps profiled with CUPTI.
    pub profiled: u64,
}

/// Measurements of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Clips (or windows of clips) per second.
    pub samples_per_second: f64,
    /// Optimiser steps per second.
    pub steps_per_second: f64,
    /// Median step time, in milliseconds.
    pub step_ms: f64,
    /// 99th percentile of the step time, in milliseconds.
    pub step_p99_ms: f64,
    /// Standard deviation over mean of the step time, over all shapes.
    pub variation: f64,
    /// The same among steps of equal shape, weighted by their number; on a GPU by the device's clock.
    pub variation_at_equal_shape: f64,
    /// Number of distinct shapes.
    pub shapes: usize,
    /// Mean rows, text positions and audio positions of a step.
    pub mean_shape: [f64; 3],
    /// Share of the time that the loop waited for a batch.
    pub wait_share: f64,
    /// 99th percentile of the waits, in milliseconds.
    pub wait_p99_ms: f64,
    /// Share of the time in which kernels of steps ran, as in [`Shares::busy`]; `None` without a GPU or CUPTI.
    pub busy: Option<f64>,
    /// Share of the time in which a step was on the device, by the device's clock, without profiling.
    pub on_device: Option<f64>,
    /// Kernel time over elapsed time while CUPTI profiled.
    #[serde(rename = "busy_watched")]
    pub busy_profiled: Option<f64>,
    /// Kernel time of a profiled step, in milliseconds.
    pub kernel_ms: Option<f64>,
    /// Why `busy` is `None` on a GPU.
    pub no_busy: Option<String>,
    /// Mean number of CPU cores this process kept busy.
    pub cores: f64,
    /// Device memory as planned, in bytes.
    pub planned_bytes: u64,
    /// Device memory in use as the driver reports it, in bytes.
    pub used_bytes: Option<u64>,
    /// Every timed step.
    pub raw: Vec<RawStep>,
}

/// One timed step; times in milliseconds. Serialised as an array in the order of the fields, which the scripts of
/// `bench/figures` read by index.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "(usize, usize, usize, f64, f64, Option<f64>)")]
pub struct RawStep {
    /// Rows of its batch.
    pub rows: usize,
    /// Text positions of a row.
    pub text: usize,
    /// Audio positions of a row.
    pub audio: usize,
    /// Time since the end of the step before it.
    pub step_ms: f64,
    /// Time that the loop waited for its batch.
    pub wait_ms: f64,
    /// Time on the device, by its own clock; `None` on a CPU.
    pub on_device_ms: Option<f64>,
}

impl RawStep {
    /// The shape of its batch.
    pub fn shape(&self) -> [usize; 3] {
        [self.rows, self.text, self.audio]
    }
}

impl From<RawStep> for (usize, usize, usize, f64, f64, Option<f64>) {
    fn from(step: RawStep) -> Self {
        let RawStep { rows, text, audio, step_ms, wait_ms, on_device_ms } = step;
        (rows, text, audio, step_ms, wait_ms, on_device_ms)
    }
}

struct Timed {
    shape: [usize; 3],
    rows: u64,
    seconds: f64,
    /// Time from the step's start to its end on the device; `None` if the device has no clock.
    spanned: Option<f64>,
    waited: Duration,
}

/// Runs steps of a stage, `ahead` of them queued, and times each.
struct Runner<'a> {
    stage: &'a mut dyn Stage,
    recipe: &'a Recipe,
    seed: Seed,
    next: u64,
    ahead: usize,
}

impl Runner<'_> {
    fn run(&mut self, steps: u64) -> Result<Vec<Timed>, TrainError> {
        let mut in_flight = StepQueue::start(self.stage);
        let mut done = Vec::with_capacity(steps as usize);
        for step in self.next..self.next + steps {
            let queued = self.stage.submit(step, &control(self.recipe, step, self.seed.at(step)))?;
            in_flight.push(queued.ticket, (queued.shape, queued.rows, queued.waited));
            done.extend(in_flight.complete(self.ahead, self.stage)?.into_iter().map(Timed::from));
        }
        done.extend(in_flight.complete(0, self.stage)?.into_iter().map(Timed::from));
        self.next += steps;
        Ok(done)
    }
}

impl From<CompletedStep<([usize; 3], u64, Duration)>> for Timed {
    fn from(timed: CompletedStep<([usize; 3], u64, Duration)>) -> Timed {
        let (shape, rows, waited) = timed.step;
        let spanned = timed.on_device.map(|time| time.as_secs_f64());
        Timed { shape, rows, seconds: timed.period.as_secs_f64(), spanned, waited }
    }
}

/// Runs a stage and times it. The weights of the stage change.
pub fn measure(
    stage: &mut dyn Stage,
    recipe: &Recipe,
    seed: u64,
    amount: BenchSettings,
) -> Result<Figures, TrainError> {
    let on_gpu = stage.engine().cuda().is_some();
    let ahead = if on_gpu { amount.ahead } else { 0 };
    // Starts in the middle of the stage, so that parts that join later (the decoder's discriminators) are included.
    let first = recipe.steps / 2;
    let mut runner = Runner { stage, recipe, seed: Seed::new(seed).derive("bench"), next: first, ahead };
    // The first run of a shape measures it, the second captures it: a shape that first occurs later would be timed with
    // both. Two epochs contain all shapes, wherever they start. On a CPU nothing is captured, and the extra time of a first
    // run is small compared with its step.
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
    let (start, before) = (Instant::now(), cpu_seconds());
    let timed = runner.run(amount.steps.max(2))?;
    let (wall, cores) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
    let (profiled, no_busy) = match on_gpu && amount.profiled > 0 {
        false => (None, None),
        true => {
            let again = amount.profiled.min(timed.len() as u64 - 1);
            runner.next -= again;
            match profile(&mut runner, again) {
                Ok(profiled) => (Some((profiled, again)), None),
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
    if let Some((profiled, steps)) = profiled {
        let shares = figures.on_device.zip(profiled.inside_steps());
        figures.busy = shares.map(|(on_device, inside)| Shares { on_device, inside }.busy());
        figures.busy_profiled = Some(profiled.share);
        figures.kernel_ms = Some(profiled.kernels * 1e3 / steps as f64);
    }
    figures.no_busy = no_busy;
    Ok(figures)
}

/// The busy share as a product of two quotients. Each quotient divides times of one pass only: device events over wall time,
/// and CUPTI kernel time over device events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Without profiling: share of the time in which a step was on the device.
    pub on_device: f64,
    /// With CUPTI profiling: share of the steps' device time in which kernels ran.
    pub inside: f64,
}

impl Shares {
    /// Share of all time in which kernels ran. Gaps between steps are those without profiling; gaps inside steps are those
    /// of the profiled pass, which widens them somewhat, so the result is rather too low than too high.
    pub fn busy(self) -> f64 {
        self.on_device * self.inside
    }
}

/// Steps profiled with CUPTI.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Profiled {
    /// Kernel time over the time from the start of the first kernel to the end of the last.
    share: f64,
    /// Seconds in which a kernel ran.
    kernels: f64,
    /// Seconds that the same steps were on the device.
    spans: Option<f64>,
}

impl Profiled {
    /// Share of the steps' time in which kernels ran. Kernels of another stream, such as those that prepare batches, also
    /// run between steps, so the quotient is capped at 1.
    fn inside_steps(&self) -> Option<f64> {
        self.spans.filter(|spans| *spans > 0.0).map(|spans| self.kernels.min(spans) / spans)
    }
}

/// Seconds that steps were on the device, each from its start to its end; `None` if the device has no clock.
fn spans(timed: &[Timed]) -> Option<f64> {
    timed.iter().map(|step| step.spanned).sum()
}

/// Runs steps with CUPTI profiling.
fn profile(runner: &mut Runner<'_>, steps: u64) -> Result<Profiled, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let Some(device) = runner.stage.engine().cuda().map(|cuda| cuda.ordinal() as u32) else {
        return Err("the stage does not run on a GPU".to_owned());
    };
    let times = KernelTimes::start().map_err(|error| words(&error))?;
    let timed = runner.run(steps).map_err(|error| words(&error))?;
    runner.stage.engine().synchronize().map_err(|error| words(&error))?;
    let mut records = times.stop().map_err(|error| words(&error))?.records;
    // A GPU that prepares batches has kernels of its own, which do not count.
    records.retain(|record| record.device == device && record.activity == Activity::Kernel);
    let from = records.iter().map(|record| record.start_ns).min();
    let to = records.iter().map(|record| record.end_ns).max();
    let Some((from, to)) = from.zip(to) else { return Err(format!("CUPTI saw no kernel on cuda:{device}")) };
    let share = busy(&records, from, to);
    Ok(Profiled { share, kernels: share * (to - from) as f64 * 1e-9, spans: spans(&timed) })
}

fn figures(timed: &[Timed], wall: f64) -> Figures {
    let mut by_shape: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
    // The time of the first step includes an empty queue, so it is left out.
    for step in &timed[1..] {
        // Prefer the device's clock: while the host queues another step, it may notice late that a step has ended.
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
        busy_profiled: None,
        kernel_ms: None,
        no_busy: None,
        cores: 0.0,
        planned_bytes: 0,
        used_bytes: None,
        raw: timed
            .iter()
            .map(|&Timed { shape: [rows, text, audio], seconds, spanned, waited, .. }| RawStep {
                rows,
                text,
                audio,
                step_ms: seconds * 1e3,
                wait_ms: waited.as_secs_f64() * 1e3,
                on_device_ms: spanned.map(|s| s * 1e3),
            })
            .collect(),
    }
}

/// Seconds of CPU time this process has used, over all threads.
pub(crate) fn cpu_seconds() -> f64 {
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
    fn the_busy_share_is_at_most_one() {
        // Ten steps of 90 ms on the device in a second; profiled, three of them took 100 ms each, 80 ms of it kernels.
        let timed: Vec<Timed> = (0..10).map(|_| step(Some(0.09))).collect();
        let on_device = spans(&timed).unwrap();
        assert!((on_device - 0.9).abs() < 1e-9);
        let profiled = Profiled { share: 0.75, kernels: 0.24, spans: Some(0.3) };
        let inside = profiled.inside_steps().unwrap();
        assert!((Shares { on_device, inside }.busy() - 0.72).abs() < 1e-9);
        // Kernels that are slower while they are profiled: 0.33 s of them over the 0.27 s that the steps took without
        // profiling gave a share of 122 %, which was dropped.
        let slow = Profiled { share: 0.98, kernels: 0.33, spans: Some(0.335) };
        let busy = Shares { on_device, inside: slow.inside_steps().unwrap() }.busy();
        assert!((0.88..0.9).contains(&busy), "{busy}");
        // Batches prepared at the same time: kernels also run between steps.
        let overlapping = Profiled { share: 0.9, kernels: 0.5, spans: Some(0.3) };
        assert_eq!(overlapping.inside_steps(), Some(1.0));
    }

    #[test]
    fn a_device_without_a_clock_has_no_share() {
        assert_eq!(spans(&[step(Some(0.1)), step(None)]), None);
        assert_eq!(Profiled { share: 0.5, kernels: 0.1, spans: None }.inside_steps(), None);
        assert_eq!(Profiled { share: 0.0, kernels: 0.0, spans: Some(0.0) }.inside_steps(), None);
    }
}

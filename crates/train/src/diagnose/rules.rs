//! The rules that find what slows training down.
//!
//! Time is lost where no step runs. The rules first decide whether batches were late (`wait`) or steps were longer than
//! necessary. Then they look for evidence that only one cause produces; evidence that several causes share comes last. Each
//! cause is reported with its evidence and with the setting that removes it.

use super::diagnosis::{Cause, Device, Diagnosis, Finding, Oscillation};
use super::facts::Facts;
use super::period::Period;
use super::trace::{GpuSample, Setup, Trace};
use crate::statistics::{Spread, mean, median, variation};
use std::fmt::Write;

/// Share of the step time: longer copies are checked if the loop waits at all.
const SLOW_COPY_SHARE: f64 = 0.15;
/// Share of all time: smaller losses are not reported.
pub(super) const MIN_LOSS_SHARE: f64 = 0.05;
/// Standard deviation over mean above which pauses between steps are single events, not a cost of every step.
const UNEVEN_VARIATION: f64 = 1.0;
/// Standard deviation over mean above which times oscillate.
const STEADY_VARIATION: f64 = 0.30;
/// Ratio to the step alone above which a step is slowed.
const SLOWED_RATIO: f64 = 1.25;
/// Ratio to the other threads above which a thread is slow.
pub(super) const SLOW_WORKER_RATIO: f64 = 2.5;
/// Share of all cores above which a thread cannot get one immediately.
const CORES_FULL_SHARE: f64 = 0.90;
/// Share of all cores that other programs must use to be the cause.
const OTHERS_SHARE: f64 = 0.35;
/// Share of a thread's runnable time spent waiting for a core, above which it is delayed.
const DELAYED_SHARE: f64 = 0.25;
/// Share of the waits for batches that must be explained by waiting for a core.
const EXPLAINED_SHARE: f64 = 0.30;
/// Number of ready batches up to which a buffer hides no delay.
const FEW_SLOTS: usize = 3;
/// Minimum autocorrelation of a period with so few ready batches.
const STRICT_CORRELATION: f64 = 0.75;
/// Share of the samples above which a GPU counts as limited.
const LIMITED_SHARE: f64 = 0.20;

/// Finds what slows a run down.
pub fn diagnose(trace: &Trace) -> Diagnosis {
    let facts = Facts::of(trace);
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(facts.limits());
    findings.extend(facts.shapes());
    let outside = facts.cpu();
    let disturbed = outside.is_some() || !findings.is_empty();
    // Batches are late because the cores are in use, or for a reason of their own.
    if outside.is_none() || !facts.late_by_others() {
        findings.extend(facts.starved());
    }
    findings.extend(outside);
    // External causes also make steps slow and uneven: they are reported once.
    if !disturbed {
        findings.extend(facts.steps());
        findings.extend(facts.pauses());
    }
    findings.sort_by(|a, b| b.gain.unwrap_or(f64::MAX).total_cmp(&a.gain.unwrap_or(f64::MAX)));
    if findings.is_empty() {
        findings.push(facts.healthy());
    }
    Diagnosis {
        findings,
        oscillation: facts.oscillation(),
        busy: facts.busy(),
        waiting: facts.waiting(),
        headroom: facts.compared().map(|compared| compared.headroom()),
        compared: facts.compared(),
        gpu: facts.device(),
        left_out: facts.left_out(),
        recording: facts.compiling() / facts.total.max(1e-12),
    }
}

impl Facts<'_> {
    /// The GPU, over all samples.
    fn device(&self) -> Option<Device> {
        let gpu = &self.trace.gpu;
        let all = |of: fn(&GpuSample) -> Option<f64>| gpu.iter().filter_map(of).collect::<Vec<f64>>();
        let mean_of = |of| Some(all(of)).filter(|all| !all.is_empty()).map(|all| mean(&all));
        let share = |held: fn(&GpuSample) -> bool| {
            gpu.iter().filter(|sample| held(sample)).count() as f64 / gpu.len().max(1) as f64
        };
        let busy = all(|sample| sample.busy);
        let (busy_low, busy_high) = edges(busy.clone());
        (!gpu.is_empty()).then(|| Device {
            samples: gpu.len(),
            busy: mean(&busy),
            busy_low,
            busy_high,
            temperature: all(|sample| sample.temperature).into_iter().reduce(f64::max),
            power: mean_of(|sample| sample.power),
            clock: mean_of(|sample| sample.clock),
            clock_most: mean_of(|sample| sample.clock_most),
            held_by_heat: share(|sample| sample.thermal_limit),
            held_by_power: share(|sample| sample.power_limit),
        })
    }

    /// The GPU's own limits.
    fn limits(&self) -> Option<Finding> {
        let device = self.device()?;
        let (heat, power) = (device.held_by_heat, device.held_by_power);
        let (hottest, watts) = (device.temperature.unwrap_or(0.0), device.power.unwrap_or(0.0));
        if heat > LIMITED_SHARE {
            return Some(Finding {
                cause: Cause::Heat,
                evidence: format!("its clock was reduced by heat {} of the time, at up to {hottest:.0} °C", percent(heat)),
                recommendation: "improve the cooling: clean the fans, space the cards, raise the fan curve; no training setting can compensate".into(),
                gain: None,
            });
        }
        // A busy GPU reaches its power limit now and then; that is a finding only if steps are affected.
        let slowed = self.slowed().is_some_and(|ratio| ratio > SLOWED_RATIO)
            || self.step_variation() > STEADY_VARIATION;
        (power > LIMITED_SHARE && slowed).then(|| Finding {
            cause: Cause::Power,
            evidence: format!(
                "its clock was reduced by the power limit {} of the time, at {watts:.0} W",
                percent(power)
            ),
            recommendation:
                "raise the power limit (nvidia-smi -pl) if the power supply and the cooling allow it".into(),
            gain: None,
        })
    }

    /// Steps whose shape had to be captured first, and keep being new.
    fn shapes(&self) -> Option<Finding> {
        let batches = &self.trace.batches;
        let later = &batches[batches.len() / 2..];
        let still = later.iter().filter(|batch| batch.compiled).count();
        let extra = self.compiling();
        let new = batches.iter().filter(|batch| batch.compiled).count();
        // Every run captures its few shapes once, at its beginning. A small corpus has all its shapes in the first epoch:
        // there the finding is too many shapes that took most of the time.
        let go_on = still >= 2 && still as f64 >= 0.1 * later.len() as f64;
        let too_many = new >= 8 && new as f64 >= 0.2 * batches.len() as f64 && extra >= 0.5 * self.total;
        if !(go_on || too_many) || extra < MIN_LOSS_SHARE * self.total {
            return None;
        }
        let shapes = self.shapes_met();
        Some(Finding {
            cause: Cause::ShapeChurn,
            evidence: format!(
                "{new} of {} batches had a shape that was not captured yet, {still} of them in the second half; their extra time is {} of all time ({shapes} shapes)",
                batches.len(),
                percent(extra / self.total)
            ),
            recommendation: format!(
                "fewer shapes: data.buckets={} (and data.batch_size instead of data.frame_budget), so that each is captured once",
                (shapes / 4).clamp(2, 8)
            ),
            gain: self.gain(extra),
        })
    }

    /// Other programs use the cores.
    fn cpu(&self) -> Option<Finding> {
        let cpu = self.trace.cpu?;
        let others = cpu.all - cpu.own;
        let slowed = self.slowed().unwrap_or(1.0);
        let waits = if self.late_by_others() { self.starving } else { 0.0 };
        let steps = match cpu.delayed {
            // On a CPU, steps take longer by the time they wait for a core.
            Some(delayed) if delayed.stepping > DELAYED_SHARE && !self.trace.setup.on_gpu => {
                delayed.stepping * (self.total - self.idle)
            }
            // A GPU is idle while its next step is not queued.
            Some(delayed) if delayed.stepping > DELAYED_SHARE => (self.idle - self.starving).max(0.0),
            Some(_) => 0.0,
            None if slowed > SLOWED_RATIO => (1.0 - 1.0 / slowed) * self.total,
            None => 0.0,
        };
        if cpu.all < CORES_FULL_SHARE || others < OTHERS_SHARE || waits + steps < MIN_LOSS_SHARE * self.total
        {
            return None;
        }
        let gain = self.gain(waits + steps);
        let line = cpu.delayed.map(|delayed| {
            format!(
                "; its threads waited for a core {} of the time, which delayed each batch by {}",
                percent(delayed.stepping),
                ms(delayed.feeding / self.trace.batches.len().max(1) as f64)
            )
        });
        Some(Finding {
            cause: Cause::CpuContention,
            evidence: format!(
                "all {} cores together were {} busy, this program used {} and others {}{}",
                self.trace.setup.cores,
                percent(cpu.all),
                percent(cpu.own),
                percent(others),
                line.unwrap_or_default()
            ),
            recommendation: match ((self.trace.setup.cores as f64 * (1.0 - others)) as usize).max(2) - 1 {
                fewer if fewer < self.trace.setup.workers => format!(
                    "end or move the other programs; until then data.num_workers={fewer} leaves a core for the thread that launches steps"
                ),
                _ => "end or move the other programs that use the CPU".to_owned(),
            },
            gain,
        })
    }

    /// Whether batches are late because the threads that make them wait for a core, as far as the system reports it.
    fn late_by_others(&self) -> bool {
        let delayed = self.trace.cpu.and_then(|cpu| cpu.delayed);
        self.waiting() > MIN_LOSS_SHARE
            && delayed.is_none_or(|delayed| delayed.feeding > EXPLAINED_SHARE * self.starving)
    }

    /// The loop waits for batches: finds one cause.
    fn starved(&self) -> Option<Finding> {
        let waiting = self.waiting();
        if waiting < MIN_LOSS_SHARE {
            return None;
        }
        let setup = &self.trace.setup;
        let gain = self.gain(self.starving);
        let finding = |cause, evidence: String, recommendation: String| {
            let evidence = format!("waits add {} to the steps; {evidence}", percent(waiting));
            Some(Finding { cause, evidence, recommendation, gain })
        };
        if let Some((worker, ratio)) = self.slow_worker() {
            return finding(
                Cause::SlowWorker,
                format!(
                    "thread batch-{worker} takes {ratio:.1} times as long for a batch as the others, and batches are used in order"
                ),
                format!(
                    "check what slows that thread (a shared core, one slow folder); until then data.prefetch_buffer_size={} hides the delay",
                    2 * setup.slots
                ),
            );
        }
        let step = self.step;
        let (blocked, upload) = (self.mean(|b| b.blocked), self.mean(|b| b.upload));
        // With one or two slots the feed is blocked in any case; whether there are too few slots is checked below.
        if blocked > SLOW_COPY_SHARE * step && setup.slots > FEW_SLOTS {
            return finding(
                Cause::UploadLock,
                format!("the feed was blocked for {} before each copy, {} of a step", ms(blocked), percent(blocked / step)),
                "copy in parallel to the step: data.prefetch_to_gpu=true and data.enhanced_gpu_prefetch=true (a separate stream)".into(),
            );
        }
        if upload > SLOW_COPY_SHARE * step {
            let rate = setup.batch_bytes as f64 / upload / 1e9;
            let evidence = format!(
                "copying a batch of {:.1} MB takes {}, {} of a step ({rate:.1} GB/s)",
                setup.batch_bytes as f64 / 1e6,
                ms(upload),
                percent(upload / step)
            );
            return match setup.pinned {
                false => finding(
                    Cause::PageableUploads,
                    format!("{evidence}, from memory that is not page-locked"),
                    "data.enhanced_gpu_prefetch=true: page-locked memory and a separate stream".into(),
                ),
                true => finding(
                    Cause::Transfer,
                    evidence,
                    "check that the GPU has all its PCIe lanes (`myxtts monitor`); keep the data on the device, or compute features there (data.data_gpu)".into(),
                ),
            };
        }
        // Slow threads deliver as many batches at a time as there are threads: that is periodic, but not a stall.
        let workers = setup.workers.max(1) as f64;
        let usually = (self.median(|b| b.load()) / workers).max(self.median(|b| b.feed()));
        // With few batches ready, every late one causes a wait, and a few of these may look periodic.
        let least = if setup.slots <= FEW_SLOTS { STRICT_CORRELATION } else { 0.0 };
        if usually < 0.95 * step
            && let Some(period) =
                self.stalls(|batch| batch.period - batch.step).or_else(|| self.feed_stalls())
            && period.strength >= least
        {
            return finding(
                Cause::PeriodicStall,
                format!(
                    "every {} batches one is late (autocorrelation {:.2})",
                    period.every, period.strength
                ),
                format!(
                    "find out what happens every {} batches: the end of a file, a log flush, a scheduled job; data.prefetch_buffer_size={} hides the delay",
                    period.every,
                    (2 * setup.slots).max(2 * period.every)
                ),
            );
        }
        let (load, feed) = (self.mean(|b| b.load()), self.mean(|b| b.feed()));
        let supply = load / workers;
        // The cost of slow supply is known: if it is less than half of the waits, batches arrive unevenly instead.
        if supply.max(feed) - step < 0.5 * waiting * step {
            let loads: Vec<f64> = self.steady.iter().map(|batch| batch.load()).collect();
            let spread = Spread::of(&loads);
            let wanted = ((spread.p99 / step).ceil() as usize + 2).max(2 * setup.slots).max(12);
            return finding(
                Cause::TinyBuffer,
                format!(
                    "a batch is made every {} and used every {}, but single ones take up to {} (p99) and at most {} are ready",
                    ms(supply.max(feed)),
                    ms(step),
                    ms(spread.p99),
                    setup.slots
                ),
                format!("data.prefetch_buffer_size={wanted}"),
            );
        }
        self.supply(load, feed).and_then(|(cause, evidence, fix)| finding(cause, evidence, fix))
    }

    /// Batches are made too slowly: finds where their time goes.
    fn supply(&self, load: f64, feed: f64) -> Option<(Cause, String, String)> {
        let setup = &self.trace.setup;
        let parts = [
            (Cause::Disk, "reading", self.mean(|b| b.read)),
            (Cause::Decode, "decoding and features", self.mean(|b| b.decode)),
            (Cause::Collate, "collation", self.mean(|b| b.collate)),
        ];
        if feed > load / setup.workers.max(1) as f64 {
            let evidence =
                format!("the feed's one thread needs {} for a batch, the step {}", ms(feed), ms(self.step));
            let words = "smaller batches (data.batch_size) or shorter clips (data.max_seconds): their inputs are converted faster";
            return Some((Cause::Inputs, evidence, words.into()));
        }
        let (cause, what, time) = parts.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        let evidence = format!(
            "{} {} for a batch, {} of it for {what}, so one is ready every {}; the step takes {}",
            if setup.workers == 1 {
                "1 thread needs".to_owned()
            } else {
                format!("{} threads need", setup.workers)
            },
            ms(load),
            percent(time / load),
            ms(load / setup.workers.max(1) as f64),
            ms(self.step)
        );
        let wanted = (load / self.step).ceil() as usize + 1;
        let threads = match wanted {
            wanted if wanted < setup.cores => format!("data.num_workers={wanted}"),
            wanted if cause == Cause::Disk => {
                format!("data.num_workers={wanted} (threads that wait for a disk need no core)")
            }
            _ => format!("no more threads than the {} cores", setup.cores),
        };
        let recommendation = match cause {
            Cause::Disk => format!("data.cache_dir on a faster disk; or {threads}"),
            Cause::Decode => format!(
                "data.preprocessing_mode=precompute: `myxtts prepare` does it once; or {threads}, and data.memory_cache_mb for clips that are used again"
            ),
            _ => threads,
        };
        Some((cause, evidence, recommendation))
    }

    /// Steps that take longer than necessary.
    fn steps(&self) -> Option<Finding> {
        let variation = self.step_variation();
        if let Some(period) = self.stalls(|batch| batch.step) {
            let extra: f64 = self.steady.iter().map(|batch| (batch.step - self.usual(batch)).max(0.0)).sum();
            return Some(Finding {
                cause: Cause::PeriodicStall,
                evidence: format!(
                    "every {} steps one takes longer (autocorrelation {:.2}), {} of all time",
                    period.every,
                    period.strength,
                    percent(extra / self.total)
                ),
                recommendation: format!(
                    "find out what happens every {} steps; in training itself these are training.validate_every, checkpoint_every and sample_every",
                    period.every
                ),
                gain: self.gain(extra),
            });
        }
        if let Some(ratio) = self.slowed()
            && ratio > SLOWED_RATIO
        {
            if let Some(finding) = self.loader_uses_cores(ratio) {
                return Some(finding);
            }
            return Some(Finding {
                cause: Cause::SlowStep,
                evidence: format!(
                    "a step takes {}, {ratio:.2} times as long as alone, with its batch on the device and no loading",
                    ms(self.step)
                ),
                recommendation: match self.trace.setup {
                    Setup { on_gpu: false, workers: 2.., .. } => "check which other programs use the CPU (`myxtts monitor`); fewer data.num_workers leave the steps more cores".into(),
                    _ => "check which other programs use the device (`myxtts monitor`)".into(),
                },
                gain: Some(ratio - 1.0),
            });
        }
        (variation > STEADY_VARIATION).then(|| {
            let extra: f64 = self.steady.iter().map(|batch| (batch.step - self.usual(batch)).max(0.0)).sum();
            Finding {
                cause: Cause::NoisyStep,
                evidence: format!(
                    "steps of one shape vary by {} (standard deviation over mean), without a period",
                    percent(variation)
                ),
                recommendation: "check which other programs use the device and whether its clock is steady (`myxtts monitor`); try fixed clocks (nvidia-smi -lgc)".into(),
                gain: self.gain(extra),
            }
        })
    }

    /// On a CPU, steps share the cores with the loader's threads: batches are ready in time, but steps take longer, by
    /// `ratio`. The evidence is that these threads compute on as many cores as the steps lack.
    fn loader_uses_cores(&self, ratio: f64) -> Option<Finding> {
        let setup = &self.trace.setup;
        // Reading is left out: a thread that waits for a disk needs no core.
        let [decode, collate] = [self.mean(|b| b.decode), self.mean(|b| b.collate)];
        let used = (decode + collate) / self.mean(|b| b.period).max(1e-12);
        let lacking = setup.cores as f64 * (1.0 - 1.0 / ratio);
        if setup.on_gpu || used < 0.5 * lacking {
            return None;
        }
        let (cause, what, recommendation) = match decode >= collate {
            true => (
                Cause::Decode,
                "decoding and features",
                "data.preprocessing_mode=precompute: `myxtts prepare` does it once; data.memory_cache_mb for clips that are used again",
            ),
            false => (Cause::Collate, "collation", "fewer data.num_workers leave the steps more cores"),
        };
        Some(Finding {
            cause,
            evidence: format!(
                "a step takes {}, {ratio:.2} times as long as alone: the loader's threads compute {} for every batch, mostly {what}, on the {} cores that steps run on",
                ms(self.step),
                ms(decode + collate),
                setup.cores
            ),
            recommendation: recommendation.into(),
            gain: Some(ratio - 1.0),
        })
    }

    /// The device is idle between steps although batches are ready.
    fn pauses(&self) -> Option<Finding> {
        let pauses = (self.idle - self.starving).max(0.0);
        // Relative to the steady batches only: captures of new shapes, however long, must not hide pauses.
        let share = pauses / self.steady.iter().map(|batch| batch.period).sum::<f64>().max(1e-12);
        if share <= MIN_LOSS_SHARE {
            return None;
        }
        let each: Vec<f64> = self.steady.iter().map(|batch| (batch.period - batch.step).max(0.0)).collect();
        let idle = format!(
            "between steps the device is idle for {} of the time, though batches are ready",
            percent(share)
        );
        let others = "check which other programs use the CPU and the device (`myxtts monitor`)";
        let (cause, evidence, recommendation) = if let Some(period) =
            self.stalls(|batch| batch.period - batch.step)
        {
            let Period { every, strength } = period;
            let evidence =
                format!("{idle}: every {every} steps there is a pause (autocorrelation {strength:.2})");
            (Cause::PeriodicStall, evidence, format!("find out what happens every {every} steps; {others}"))
        } else if variation(&each) > UNEVEN_VARIATION {
            let longest = each.iter().copied().fold(0.0, f64::max);
            let evidence = format!(
                "{idle}: in single pauses of up to {}, without a period (a step takes {})",
                ms(longest),
                ms(self.step)
            );
            (Cause::NoisyStep, evidence, others.to_owned())
        } else {
            let evidence = format!("{idle}: the program cannot queue steps as fast as they run");
            let graphs = "training.enable_graph_mode=true and training.enable_eager_debug=false; a larger data.batch_size means fewer launches";
            (Cause::SlowStep, evidence, graphs.to_owned())
        };
        Some(Finding { cause, evidence, recommendation, gain: self.gain(pauses) })
    }

    /// Neither waits nor pauses nor anything else costs a noticeable share of the time.
    fn healthy(&self) -> Finding {
        let mut evidence = format!(
            "a step ran {} of the time, waits add {} to the steps, and steps of one shape vary by {}",
            percent(self.busy()),
            percent(self.waiting()),
            percent(self.step_variation())
        );
        if let Some(ratio) = self.slowed().filter(|ratio| *ratio > 1.0) {
            let _ = write!(evidence, "; they take {ratio:.2} times as long as alone");
        }
        if self.left_out() > 0 {
            let _ = write!(
                evidence,
                "; {} batches are left out of that, during which new shapes were captured",
                self.left_out()
            );
        }
        Finding {
            cause: Cause::Healthy,
            evidence,
            recommendation: "no setting helps: only a faster step does (a smaller model.preset, another GPU, training.multi_gpu)".into(),
            gain: None,
        }
    }

    fn oscillation(&self) -> Option<Oscillation> {
        let periods: Vec<f64> = self.steady.iter().map(|batch| batch.period).collect();
        let spread = Spread::of(&periods);
        let busy = self.steady.iter().map(|batch| (batch.step / batch.period.max(1e-9)).min(1.0));
        let (busy_low, busy_high) = edges(busy.collect());
        (spread.variation > STEADY_VARIATION).then(|| Oscillation {
            variation: spread.variation,
            period: super::period::period(&self.undisturbed(|batch| batch.period)),
            busy_low,
            busy_high,
        })
    }
}

/// Median of the worst 5 %, and of the best.
fn edges(mut shares: Vec<f64>) -> (f64, f64) {
    shares.sort_by(f64::total_cmp);
    let edge = (shares.len() / 20).max(1).min(shares.len());
    (median(&shares[..edge]), median(&shares[shares.len() - edge..]))
}

/// `12.3 %`
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `12.3 ms`
pub(super) fn ms(seconds: f64) -> String {
    format!("{:.*} ms", if seconds < 0.1 { 2 } else { 0 }, seconds * 1e3)
}

//! What a trace says: who holds training up, by rules that can be read and argued with.
//!
//! Time is lost where no step runs. First it is said whose it is: batches that were not there (`wait`), or steps that were
//! longer than they are. Then the sign that only one cause leaves is looked for; what many leave comes last. Each cause is
//! named with the numbers it was found by, and with the setting that removes it.

use super::diagnosis::{Cause, Device, Diagnosis, Finding, Oscillation};
use super::facts::Facts;
use super::trace::{GpuSample, Trace};
use crate::statistics::{Spread, mean, median};

/// Of the step: a loop that waits longer for batches is starved.
const LOAD: f64 = 0.20;
/// Of the step: copies that take longer are worth a look where anything is waited for.
const TRANSFER: f64 = 0.15;
/// Of all time: what is less is not worth a word.
pub(super) const WORTH: f64 = 0.05;
/// Standard deviation over mean: what varies more oscillates.
const STEADY: f64 = 0.30;
/// A step that takes so much longer than alone is disturbed.
const SLOWED: f64 = 1.25;
/// A thread so much slower than the others is not one of them.
pub(super) const SLOW_WORKER: f64 = 2.5;
/// Of all cores: nobody gets one at once any more.
const FULL: f64 = 0.90;
/// Of all cores: what other programs have to take before they are the cause.
const OTHERS: f64 = 0.35;
/// Of the time a thread ran or would have: one that stands in line longer is held up.
const IN_LINE: f64 = 0.25;
/// Of what was waited for batches: where standing in line explains so much, it is why.
const EXPLAINS: f64 = 0.30;
/// Batches ready: with no more than these a buffer hides nothing.
const FEW: usize = 3;
/// How alike a rhythm has to be to itself where there are so few.
const STRICT: f64 = 0.75;
/// Of the samples: a GPU that is held back longer is limited.
const HELD_BACK: f64 = 0.20;

/// Names what holds a run up.
pub fn diagnose(trace: &Trace) -> Diagnosis {
    let facts = Facts::of(trace);
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(facts.limits());
    findings.extend(facts.shapes());
    let outside = facts.processor();
    let disturbed = outside.is_some() || !findings.is_empty();
    // Batches are late because the cores are taken, or for a reason of their own.
    if outside.is_none() || !facts.late_by_others() {
        findings.extend(facts.starved());
    }
    findings.extend(outside);
    // What comes from outside makes steps slow and uneven too: it is named once.
    if !disturbed {
        findings.extend(facts.steps());
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
        if heat > HELD_BACK {
            return Some(Finding {
                cause: Cause::Heat,
                evidence: format!("its clock was held back by heat {} of the time, at up to {hottest:.0} °C", percent(heat)),
                recommendation: "give it air: clean the fans, space the cards, raise the fan curve; no setting of training makes up for it".into(),
                gain: None,
            });
        }
        // A GPU that works hard is at its power limit now and then; only where steps suffer it is a finding.
        let slowed = self.slowed().is_some_and(|ratio| ratio > SLOWED) || self.step_variation() > STEADY;
        (power > HELD_BACK && slowed).then(|| Finding {
            cause: Cause::Power,
            evidence: format!(
                "its clock was held back by the power limit {} of the time, at {watts:.0} W",
                percent(power)
            ),
            recommendation: "raise the power limit (nvidia-smi -pl) if the supply and the cooling allow it"
                .into(),
            gain: None,
        })
    }

    /// Steps that had to be recorded first, and go on being new.
    fn shapes(&self) -> Option<Finding> {
        let batches = &self.trace.batches;
        let later = &batches[batches.len() / 2..];
        let still = later.iter().filter(|batch| batch.compiled).count();
        let extra = self.compiling();
        let new = batches.iter().filter(|batch| batch.compiled).count();
        // Every run records its few shapes once, at its beginning. Those of a small corpus are all met in an epoch: there it
        // is too many of them that took most of the time.
        let go_on = still >= 2 && still as f64 >= 0.1 * later.len() as f64;
        let too_many = new >= 8 && new as f64 >= 0.2 * batches.len() as f64 && extra >= 0.5 * self.total;
        if !(go_on || too_many) || extra < WORTH * self.total {
            return None;
        }
        let shapes = self.shapes_met();
        Some(Finding {
            cause: Cause::ShapeChurn,
            evidence: format!(
                "{new} of {} batches had a shape that was not recorded yet, {still} of them in the second half; they took {} of all time more than others ({shapes} shapes met)",
                batches.len(),
                percent(extra / self.total)
            ),
            recommendation: format!(
                "fewer shapes: data.buckets={} (and data.batch_size instead of data.frame_budget), so that each is recorded once",
                (shapes / 4).clamp(2, 8)
            ),
            gain: self.gain(extra),
        })
    }

    /// Others have the cores.
    fn processor(&self) -> Option<Finding> {
        let processor = self.trace.processor?;
        let others = processor.all - processor.own;
        let slowed = self.slowed().unwrap_or(1.0);
        let waits = if self.late_by_others() { self.starving } else { 0.0 };
        let steps = match processor.delayed {
            // What is on the processor takes longer by as much as it stands in line.
            Some(delayed) if delayed.stepping > IN_LINE && !self.trace.setup.on_gpu => {
                delayed.stepping * (self.total - self.idle)
            }
            // A GPU stands still when nobody queues its next step.
            Some(delayed) if delayed.stepping > IN_LINE => (self.idle - self.starving).max(0.0),
            Some(_) => 0.0,
            None if slowed > SLOWED => (1.0 - 1.0 / slowed) * self.total,
            None => 0.0,
        };
        if processor.all < FULL || others < OTHERS || waits + steps < WORTH * self.total {
            return None;
        }
        let gain = self.gain(waits + steps);
        let line = processor.delayed.map(|delayed| {
            format!(
                "; its threads stood in line for a core {} of the time, and batches came {} later by it",
                percent(delayed.stepping),
                ms(delayed.feeding / self.trace.batches.len().max(1) as f64)
            )
        });
        Some(Finding {
            cause: Cause::Processor,
            evidence: format!(
                "all {} cores together were {} busy, of which this program had {} and others {}{}",
                self.trace.setup.cores,
                percent(processor.all),
                percent(processor.own),
                percent(others),
                line.unwrap_or_default()
            ),
            recommendation: format!(
                "end or move the other programs; until then data.num_workers={} leaves the launching thread a core",
                ((self.trace.setup.cores as f64 * (1.0 - others)) as usize).max(2) - 1
            ),
            gain,
        })
    }

    /// Whether batches are late because those who make them stand in line for a core, as far as the system tells.
    fn late_by_others(&self) -> bool {
        let delayed = self.trace.processor.and_then(|processor| processor.delayed);
        self.waiting() > WORTH && delayed.is_none_or(|delayed| delayed.feeding > EXPLAINS * self.starving)
    }

    /// The loop waits for batches: one cause of it.
    fn starved(&self) -> Option<Finding> {
        let waiting = self.waiting();
        if waiting < WORTH {
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
                    "thread batch-{worker} takes {ratio:.1} times as long for a batch as the others, and batches come in order"
                ),
                format!(
                    "see what that thread meets (a core that is shared, one slow folder); data.prefetch_buffer_size={} rides it out meanwhile",
                    2 * setup.slots
                ),
            );
        }
        let step = self.step;
        let (blocked, upload) = (self.mean(|b| b.blocked), self.mean(|b| b.upload));
        // With a slot or two the feed stands still whoever is to blame: whether there are too few is asked below.
        if blocked > TRANSFER * step && setup.slots > FEW {
            return finding(
                Cause::UploadLock,
                format!("the feed stood still for {} before each copy, {} of a step", ms(blocked), percent(blocked / step)),
                "upload beside the step: data.prefetch_to_gpu=true and data.enhanced_gpu_prefetch=true (a stream of its own)".into(),
            );
        }
        if upload > TRANSFER * step {
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
                    "data.enhanced_gpu_prefetch=true: page-locked memory and a stream of its own".into(),
                ),
                true => finding(
                    Cause::Transfer,
                    evidence,
                    "see that the GPU has all its PCIe lanes (`myxtts monitor`); keep the set on the device, or compute features there (data.data_gpu)".into(),
                ),
            };
        }
        // Threads that are too slow bring batches as many at a time as they are: that is a rhythm, but not a stall.
        let workers = setup.workers.max(1) as f64;
        let usually = (self.median(|b| b.load()) / workers).max(self.median(|b| b.feed()));
        // With hardly a batch ready every late one shows, and a few of them may look like a rhythm.
        let least = if setup.slots <= FEW { STRICT } else { 0.0 };
        if usually < 0.95 * step
            && let Some(period) = self.stalls(|batch| batch.period - batch.step)
            && period.strength >= least
        {
            return finding(
                Cause::PeriodicStall,
                format!("every {} batches one comes late (likeness {:.2})", period.every, period.strength),
                format!(
                    "look for what happens every {} batches: a file that ends, a log that is flushed, a nightly job; data.prefetch_buffer_size={} rides it out",
                    period.every,
                    (2 * setup.slots).max(2 * period.every)
                ),
            );
        }
        let (load, feed) = (self.mean(|b| b.load()), self.mean(|b| b.feed()));
        let supply = load / workers;
        // What batches that are made too slowly would cost is known: where it is not half of what was waited, they come
        // unevenly instead.
        if supply.max(feed) - step < 0.5 * waiting * step {
            let loads: Vec<f64> = self.steady.iter().map(|batch| batch.load()).collect();
            let spread = Spread::of(&loads);
            let wanted = ((spread.p99 / step).ceil() as usize + 2).max(2 * setup.slots).max(12);
            return finding(
                Cause::TinyBuffer,
                format!(
                    "a batch is made every {} and used every {}, but single ones take up to {} (p99) and only {} lie ready",
                    ms(supply.max(feed)),
                    ms(step),
                    ms(spread.p99),
                    setup.slots
                ),
                format!("data.prefetch_buffer_size={wanted}"),
            );
        }
        (waiting >= LOAD).then(|| self.supply(load, feed)).flatten().and_then(|(c, e, r)| finding(c, e, r))
    }

    /// Batches are made too slowly: where their time goes.
    fn supply(&self, load: f64, feed: f64) -> Option<(Cause, String, String)> {
        let setup = &self.trace.setup;
        let parts = [
            (Cause::Disk, "reading", self.mean(|b| b.read)),
            (Cause::Decode, "decoding and features", self.mean(|b| b.decode + b.features)),
            (Cause::Collate, "collation", self.mean(|b| b.collate)),
        ];
        if feed > load / setup.workers.max(1) as f64 {
            let evidence =
                format!("the feed's one thread needs {} for a batch, the step {}", ms(feed), ms(self.step));
            let words = "smaller batches (data.batch_size) or shorter clips (data.max_seconds): their inputs take less to make";
            return Some((Cause::Inputs, evidence, words.into()));
        }
        let (cause, what, time) = parts.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        let evidence = format!(
            "{} threads need {} for a batch, {} of it for {what}, so one comes every {}; the step takes {}",
            setup.workers,
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
                "data.preprocessing_mode=precompute: `myxtts prepare` does it once; or {threads}, and data.memory_cache_mb for clips that come again"
            ),
            _ => threads,
        };
        Some((cause, evidence, recommendation))
    }

    /// Steps that are not what they could be.
    fn steps(&self) -> Option<Finding> {
        let variation = self.step_variation();
        if let Some(period) = self.stalls(|batch| batch.step) {
            let extra: f64 = self.steady.iter().map(|batch| (batch.step - self.usual(batch)).max(0.0)).sum();
            return Some(Finding {
                cause: Cause::PeriodicStall,
                evidence: format!(
                    "every {} steps one takes longer (likeness {:.2}), {} of all time",
                    period.every,
                    period.strength,
                    percent(extra / self.total)
                ),
                recommendation: format!(
                    "look for what happens every {} steps; of training itself, training.validate_every, checkpoint_every and sample_every do",
                    period.every
                ),
                gain: self.gain(extra),
            });
        }
        if let Some(ratio) = self.slowed()
            && ratio > SLOWED
        {
            return Some(Finding {
                cause: Cause::SlowStep,
                evidence: format!(
                    "a step takes {}, {ratio:.2} times what it takes alone, with its batch on the device and nothing loading",
                    ms(self.step)
                ),
                recommendation: "see who else uses the device (`myxtts monitor`); on a processor fewer data.num_workers leave it more cores".into(),
                gain: Some(ratio - 1.0),
            });
        }
        let gaps = (self.idle - self.starving).max(0.0);
        if gaps > LOAD * self.total {
            return Some(Finding {
                cause: Cause::SlowStep,
                evidence: format!(
                    "between steps the device stands still for {} of the time, though batches lie ready: the program cannot queue steps as fast as they run",
                    percent(gaps / self.total)
                ),
                recommendation: "training.enable_graph_mode=true and training.enable_eager_debug=false; a larger data.batch_size makes each launch worth more".into(),
                gain: self.gain(gaps),
            });
        }
        (variation > STEADY).then(|| {
            let extra: f64 = self.steady.iter().map(|batch| (batch.step - self.usual(batch)).max(0.0)).sum();
            Finding {
                cause: Cause::NoisyStep,
                evidence: format!(
                    "steps of one shape vary by {} (standard deviation over mean), with no rhythm",
                    percent(variation)
                ),
                recommendation: "see who else uses the device and whether its clock is steady (`myxtts monitor`); fixed clocks (nvidia-smi -lgc) show whether it is that".into(),
                gain: self.gain(extra),
            }
        })
    }

    fn healthy(&self) -> Finding {
        Finding {
            cause: Cause::Healthy,
            evidence: format!(
                "a step ran {} of the time, waits add {} to the steps, and steps of one shape vary by {}",
                percent(self.busy()),
                percent(self.waiting()),
                percent(self.step_variation())
            ),
            recommendation: "nothing to set: to go faster, the step itself has to (a smaller model.preset, another GPU, training.multi_gpu)".into(),
            gain: None,
        }
    }

    fn oscillation(&self) -> Option<Oscillation> {
        let periods: Vec<f64> = self.steady.iter().map(|batch| batch.period).collect();
        let spread = Spread::of(&periods);
        let busy = self.steady.iter().map(|batch| (batch.step / batch.period.max(1e-9)).min(1.0));
        let (busy_low, busy_high) = edges(busy.collect());
        (spread.variation > STEADY).then(|| Oscillation {
            variation: spread.variation,
            period: super::period::period(&self.undisturbed(|batch| batch.period)),
            busy_low,
            busy_high,
        })
    }
}

/// The middle of the worst twentieth, and of the best.
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

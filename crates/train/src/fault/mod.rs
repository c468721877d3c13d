//! A fault that is injected into the real pipeline, to test that `diagnose` finds it. The parts that act on a feed's
//! settings and on a stage are in [`diagnose::inject`](crate::diagnose::inject).
//!
//! ```text
//! Fault::source (records) ──> Fault::feeding (threads, slots, copies) ──> Fault::lengths (shapes) ──> Fault::on_submit (step)
//! ```
//!
//! A fault only has real effects: it sleeps, computes, copies, or starts other programs. Its cost is measured like that of
//! any run, and no rule can see whether a fault was injected.
//!
//! A fault does nothing until [`Fault::arm`] is called with a trace of healthy steps: every amount is a multiple of their
//! time, so that a fault is as severe at 3 ms per step as at 300.

mod decoding;
mod feed_fault;
mod hang;
mod hog;
mod records;

pub(crate) use feed_fault::FeedFault;
pub(crate) use hang::hang_if_requested;
pub use hog::Hog;
use myxtts_data::record::RecordSource;
use myxtts_tensor::Engine;
use records::Records;
use serde::Serialize;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The faults that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Every record is delayed.
    SlowDisk,
    /// Every record takes long to compute.
    SlowDecode,
    /// One thread of four is slow.
    SlowWorker,
    /// Two slots, and batches that arrive unevenly.
    TinyBuffer,
    /// No copy while a step runs, and no step during a copy.
    UploadLock,
    /// Copies from pageable memory.
    PageableUpload,
    /// A new shape for nearly every batch.
    ShapeChurn,
    /// Every sixth batch is late.
    PeriodicStall,
    /// Other programs use all cores.
    CpuHog,
    /// Every step is computed twice.
    SlowStep,
    /// Some steps are computed several times.
    NoisyStep,
    /// No fault.
    Healthy,
}

impl FaultKind {
    /// All faults.
    pub const ALL: [FaultKind; 12] = [
        FaultKind::SlowDisk,
        FaultKind::SlowDecode,
        FaultKind::SlowWorker,
        FaultKind::TinyBuffer,
        FaultKind::UploadLock,
        FaultKind::PageableUpload,
        FaultKind::ShapeChurn,
        FaultKind::PeriodicStall,
        FaultKind::CpuHog,
        FaultKind::SlowStep,
        FaultKind::NoisyStep,
        FaultKind::Healthy,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::SlowDisk => "slow-disk",
            FaultKind::SlowDecode => "slow-decode",
            FaultKind::SlowWorker => "slow-worker",
            FaultKind::TinyBuffer => "tiny-buffer",
            FaultKind::UploadLock => "upload-lock",
            FaultKind::PageableUpload => "pageable-upload",
            FaultKind::ShapeChurn => "shape-churn",
            FaultKind::PeriodicStall => "periodic-stall",
            FaultKind::CpuHog => "cpu-hog",
            FaultKind::SlowStep => "slow-step",
            FaultKind::NoisyStep => "noisy-step",
            FaultKind::Healthy => "healthy",
        }
    }

    /// Why it requires a GPU; `None` if it does not.
    pub fn needs_gpu(self) -> Option<&'static str> {
        (self == FaultKind::PageableUpload).then_some("without a GPU no batch is copied")
    }

    /// The fault with this name.
    pub fn from_name(name: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Number of loader threads if one is slow, or if batches arrive unevenly: few enough that each occurs in a short
/// trace.
pub(crate) const THREADS: usize = 4;
/// Index of the slow thread.
const SLOW_THREAD: usize = 1;
/// Period of a stall, in batches.
const EVERY: u64 = 6;
/// Share of the steps that are computed several times: too few to make steps slow in general.
const NOISY: f64 = 0.35;

/// An injected fault.
#[derive(Debug)]
pub struct Fault {
    pub(crate) kind: FaultKind,
    /// Nanoseconds of a healthy step; 0 before the fault is armed.
    step: AtomicU64,
    rows: AtomicUsize,
    pub(crate) workers: AtomicUsize,
    pub(crate) slots: AtomicUsize,
    draws: AtomicU64,
    pub(crate) over: (Mutex<u64>, Condvar),
}

/// Every instance is unique.
impl PartialEq for Fault {
    fn eq(&self, other: &Fault) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Fault {}

impl Fault {
    /// Creates a fault that is not armed. It is leaked, for threads that may outlive the caller.
    pub fn new(kind: FaultKind) -> &'static Fault {
        Box::leak(Box::new(Fault {
            kind,
            step: AtomicU64::new(0),
            rows: AtomicUsize::new(1),
            workers: AtomicUsize::new(1),
            slots: AtomicUsize::new(2),
            draws: AtomicU64::new(0),
            over: (Mutex::new(0), Condvar::new()),
        }))
    }

    /// The kind of fault.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Arms the fault, for healthy steps of this many seconds and batches of this many rows.
    pub fn arm_with(&self, step: f64, rows: usize) {
        self.rows.store(rows.max(1), Relaxed);
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        // Shorter sleeps are not possible.
        self.step.store((step.max(50e-6) * 1e9) as u64, Relaxed);
    }

    /// Starts the programs that use the CPU, if that is the fault; they run as long as the result is held.
    ///
    /// # Errors
    ///
    /// The other programs cannot be started.
    pub fn hog(&self) -> std::io::Result<Option<Hog>> {
        (self.kind == FaultKind::CpuHog).then(Hog::start).transpose()
    }

    /// The time of `count` healthy steps; zero before the fault is armed.
    fn steps(&self, count: f64) -> Duration {
        Duration::from_nanos((self.step.load(Relaxed) as f64 * count) as u64)
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.step.load(Relaxed) > 0
    }

    /// The next number of a series in 0 to 1.
    fn draw(&self) -> f64 {
        random_unit(self.draws.fetch_add(1, Relaxed))
    }

    /// Records with this fault.
    pub fn source(&'static self, base: Arc<dyn RecordSource>) -> Arc<dyn RecordSource> {
        Arc::new(Records { base, fault: self, decoding: OnceLock::new() })
    }

    /// The effect of this fault on the path of a batch to a device.
    pub(crate) fn feed_fault(&'static self, engine: &Engine) -> FeedFault {
        FeedFault::new(self, engine)
    }

    /// Waits until `count` steps are over.
    fn until_over(&self, count: u64) {
        let over = self.over.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A step of several batches does not end before all of them are there, so the wait has a limit.
        let _ = self.over.1.wait_timeout_while(over, self.steps(5.0), |over| *over < count);
    }

    /// Delay of an array that a loader thread has read.
    fn delay(&self, worker: usize) -> Duration {
        let (rows, workers) = (self.rows.load(Relaxed) as f64, self.workers.load(Relaxed) as f64);
        let ahead = 2.0 * workers + self.slots.load(Relaxed) as f64;
        match self.kind {
            FaultKind::SlowDisk | FaultKind::SlowDecode => self.steps(2.0 * workers / rows),
            // Longer than the ready batches last, or it would have no effect.
            FaultKind::SlowWorker if worker == SLOW_THREAD => self.steps(1.25 * ahead / rows),
            FaultKind::TinyBuffer => {
                // Longer than the ready batches last, and so rarely that supply suffices on average.
                let late = 1.5 * ahead + 2.0;
                if self.draw() < 0.5 * workers / late / rows { self.steps(late) } else { Duration::ZERO }
            }
            _ => Duration::ZERO,
        }
    }

    /// Number of extra runs of a step.
    pub(crate) fn extra_runs(&self, step: u64) -> u64 {
        match self.kind {
            _ if !self.is_armed() => 0,
            FaultKind::SlowStep => 1,
            FaultKind::NoisyStep if random_unit(2 * step) < NOISY => {
                1 + (random_unit(2 * step + 1) * 3.0) as u64
            }
            _ => 0,
        }
    }
}

/// A number in 0 to 1 for every index (SplitMix64).
fn random_unit(index: u64) -> f64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

thread_local! {
    static ACCUMULATED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Adds to the delay of this thread. Returns the whole delay once it is long enough for a precise sleep.
fn accumulated_delay(time: Duration) -> Option<Duration> {
    let delay = ACCUMULATED.get() + time;
    let is_due = delay >= Duration::from_millis(1);
    ACCUMULATED.set(if is_due { Duration::ZERO } else { delay });
    is_due.then_some(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_causes_are_distinct() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_name(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        let causes: std::collections::BTreeSet<_> = FaultKind::ALL.map(FaultKind::cause).into();
        assert_eq!(causes.len(), FaultKind::ALL.len());
    }

    #[test]
    fn an_unarmed_fault_has_no_effect_and_delays_scale_with_the_step() {
        let fault = Fault::new(FaultKind::SlowStep);
        assert_eq!((fault.steps(5.0), fault.extra_runs(1)), (Duration::ZERO, 0));
        fault.arm_with(0.2, 4);
        assert_eq!((fault.steps(1.5), fault.extra_runs(1)), (Duration::from_millis(300), 1));
    }

    #[test]
    fn about_a_third_of_the_steps_is_noisy() {
        let fault = Fault::new(FaultKind::NoisyStep);
        fault.arm_with(0.1, 1);
        let more: Vec<u64> = (0..1000).map(|step| fault.extra_runs(step)).collect();
        let noisy = more.iter().filter(|more| **more > 0).count();
        assert!((300..400).contains(&noisy), "{noisy}");
        assert_eq!(more.iter().max(), Some(&3));
    }
}

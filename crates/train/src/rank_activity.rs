//! What the main thread of a rank does, since when, and how long that may take. Heartbeats carry this to rank 0: a dedicated thread
//! sends them, so they continue when the main thread hangs.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of the first steps of a stage, and of the work between two steps, while all ranks send heartbeats.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(900);
/// Number of recent steps whose times the limit is computed from.
const MEASURED_STEPS: usize = 64;
/// Number of measured steps before the limit follows them: the first steps connect GPUs and choose algorithms.
const FIRST_STEPS: usize = 3;
/// A step may take this many times as long as the longest of the recent steps.
const STEP_FACTOR: u32 = 10;

/// What a main thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Waits for another rank.
    Idle,
    /// Computes a step, or queues one on its GPU.
    Step,
    /// Waits for its GPU, which may wait for those of other ranks.
    Device,
    /// Does work that was announced with a time limit of its own.
    Announced,
}

/// What a rank does, as a heartbeat reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Activity {
    pub phase: Phase,
    /// For messages: `step 12` or `a checkpoint`.
    pub what: String,
    /// The last step that was begun; 0 before the first.
    pub step: u64,
    /// Time since the phase began, or since the main thread last waited for another rank.
    pub elapsed: Duration,
    /// Time limit of the phase; `None` if there is none.
    pub allowed: Option<Duration>,
}

impl Activity {
    /// Whether the phase takes longer than allowed.
    pub fn is_overdue(&self) -> bool {
        self.phase != Phase::Idle && self.allowed.is_some_and(|allowed| self.elapsed > allowed)
    }
}

struct Now {
    phase: Phase,
    what: &'static str,
    since: Instant,
    allowed: Option<Duration>,
    /// Calls that wait for other ranks.
    idle: usize,
    step: u64,
    /// Times of the last steps in each of the phases [`Phase::Step`] and [`Phase::Device`].
    steps: VecDeque<Duration>,
    waits: VecDeque<Duration>,
}

/// Records what the main thread of this rank does.
pub(crate) struct Tracker {
    /// Minimum time limit of a step.
    least: Duration,
    now: Mutex<Now>,
}

impl Tracker {
    /// A tracker with the minimum time limit `least` for steps.
    pub fn new(least: Duration) -> Arc<Tracker> {
        let now = Now {
            phase: Phase::Announced,
            what: "the start of the run",
            since: Instant::now(),
            allowed: None,
            idle: 0,
            step: 0,
            steps: VecDeque::new(),
            waits: VecDeque::new(),
        };
        Arc::new(Tracker { least, now: Mutex::new(now) })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this rank does now.
    pub fn activity(&self) -> Activity {
        let now = self.now();
        let phase = if now.idle > 0 { Phase::Idle } else { now.phase };
        let what = match now.phase {
            Phase::Step | Phase::Device => format!("{} {}", now.what, now.step + 1),
            Phase::Idle | Phase::Announced => now.what.to_owned(),
        };
        Activity { phase, what, step: now.step, elapsed: now.since.elapsed(), allowed: now.allowed }
    }

    /// Time limit of one phase of a step, not counting waits for other ranks.
    pub fn limit(&self, phase: Phase) -> Duration {
        let now = self.now();
        self.limit_of(if phase == Phase::Device { &now.waits } else { &now.steps })
    }

    fn limit_of(&self, measured: &VecDeque<Duration>) -> Duration {
        match measured.iter().max() {
            Some(longest) if measured.len() >= FIRST_STEPS => (*longest * STEP_FACTOR).max(self.least),
            _ => STEP_TIMEOUT.max(self.least),
        }
    }

    /// Forgets the measured times: steps of the next stage differ.
    pub fn new_stage(&self) {
        let mut now = self.now();
        now.steps.clear();
        now.waits.clear();
        now.step = 0;
    }

    fn enter(self: &Arc<Self>, phase: Phase, what: &'static str, allowed: Option<Duration>) -> Entered {
        let mut now = self.now();
        let before = (now.phase, now.what, now.allowed);
        (now.phase, now.what, now.allowed, now.since) = (phase, what, allowed, Instant::now());
        let began = now.since;
        Entered { tracker: self.clone(), before, phase, began }
    }

    /// The main thread computes or queues step `step`, counted from 0, until the result is dropped.
    pub fn step(self: &Arc<Self>, step: u64) -> Entered {
        self.now().step = step;
        self.enter(Phase::Step, "step", Some(self.limit(Phase::Step)))
    }

    /// The main thread waits for its device until the result is dropped.
    pub fn device(self: &Arc<Self>) -> Entered {
        self.enter(Phase::Device, "the GPU, in step", Some(self.limit(Phase::Device)))
    }

    /// The main thread does work that may take longer than a step, until the result is dropped. `allowed` is `None` without a limit.
    pub fn announce(self: &Arc<Self>, what: &'static str, allowed: Option<Duration>) -> Entered {
        self.enter(Phase::Announced, what, allowed)
    }

    /// Sets what the main thread is considered to do from now on, outside of any other phase.
    pub fn rest(&self, what: &'static str, allowed: Option<Duration>) {
        let mut now = self.now();
        (now.phase, now.what, now.allowed, now.since) = (Phase::Announced, what, allowed, Instant::now());
    }

    /// Runs something that waits for another rank; this time does not count towards any limit.
    pub fn while_idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.now().idle += 1;
        let waited = wait();
        let mut now = self.now();
        now.idle -= 1;
        now.since = Instant::now();
        waited
    }
}

/// Ends a phase when it is dropped.
pub(crate) struct Entered {
    tracker: Arc<Tracker>,
    before: (Phase, &'static str, Option<Duration>),
    phase: Phase,
    began: Instant,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut now = self.tracker.now();
        let took = self.began.elapsed();
        let measured = match self.phase {
            Phase::Step => Some(&mut now.steps),
            Phase::Device => Some(&mut now.waits),
            Phase::Idle | Phase::Announced => None,
        };
        if let Some(measured) = measured {
            measured.truncate(MEASURED_STEPS - 1);
            measured.push_front(took);
        }
        (now.phase, now.what, now.allowed) = self.before;
        now.since = Instant::now();
    }
}

/// The rank that hangs, and why; `None` if none does. `all` is what each rank last reported, by rank.
///
/// Ranks that are in a step or in announced work hold up all others, and the ones at the earliest step hold up the rest: on a GPU,
/// queueing a step may wait for a sum with them. A GPU that does not finish its step may be waiting for the GPUs of other ranks, so
/// it is judged only when no rank is in a step or in announced work.
pub(crate) fn hanging(all: &[Activity]) -> Option<(usize, String)> {
    let seconds = |activity: &Activity| {
        let allowed = activity.allowed.unwrap_or_default();
        format!("{:.0} s, and {:.0} s are allowed", activity.elapsed.as_secs_f64(), allowed.as_secs_f64())
    };
    let busy = || {
        let all = all.iter().enumerate();
        all.filter(|(_, activity)| matches!(activity.phase, Phase::Step | Phase::Announced))
    };
    if let Some(behind) = busy().map(|(_, activity)| activity.step).min() {
        let behind = || busy().filter(move |(_, activity)| activity.step == behind);
        if !behind().all(|(_, activity)| activity.is_overdue()) {
            return None;
        }
        let (rank, activity) = behind().max_by_key(|(_, activity)| activity.elapsed)?;
        let words = format!(
            "its main thread hangs, though it sends heartbeats: it has been in {} for {}",
            activity.what,
            seconds(activity)
        );
        return Some((rank, words));
    }
    let (rank, activity) = all.iter().enumerate().find(|(_, activity)| activity.is_overdue())?;
    let others = all.iter().filter(|activity| activity.phase == Phase::Device).count() > 1;
    let why = if others { "a GPU or the network between GPUs hangs" } else { "its GPU hangs" };
    let words = format!(
        "it has waited for {} for {}, though all ranks send heartbeats: {why}",
        activity.what,
        seconds(activity)
    );
    Some((rank, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(phase: Phase, step: u64, elapsed: u64, allowed: Option<u64>) -> Activity {
        let allowed = allowed.map(Duration::from_secs);
        Activity {
            phase,
            what: format!("step {}", step + 1),
            step,
            elapsed: Duration::from_secs(elapsed),
            allowed,
        }
    }

    #[test]
    fn the_rank_that_holds_up_the_others_is_named() {
        let idle = activity(Phase::Idle, 12, 500, Some(30));
        let device = |elapsed| activity(Phase::Device, 12, elapsed, Some(30));
        let step = |step, elapsed| activity(Phase::Step, step, elapsed, Some(30));
        let announced = |allowed| activity(Phase::Announced, 12, 500, allowed);
        let named = |all: &[Activity]| hanging(all).map(|(rank, _)| rank);
        assert_eq!(named(&[idle.clone(), step(12, 31), idle.clone()]), Some(1));
        assert_eq!(named(&[idle.clone(), step(12, 29)]), None);
        // Both queue a step; the one that is behind has not queued the sums that the other waits for.
        assert_eq!(named(&[step(13, 40), step(12, 35)]), Some(1));
        assert_eq!(named(&[step(13, 40), step(12, 25)]), None);
        assert_eq!(named(&[step(12, 31), announced(Some(900))]), None);
        // Their GPUs wait for the one that is in a step, or in something that may take long.
        assert_eq!(named(&[device(60), step(12, 31)]), Some(1));
        assert_eq!(named(&[device(60), step(12, 10)]), None);
        assert_eq!(named(&[device(60), announced(None)]), None);
        assert_eq!(named(&[device(60), announced(Some(400))]), Some(1));
        // All GPUs wait; one waits for its own.
        let (rank, words) = hanging(&[device(31), device(60)]).unwrap();
        assert!(rank == 0 && words.contains("network between GPUs hangs"), "{words}");
        let (rank, words) = hanging(&[idle.clone(), device(60)]).unwrap();
        assert!(rank == 1 && words.contains("its GPU hangs"), "{words}");
        assert_eq!(named(&[device(29), device(3)]), None);
        assert_eq!(named(&[idle.clone(), idle]), None);
    }

    #[test]
    fn a_slow_step_raises_its_own_limit_and_the_first_steps_have_a_long_one() {
        let tracker = Tracker::new(Duration::from_millis(20));
        assert_eq!(tracker.limit(Phase::Step), STEP_TIMEOUT);
        for step in 0..FIRST_STEPS as u64 {
            let entered = tracker.step(step);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(tracker.activity().what, format!("step {}", step + 1));
            drop(entered);
        }
        let limit = tracker.limit(Phase::Step);
        assert!((Duration::from_millis(100)..Duration::from_secs(10)).contains(&limit), "{limit:?}");
        // Waiting for the device is measured for itself.
        assert_eq!(tracker.limit(Phase::Device), STEP_TIMEOUT);
        // Quick steps push the slow ones out, and the least limit stays.
        (0..MEASURED_STEPS).for_each(|step| drop(tracker.step(step as u64)));
        assert!(tracker.limit(Phase::Step) < limit);
        assert!(tracker.limit(Phase::Step) >= Duration::from_millis(20));
        tracker.new_stage();
        assert_eq!(tracker.limit(Phase::Step), STEP_TIMEOUT);
    }

    #[test]
    fn waiting_for_another_rank_counts_for_no_limit() {
        let tracker = Tracker::new(Duration::ZERO);
        let entered = tracker.announce("a test", Some(Duration::from_millis(50)));
        tracker.while_idle(|| {
            std::thread::sleep(Duration::from_millis(80));
            assert_eq!(tracker.activity().phase, Phase::Idle);
            assert!(!tracker.activity().is_overdue());
        });
        assert!(tracker.activity().elapsed < Duration::from_millis(80));
        std::thread::sleep(Duration::from_millis(60));
        assert!(tracker.activity().is_overdue());
        drop(entered);
        assert_eq!(tracker.activity().what, "the start of the run");
        assert!(!tracker.activity().is_overdue());
    }
}

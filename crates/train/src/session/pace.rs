//! How fast a stage goes, over its last seconds: clips, the device's share of the time, and the shares spent on waiting for
//! batches and for sums over processes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What is older than this is forgotten.
const WINDOW: Duration = Duration::from_secs(10);

/// What was reached by a moment, all counted from the beginning.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    rows: u64,
    waited: Duration,
    busy: Option<Duration>,
    summed: Option<Duration>,
}

/// Counts steps as their reports come in.
#[derive(Debug)]
pub(crate) struct Pace {
    marks: VecDeque<Mark>,
    rows: u64,
    waited: Duration,
}

impl Pace {
    /// Begins at `now`, with a device that has been busy for `busy`, none for one that does not say, and steps that have stood
    /// still for `summed` while gradients were summed over processes, none where there are no others.
    pub fn new(now: Instant, (busy, summed): (Option<Duration>, Option<Duration>)) -> Pace {
        let first = Mark { at: now, rows: 0, waited: Duration::ZERO, busy, summed };
        Pace { marks: VecDeque::from([first]), rows: 0, waited: Duration::ZERO }
    }

    /// The loop stood still for a batch.
    pub fn wait(&mut self, time: Duration) {
        self.waited += time;
    }

    /// A step of so many clips was reported at `now`; the times are all of those since the engine was made.
    pub fn step(&mut self, now: Instant, rows: u64, (busy, summed): (Option<Duration>, Option<Duration>)) {
        self.rows += rows;
        self.marks.push_back(Mark { at: now, rows: self.rows, waited: self.waited, busy, summed });
        // Two at least: a step may be longer than the window.
        while self.marks.len() > 2 && now - self.marks[0].at > WINDOW {
            self.marks.pop_front();
        }
    }

    /// What comes now is not training.
    pub fn pause(&mut self) {
        self.marks.clear();
    }

    /// The ends of the window, where there is time between them.
    fn window(&self) -> Option<(&Mark, &Mark, f64)> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }

    /// Clips per second.
    pub fn rate(&self) -> f64 {
        self.window().map_or(0.0, |(first, last, seconds)| (last.rows - first.rows) as f64 / seconds)
    }

    /// The share of the time that steps took on the device. Never more than all of it: the report of the first step of a
    /// window may come late, and its time then lies before the window.
    pub fn busy(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some((last.busy?.saturating_sub(first.busy?).as_secs_f64() / seconds).min(1.0))
    }

    /// The share of the time that the loop stood still for batches. On a GPU this costs nothing while steps are queued.
    pub fn waiting(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some(((last.waited - first.waited).as_secs_f64() / seconds).min(1.0))
    }

    /// The share of the time that steps stood still while gradients were summed over processes.
    pub fn communicating(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some((last.summed?.saturating_sub(first.summed?).as_secs_f64() / seconds).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn shares_are_those_of_the_last_seconds() {
        let start = Instant::now();
        let mut pace = Pace::new(start, (Some(seconds(5.0)), Some(seconds(1.0))));
        assert_eq!((pace.rate(), pace.busy(), pace.waiting()), (0.0, None, None));
        // Half busy, a quarter waited for.
        for step in 1..=40u32 {
            pace.wait(seconds(0.25));
            let summed = Some(seconds(1.0 + 0.125 * f64::from(step)));
            let busy = Some(seconds(5.0 + 0.5 * f64::from(step)));
            pace.step(start + seconds(step.into()), 3, (busy, summed));
        }
        assert_eq!((pace.rate(), pace.busy(), pace.waiting()), (3.0, Some(0.5), Some(0.25)));
        assert_eq!(pace.communicating(), Some(0.125));
        // What was before is forgotten after the window.
        for step in 41..=51u32 {
            let busy = Some(seconds(25.0 + f64::from(step - 40)));
            pace.step(start + seconds(step.into()), 0, (busy, None));
        }
        assert_eq!((pace.rate(), pace.busy(), pace.waiting()), (0.0, Some(1.0), Some(0.0)));
    }

    #[test]
    fn a_pause_and_a_device_that_says_nothing_are_no_numbers() {
        let start = Instant::now();
        let mut pace = Pace::new(start, (None, None));
        pace.step(start + seconds(1.0), 8, (None, None));
        assert_eq!((pace.rate(), pace.busy(), pace.waiting()), (8.0, None, Some(0.0)));
        pace.pause();
        assert_eq!((pace.rate(), pace.waiting()), (0.0, None));
        pace.step(start + seconds(100.0), 8, (None, None));
        pace.step(start + seconds(120.0), 8, (None, None));
        assert_eq!(pace.rate(), 0.4, "a step longer than the window, after a pause that does not count");
    }
}

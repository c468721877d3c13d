//! Speed of a stage over its last seconds: clips per second, the share of time that steps are on the device, and the
//! shares spent waiting for batches and for sums over processes.

use crate::step_queue::Clocks;
use std::collections::VecDeque;
use std::time::Duration;

/// Length of the window; older marks are dropped.
const WINDOW: Duration = Duration::from_secs(10);

/// Totals since the beginning, at one moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    clocks: Clocks,
    rows: u64,
    waited: Duration,
}

/// Counts steps as their reports arrive.
#[derive(Debug)]
pub(crate) struct Pace {
    marks: VecDeque<Mark>,
    rows: u64,
    waited: Duration,
}

impl Pace {
    /// Starts at `clocks`.
    pub fn new(clocks: Clocks) -> Pace {
        let first = Mark { clocks, rows: 0, waited: Duration::ZERO };
        Pace { marks: VecDeque::from([first]), rows: 0, waited: Duration::ZERO }
    }

    /// Adds time that the loop waited for a batch.
    pub fn wait(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Adds a step of `rows` clips that was reported at `clocks`.
    pub fn step(&mut self, clocks: Clocks, rows: u64) {
        self.rows += rows;
        self.marks.push_back(Mark { clocks, rows: self.rows, waited: self.waited });
        // Keep at least two: a step may be longer than the window.
        while self.marks.len() > 2 && clocks.at - self.marks[0].clocks.at > WINDOW {
            self.marks.pop_front();
        }
    }

    /// Starts a new window after an interruption of training.
    pub fn pause(&mut self) {
        self.marks.clear();
    }

    /// The ends of the window; `None` if there is no time between them.
    fn window(&self) -> Option<(&Mark, &Mark, f64)> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let seconds = (last.clocks.at - first.clocks.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }

    /// Clips per second.
    pub fn rate(&self) -> f64 {
        self.window().map_or(0.0, |(first, last, seconds)| (last.rows - first.rows) as f64 / seconds)
    }

    /// Share of the time that a step was on the device, at most 1: the report of the first step of a window may arrive
    /// late, so that part of its time is before the window.
    pub fn on_device(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        let on_device = last.clocks.on_device?.saturating_sub(first.clocks.on_device?);
        Some((on_device.as_secs_f64() / seconds).min(1.0))
    }

    /// Share of the time that the loop waited for batches. On a GPU this costs nothing while steps are queued.
    pub fn waiting(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some(((last.waited - first.waited).as_secs_f64() / seconds).min(1.0))
    }

    /// Share of the time that steps waited while gradients were summed over processes.
    pub fn communicating(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        let summed = last.clocks.summed?.saturating_sub(first.clocks.summed?);
        Some((summed.as_secs_f64() / seconds).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn shares_are_those_of_the_last_seconds() {
        let start = Instant::now();
        let mut pace =
            Pace::new(Clocks { at: start, on_device: Some(seconds(5.0)), summed: Some(seconds(1.0)) });
        assert_eq!((pace.rate(), pace.on_device(), pace.waiting()), (0.0, None, None));
        // Half of the time on the device, a quarter waiting.
        for step in 1..=40u32 {
            pace.wait(seconds(0.25));
            let summed = Some(seconds(1.0 + 0.125 * f64::from(step)));
            let on_device = Some(seconds(5.0 + 0.5 * f64::from(step)));
            pace.step(Clocks { at: start + seconds(step.into()), on_device, summed }, 3);
        }
        assert_eq!((pace.rate(), pace.on_device(), pace.waiting()), (3.0, Some(0.5), Some(0.25)));
        assert_eq!(pace.communicating(), Some(0.125));
        // Earlier steps no longer count after the window.
        for step in 41..=51u32 {
            let on_device = Some(seconds(25.0 + f64::from(step - 40)));
            pace.step(Clocks { at: start + seconds(step.into()), on_device, summed: None }, 0);
        }
        assert_eq!((pace.rate(), pace.on_device(), pace.waiting()), (0.0, Some(1.0), Some(0.0)));
    }

    #[test]
    fn a_pause_and_a_device_without_a_clock_give_none() {
        let start = Instant::now();
        let after = |time: f64| Clocks { at: start + seconds(time), on_device: None, summed: None };
        let mut pace = Pace::new(after(0.0));
        pace.step(after(1.0), 8);
        assert_eq!((pace.rate(), pace.on_device(), pace.waiting()), (8.0, None, Some(0.0)));
        pace.pause();
        assert_eq!((pace.rate(), pace.waiting()), (0.0, None));
        pace.step(after(100.0), 8);
        pace.step(after(120.0), 8);
        assert_eq!(pace.rate(), 0.4, "a step longer than the window, after a pause that does not count");
    }
}

//! Progress on the terminal: a bar with rate and ETA, or plain lines where stderr is not a terminal.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use myxtts_run::progress::{Progress, StepProgress};
use myxtts_tensor::Device;

use crate::output::errln;
use crate::stage_bar::StageBar;

/// Progress on stderr, so that stdout stays for results.
pub struct Terminal {
    state: Mutex<State>,
    stage: Mutex<StageBar>,
    /// Prints messages, but no progress bars.
    is_quiet: bool,
}

enum State {
    Idle,
    Bar(ProgressBar),
    Lines { what: String, total: u64, done: u64, began: Instant, printed: Instant },
}

/// Interval between lines where stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Terminal {
    /// Progress for one command.
    pub fn new() -> Self {
        Terminal { state: Mutex::new(State::Idle), stage: Mutex::new(StageBar::new()), is_quiet: false }
    }

    /// Messages without progress bars: for ranks other than 0.
    pub fn quiet() -> Self {
        Terminal { is_quiet: true, ..Terminal::new() }
    }

    /// Shows NVML's utilisation of this device next to the steps of a run.
    pub fn set_device(&self, device: Device) {
        self.with_stage(|stage| stage.set_device(device));
    }

    fn with(&self, act: impl FnOnce(&mut State)) {
        // A panicked worker must not take the progress bar down with it.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn with_stage<T>(&self, act: impl FnOnce(&mut StageBar) -> T) -> T {
        act(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Terminal {
    fn start(&self, what: &str, total: u64) {
        if self.is_quiet {
            return;
        }
        self.with(|state| {
            *state = if std::io::stderr().is_terminal() {
                let bar = ProgressBar::new(total);
                let style = ProgressStyle::with_template(
                    "{msg:>12} {wide_bar} {human_pos}/{human_len} {per_sec} ETA {eta}",
                );
                if let Ok(style) = style {
                    bar.set_style(style);
                }
                bar.set_message(what.to_owned());
                State::Bar(bar)
            } else {
                let now = Instant::now();
                State::Lines { what: what.to_owned(), total, done: 0, began: now, printed: now }
            };
        });
    }

    fn advance(&self, items: u64) {
        self.with(|state| match state {
            State::Idle => {}
            State::Bar(bar) => bar.inc(items),
            State::Lines { what, total, done, began, printed } => {
                *done += items;
                if printed.elapsed() >= LINE_EVERY {
                    *printed = Instant::now();
                    let rate = *done as f64 / began.elapsed().as_secs_f64();
                    let left = (*total - (*done).min(*total)) as f64 / rate.max(1e-9);
                    errln!("{what}: {done}/{total}, {rate:.1}/s, {left:.0} s left");
                }
            }
        });
    }

    fn say(&self, message: &str) {
        if self.with_stage(|stage| stage.say(message)) {
            return;
        }
        self.with(|state| match state {
            State::Bar(bar) => bar.suspend(|| errln!("{message}")),
            State::Idle | State::Lines { .. } => errln!("{message}"),
        });
    }

    fn finish(&self) {
        self.with(|state| {
            if let State::Bar(bar) = state {
                bar.finish_and_clear();
            }
            *state = State::Idle;
        });
    }

    fn stage(&self, name: &'static str, from: u64, steps: u64, described: &[String]) {
        if !self.is_quiet {
            self.with_stage(|stage| stage.start(name, from, steps, described));
        }
    }

    fn step(&self, progress: &StepProgress) {
        if !self.is_quiet {
            self.with_stage(|stage| stage.step(progress));
        }
    }

    fn stage_end(&self) {
        self.with_stage(StageBar::end);
    }
}

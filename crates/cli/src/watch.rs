//! A run on the terminal: one line that moves, or plain lines where nobody watches a screen.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use myxtts_run::trend::Direction;
use myxtts_train::session::{News, Watcher};

use crate::output::errln;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a run on stderr.
pub struct Watch {
    bar: Option<ProgressBar>,
    stage: &'static str,
    steps: u64,
    from: u64,
    began: Instant,
    said: Option<Instant>,
}

impl Watch {
    /// Nothing to show yet.
    pub fn new() -> Watch {
        Watch { bar: None, stage: "", steps: 0, from: 0, began: Instant::now(), said: None }
    }

    fn words(&self, news: &News) -> String {
        let arrow = match news.direction {
            Direction::Falling => "falling",
            Direction::Rising => "rising",
            Direction::Flat => "level",
        };
        let numbers: Vec<String> = news.numbers.iter().map(|(name, x)| format!("{name} {x:.3}")).collect();
        let mut words = format!("epoch {:.1}, loss {:.4} {arrow}", news.epoch, news.mean);
        if !numbers.is_empty() {
            words += &format!(" ({})", numbers.join(", "));
        }
        words += &format!(", {:.1} clips/s", news.rate);
        let percent = |share: f64| (share * 100.0).round();
        if let Some(busy) = news.busy {
            words += &format!(", GPU {} % busy", percent(busy));
        }
        if let Some(wait) = news.wait {
            words += &format!(", {} % waiting for batches", percent(wait));
        }
        words
    }
}

impl Watcher for Watch {
    fn stage(&mut self, name: &'static str, from: u64, steps: u64, described: &[String]) {
        (self.stage, self.steps, self.from) = (name, steps, from);
        (self.began, self.said) = (Instant::now(), None);
        for line in described {
            errln!("{name}: {line}");
        }
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(steps).with_position(from);
            let style =
                ProgressStyle::with_template("{prefix:>8} {bar:20} {human_pos}/{human_len} {msg} ETA {eta}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(name);
            bar.reset_eta();
            self.bar = Some(bar);
        }
    }

    fn step(&mut self, news: &News) {
        let words = self.words(news);
        match &self.bar {
            Some(bar) => {
                bar.set_position(news.step);
                bar.set_message(words);
            }
            None => {
                let last = news.step == self.steps;
                if last || self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY) {
                    self.said = Some(Instant::now());
                    let done = (news.step - self.from).max(1) as f64;
                    let left = (self.steps - news.step) as f64 * self.began.elapsed().as_secs_f64() / done;
                    errln!("{} {}/{}: {words}, {left:.0} s left", self.stage, news.step, self.steps);
                }
            }
        }
    }

    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| errln!("{line}")),
            None => errln!("{line}"),
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

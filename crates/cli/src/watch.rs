//! A run on the terminal: one line that moves, or plain lines where nobody watches a screen.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use myxtts_monitor::Sampler;
use myxtts_run::trend::Direction;
use myxtts_tensor::Device;
use myxtts_train::session::{News, Watcher};

use crate::beside::nvml_of;
use crate::output::errln;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How often the driver is asked how busy the GPU was: its own window is a sixth of a second to one.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The driver's answers of this last time are averaged: that of the shares of a [`News`].
const WINDOW: Duration = Duration::from_secs(10);

/// The driver's own figure of a GPU: the share of the time in which a kernel ran.
struct Driver(Sampler<Option<f64>>);

impl Driver {
    /// Asks about the GPU a run trains on; none on the processor and where NVML does not know the GPU.
    fn of(device: Device) -> Option<Driver> {
        let (nvml, index) = nvml_of(device).ok()?;
        Driver::asking(ASK_EVERY, move || nvml.brief(index).utilisation)
    }

    /// Asks `look` for percent.
    fn asking(every: Duration, look: impl FnMut() -> Option<f64> + Send + 'static) -> Option<Driver> {
        Sampler::keeping(WINDOW, every, look).ok().map(Driver)
    }

    /// The mean of the last seconds, from 0 to 1.
    fn share(&self) -> Option<f64> {
        let now = Instant::now();
        let from = now.checked_sub(WINDOW).unwrap_or(now);
        let taken: Vec<f64> =
            self.0.between(from, now).into_iter().filter_map(|(_, percent)| percent).collect();
        (!taken.is_empty()).then(|| taken.iter().sum::<f64>() / taken.len() as f64 / 100.0)
    }
}

/// Shows a run on stderr.
pub struct Watch {
    driver: Option<Driver>,
    bar: Option<ProgressBar>,
    stage: &'static str,
    steps: u64,
    from: u64,
    began: Instant,
    said: Option<Instant>,
}

impl Watch {
    /// Nothing to show yet, of a run that trains there.
    pub fn of(device: Device) -> Watch {
        Watch {
            driver: Driver::of(device),
            bar: None,
            stage: "",
            steps: 0,
            from: 0,
            began: Instant::now(),
            said: None,
        }
    }

    /// `driver`: NVML's share, where there is one.
    fn words(news: &News, driver: Option<f64>) -> String {
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
        // Two different things: a step holds the GPU from its first kernel to its last, gaps between them included; the
        // driver counts the time in which a kernel ran.
        if let Some(busy) = news.busy {
            words += &format!(", a step on the GPU {} % of the last seconds", percent(busy));
        }
        if let Some(driver) = driver {
            words += &format!(", kernels {} % (NVML)", percent(driver));
        }
        if let Some(wait) = news.wait {
            words += &format!(", {} % waiting for batches", percent(wait));
        }
        if let Some(summing) = news.communication {
            words += &format!(", {} % waiting for sums over ranks", percent(summing));
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
        let words = Watch::words(news, self.driver.as_ref().and_then(Driver::share));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn news(busy: Option<f64>) -> News {
        News {
            step: 7,
            epoch: 1.5,
            loss: 2.5,
            mean: 2.25,
            direction: Direction::Falling,
            numbers: vec![("text", 0.5)],
            rate: 31.0,
            busy,
            wait: Some(0.0),
            communication: None,
            learning_rate: 1e-4,
        }
    }

    #[test]
    fn the_line_says_what_each_share_counts() {
        let start = "epoch 1.5, loss 2.2500 falling (text 0.500), 31.0 clips/s";
        let end = "0 % waiting for batches";
        // What was said of a run whose kernels the driver saw 80 % of the time: "GPU 100 % busy".
        let both = "a step on the GPU 100 % of the last seconds, kernels 80 % (NVML)";
        assert_eq!(Watch::words(&news(Some(0.998)), Some(0.8)), format!("{start}, {both}, {end}"));
        let alone = "a step on the GPU 100 % of the last seconds";
        assert_eq!(Watch::words(&news(Some(1.0)), None), format!("{start}, {alone}, {end}"));
        assert_eq!(Watch::words(&news(None), None), format!("{start}, {end}"), "on the processor");
    }

    #[test]
    fn the_drivers_share_is_the_mean_of_its_answers() {
        assert!(Driver::of(Device::Cpu).is_none());
        // An answer that does not come is left out.
        let mut answers = [Some(70.0), None, Some(90.0)].into_iter().cycle();
        let mut asked = 0;
        let driver = Driver::asking(Duration::from_millis(1), move || {
            asked += 1;
            if asked > 3 { None } else { answers.next().flatten() }
        });
        let driver = driver.unwrap();
        let start = Instant::now();
        while driver.share() != Some(0.8) {
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", driver.share());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

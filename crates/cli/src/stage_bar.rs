//! A training stage on the terminal: one progress bar, or plain lines where stderr is not a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use myxtts_monitor::Sampler;
use myxtts_run::loss_trend::Direction;
use myxtts_run::progress::StepProgress;
use myxtts_tensor::Device;

use crate::machine_sampler::nvml_of;
use crate::output::errln;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Interval between readings of the GPU's utilisation: NVML's own window is between a sixth of a second and one second.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// NVML's samples are averaged over this time, as are the shares of a [`StepProgress`].
const WINDOW: Duration = Duration::from_secs(10);

/// NVML's utilisation of a GPU: the share of the time in which a kernel ran.
struct Utilisation(Sampler<Option<f64>>);

impl Utilisation {
    /// Samples the GPU a run trains on. `None` on the CPU, and where NVML does not know the GPU.
    fn of_device(device: Device) -> Option<Utilisation> {
        let (nvml, index) = nvml_of(device).ok()?;
        Utilisation::start(SAMPLE_EVERY, move || nvml.quick_sample(index).utilisation)
    }

    /// Samples percentages from `read`.
    fn start(every: Duration, read: impl FnMut() -> Option<f64> + Send + 'static) -> Option<Utilisation> {
        Sampler::with_window(WINDOW, every, read).ok().map(Utilisation)
    }

    /// Mean over the last seconds, from 0 to 1.
    fn mean(&self) -> Option<f64> {
        let now = Instant::now();
        let from = now.checked_sub(WINDOW).unwrap_or(now);
        let taken: Vec<f64> =
            self.0.between(from, now).into_iter().filter_map(|(_, percent)| percent).collect();
        (!taken.is_empty()).then(|| taken.iter().sum::<f64>() / taken.len() as f64 / 100.0)
    }
}

/// The progress of a training stage on stderr.
pub struct StageBar {
    utilisation: Option<Utilisation>,
    bar: Option<ProgressBar>,
    stage: &'static str,
    steps: u64,
    from: u64,
    started: Instant,
    printed: Option<Instant>,
}

impl StageBar {
    /// A bar without a stage yet.
    pub fn new() -> StageBar {
        StageBar {
            utilisation: None,
            bar: None,
            stage: "",
            steps: 0,
            from: 0,
            started: Instant::now(),
            printed: None,
        }
    }

    /// Shows NVML's utilisation of this device from now on, where there is one.
    pub fn set_device(&mut self, device: Device) {
        self.utilisation = Utilisation::of_device(device);
    }

    fn line(progress: &StepProgress, utilisation: Option<f64>) -> String {
        let direction = match progress.direction {
            Some(Direction::Falling) => " falling",
            Some(Direction::Rising) => " rising",
            Some(Direction::Flat) => " steady",
            None => "",
        };
        let numbers: Vec<String> =
            progress.numbers.iter().map(|(name, x)| format!("{name} {x:.3}")).collect();
        let mut line = format!("epoch {:.1}, loss {:.4}{direction}", progress.epoch, progress.mean);
        if !numbers.is_empty() {
            line += &format!(" ({})", numbers.join(", "));
        }
        line += &format!(", {:.1} clips/s", progress.rate);
        let percent = |share: f64| (share * 100.0).round();
        // Two different shares: a step holds the GPU from its first kernel to its last, gaps between them included; NVML
        // counts the time in which a kernel ran.
        if let Some(share) = progress.on_device {
            line += &format!(", GPU step {} % of the last seconds", percent(share));
        }
        if let Some(utilisation) = utilisation {
            line += &format!(", kernels {} % (NVML)", percent(utilisation));
        }
        if let Some(wait) = progress.wait {
            line += &format!(", {} % waiting for batches", percent(wait));
        }
        if let Some(summing) = progress.communication {
            line += &format!(", {} % waiting for all-reduce", percent(summing));
        }
        line
    }

    /// Shows a stage that starts, or resumes after step `from`.
    pub fn start(&mut self, name: &'static str, from: u64, steps: u64, described: &[String]) {
        (self.stage, self.steps, self.from) = (name, steps, from);
        (self.started, self.printed) = (Instant::now(), None);
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

    /// Shows a step that is done.
    pub fn step(&mut self, progress: &StepProgress) {
        let line = StageBar::line(progress, self.utilisation.as_ref().and_then(Utilisation::mean));
        match &self.bar {
            Some(bar) => {
                bar.set_position(progress.step);
                bar.set_message(line);
            }
            None => {
                let last = progress.step == self.steps;
                if last || self.printed.is_none_or(|printed| printed.elapsed() >= LINE_EVERY) {
                    self.printed = Some(Instant::now());
                    let done = (progress.step - self.from).max(1) as f64;
                    let left =
                        (self.steps - progress.step) as f64 * self.started.elapsed().as_secs_f64() / done;
                    errln!("{} {}/{}: {line}, {left:.0} s left", self.stage, progress.step, self.steps);
                }
            }
        }
    }

    /// Prints a message above the bar. Returns `false` where no bar is shown, and prints nothing.
    pub fn say(&self, message: &str) -> bool {
        match &self.bar {
            Some(bar) => bar.suspend(|| errln!("{message}")),
            None => return false,
        }
        true
    }

    /// Ends the stage.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(on_device: Option<f64>) -> StepProgress {
        StepProgress {
            step: 7,
            epoch: 1.5,
            loss: 2.5,
            mean: 2.25,
            direction: Some(Direction::Falling),
            numbers: vec![("text", 0.5)],
            rate: 31.0,
            on_device,
            wait: Some(0.0),
            communication: None,
            learning_rate: 1e-4,
        }
    }

    #[test]
    fn the_line_names_what_each_share_counts() {
        let start = "epoch 1.5, loss 2.2500 falling (text 0.500), 31.0 clips/s";
        let end = "0 % waiting for batches";
        // Regression: such a run was reported as "GPU 100 % busy".
        let both = "GPU step 100 % of the last seconds, kernels 80 % (NVML)";
        assert_eq!(StageBar::line(&progress(Some(0.998)), Some(0.8)), format!("{start}, {both}, {end}"));
        let alone = "GPU step 100 % of the last seconds";
        assert_eq!(StageBar::line(&progress(Some(1.0)), None), format!("{start}, {alone}, {end}"));
        assert_eq!(StageBar::line(&progress(None), None), format!("{start}, {end}"), "on the CPU");
        let unknown = StepProgress { direction: None, ..progress(None) };
        assert!(StageBar::line(&unknown, None).starts_with("epoch 1.5, loss 2.2500 (text 0.500)"));
    }

    #[test]
    fn utilisation_is_the_mean_of_the_samples() {
        assert!(Utilisation::of_device(Device::Cpu).is_none());
        // A missing sample is left out.
        let mut answers = [Some(70.0), None, Some(90.0)].into_iter().cycle();
        let mut asked = 0;
        let utilisation = Utilisation::start(Duration::from_millis(1), move || {
            asked += 1;
            if asked > 3 { None } else { answers.next().flatten() }
        });
        let utilisation = utilisation.unwrap();
        let start = Instant::now();
        while utilisation.mean() != Some(0.8) {
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", utilisation.mean());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

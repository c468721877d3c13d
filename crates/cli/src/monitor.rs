//! `myxtts monitor`: the load of the machine during training, as a live view, a log and a summary.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use myxtts_monitor::sample::{ClockLimit, GpuSample, HostSample, RunSample, Sample, Unit};
use myxtts_monitor::{AttachedRun, LocalMachine, Monitor, SampleLog, Summary};
use myxtts_run::exit::Exit;
use myxtts_run::memory_size::memory_size;
use serde_json::json;

use crate::output::{errln, outln, print, size};
use crate::settings::Settings;
use crate::signal::stop_requested;

/// How often signals are checked between two samples.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of processes shown per GPU, those with the most memory; logs have all of them.
const SHOWN_PROCESSES: usize = 8;

#[derive(clap::Args)]
pub struct Args {
    /// A run to monitor as well: its folder, or its name under `training.runs_dir`
    run: Option<String>,
    /// Append every sample to this file, as CSV or JSON lines by its extension (.csv, .jsonl)
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// How long to monitor, in seconds (at least 0.05)
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    duration: f64,
    /// Interval between samples, in seconds (at least 0.05)
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: f64,
    /// Print samples and summary as JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.05..=1e8).contains(seconds));
    seconds.ok_or_else(|| "expected seconds, from 0.05 to 100000000".to_owned())
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let run = match &args.run {
        Some(run) => Some(AttachedRun::open(&args.settings.plan()?.training.runs_dir, run)?),
        None => None,
    };
    let mut log = args.log_file.as_deref().map(SampleLog::open).transpose().context("the log")?;
    let stop = stop_requested()?;
    let mut monitor = Monitor::new(LocalMachine::new(), run);
    if let Some(reason) = monitor.gpu_error() {
        errln!("no GPU to monitor, only CPU and memory: {reason}");
    }

    let view = View::new(args.json);
    let (interval, began) = (Duration::from_secs_f64(args.interval), Instant::now());
    let end = began + Duration::from_secs_f64(args.duration);
    let mut due = began + interval;
    // The first sample comes after one interval: CPU use is a difference of two readings.
    while wait(due.min(end), &stop) {
        let sample = monitor.sample();
        if let Some(log) = &mut log {
            log.append(&sample).context("the log")?;
        }
        view.show(&sample, began.elapsed())?;
        let now = Instant::now();
        if now >= end {
            break;
        }
        // Skip the samples that a slow machine has missed.
        while due <= now {
            due += interval;
        }
    }
    view.end(&monitor.summary(), monitor.gpu_error())?;
    Ok(if stop.load(Ordering::Relaxed) { Exit::Stopped } else { Exit::Done })
}

/// Sleeps until the given time. Returns `false` if a signal requested a stop.
fn wait(until: Instant, stop: &AtomicBool) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if stop.load(Ordering::Relaxed) || left.is_zero() {
            return !stop.load(Ordering::Relaxed);
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// How samples are shown: a block that is redrawn, plain lines, or JSON.
enum View {
    Block(ProgressBar),
    Lines,
    Json,
}

impl View {
    fn new(json: bool) -> View {
        let style = ProgressStyle::with_template("{msg}");
        match (json, std::io::stdout().is_terminal(), style) {
            (true, ..) => View::Json,
            (false, true, Ok(style)) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
                bar.set_style(style);
                View::Block(bar)
            }
            _ => View::Lines,
        }
    }

    fn show(&self, sample: &Sample, passed: Duration) -> anyhow::Result<()> {
        match self {
            View::Block(bar) => {
                bar.set_message(block(sample, passed).join("\n"));
                bar.tick();
            }
            View::Lines => outln!("{}", block(sample, passed).join("; ")),
            View::Json => {
                outln!("{}", serde_json::to_string(&json!({ "kind": "sample", "sample": sample }))?)
            }
        }
        Ok(())
    }

    fn end(self, summary: &Summary, no_gpus: Option<&str>) -> anyhow::Result<()> {
        match self {
            View::Json => {
                let last = json!({ "kind": "summary", "no_gpus": no_gpus, "summary": summary });
                return print(&format!("{last}\n"));
            }
            // The last sample stays visible above the summary.
            View::Block(bar) => bar.abandon(),
            View::Lines => {}
        }
        print(&as_text(summary))
    }
}

/// One line for the host, one for each GPU and process, one for the run.
fn block(sample: &Sample, passed: Duration) -> Vec<String> {
    let mut lines = vec![format!("{:.1} s: {}", passed.as_secs_f64(), host(&sample.host))];
    for (index, gpu) in sample.gpus.iter().enumerate() {
        lines.push(format!("GPU {index} {}", gpu_line(gpu)));
        for process in gpu.processes.iter().take(SHOWN_PROCESSES) {
            let name = process.name.as_deref().unwrap_or("-");
            lines.push(format!("  process {} {name} {}", process.pid, memory(process.memory)));
        }
        if gpu.processes.len() > SHOWN_PROCESSES {
            lines.push(format!("  and {} more processes", gpu.processes.len() - SHOWN_PROCESSES));
        }
    }
    lines.extend(sample.run.as_ref().map(|run| run_line(run, sample.time)));
    lines
}

fn host(host: &HostSample) -> String {
    let mut text = format!(
        "CPU {}, memory {} of {}",
        number(host.cpu, "%"),
        memory(host.memory_used),
        memory(host.memory_total)
    );
    if host.run_cpu.is_some() || host.run_memory.is_some() {
        let (cpu, held) = (number(host.run_cpu, "% of a core"), memory(host.run_memory));
        text += &format!(", process of the run {cpu}, {held}");
    }
    text
}

fn gpu_line(gpu: &GpuSample) -> String {
    let rate = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{}/s", size(value as u64)));
    let limits = match &gpu.limits {
        None => "limits -".to_owned(),
        Some(limits) if limits.is_empty() => "not limited".to_owned(),
        Some(limits) => {
            let text: Vec<&str> = limits.iter().map(|limit| limit.description()).collect();
            format!("limited by {}", text.join(", "))
        }
    };
    [
        gpu.name.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{} busy", number(gpu.utilisation, "%")),
        format!("memory {} of {}", memory(gpu.memory_used), memory(gpu.memory_total)),
        format!("{} of {}", number(gpu.power, "W"), number(gpu.power_limit, "W")),
        number(gpu.temperature, "°C"),
        format!("SM {} of {}", number(gpu.sm_clock, "MHz"), number(gpu.sm_clock_max, "MHz")),
        format!("memory {}", number(gpu.memory_clock, "MHz")),
        format!("PCIe in {}, out {}", rate(gpu.pcie_in), rate(gpu.pcie_out)),
        limits,
    ]
    .join(", ")
}

fn run_line(run: &RunSample, now: f64) -> String {
    if run.last_event.is_none() && run.unreadable.is_none() {
        return "the run has logged no event yet".to_owned();
    }
    let stage = run.stage.as_deref().unwrap_or("run");
    let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), "%");
    let rate = run.clips_per_second.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let mut text = format!("{stage} {}/{}", count(run.step), count(run.steps));
    if let Some(steps) = run.steps_per_second {
        text += &format!(", {steps:.1} steps/s");
    }
    text += &format!(", {rate} clips/s");
    // A run on the CPU has no such share.
    if run.on_device.is_some() {
        text += &format!(", {} on the GPU", percent(run.on_device));
    }
    text += &format!(", {} waiting for batches", percent(run.wait));
    match (&run.unreadable, &run.ended, run.last_event) {
        (Some(reason), ..) => text += &format!(" (its event log cannot be read: {reason})"),
        // The next stage may take a while to begin: codes or latents of every clip are computed first.
        (None, Some(ended), _) if run.pid.is_some() => {
            text += &format!(" (this stage is finished: {ended}; the run continues)");
        }
        (None, Some(ended), _) => text += &format!(" (finished: {ended})"),
        (None, None, Some(time)) => text += &format!(" ({:.0} s ago)", (now - time).max(0.0)),
        (None, None, None) => {}
    }
    text
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0} {unit}"))
}

fn memory(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), memory_size)
}

fn as_text(summary: &Summary) -> String {
    let mut text = format!("\n{} samples over {:.1} s\n", summary.samples, summary.seconds);
    if summary.samples > 0 {
        text += &format!("{:<24}{:>14}{:>14}{:>14}{:>14}\n", "", "mean", "deviation", "p5", "p95");
    }
    for row in &summary.quantities {
        let of = row.gpu.map(|gpu| format!("GPU {gpu} ")).unwrap_or_default();
        let cell = |value: f64| format!("{:>14}", in_unit(value, row.unit));
        let figures = row.spread;
        let cells = [figures.mean, figures.deviation, figures.p5, figures.p95].map(cell).concat();
        text += &format!("{:<24}{cells}\n", format!("{of}{}", row.name.replace('_', " ")));
    }
    for (index, gpu) in summary.gpus.iter().enumerate() {
        match &gpu.oscillation {
            None => text += &format!("GPU {index}: utilisation unknown\n"),
            Some(swing) if swing.score == 0.0 => {
                text += &format!(
                    "GPU {index}: oscillation 0: {:.0} to {:.0} % busy, steady\n",
                    swing.low, swing.high
                );
            }
            Some(swing) => {
                text += &format!(
                    "GPU {index}: oscillation {:.2} (0: steady, 1: between idle and fully busy), {:.0} % of the time \
                     near {:.0} %, {:.0} % near {:.0} %, {:.1} crossings per minute\n",
                    swing.score,
                    swing.low_share * 100.0,
                    swing.low,
                    swing.high_share * 100.0,
                    swing.high,
                    swing.crossings_per_minute
                );
            }
        }
        for (limit, share) in gpu.limited.iter().filter(|(limit, _)| **limit != ClockLimit::Idle) {
            text += &format!(
                "GPU {index}: limited by {} {:.0} % of the time\n",
                limit.description(),
                share * 100.0
            );
        }
    }
    text
}

fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{value:.1} %"),
        Unit::Bytes => memory_size(value as u64),
        Unit::BytesPerSecond => format!("{}/s", size(value as u64)),
        Unit::Watts => format!("{value:.1} W"),
        Unit::Celsius => format!("{value:.1} °C"),
        Unit::Megahertz => format!("{value:.0} MHz"),
        Unit::ClipsPerSecond => format!("{value:.1}/s"),
    }
}

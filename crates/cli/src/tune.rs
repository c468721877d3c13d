//! `myxtts tune`: a short sweep on the real steps of a stage, and the settings that come of it.

mod sweeper;

use std::path::{Path, PathBuf};

use myxtts_run::config::{Key, Section};
use myxtts_run::destination::Destination;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Stage;
use myxtts_train::Machine;
use myxtts_train::pipeline::Ground;
use myxtts_train::tune::facts::Facts;
use myxtts_train::tune::sweep::{Cell, Row};
use serde::Serialize;
use sweeper::Sweeper;

use crate::failure::UsageError;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::leave_at_once;
use crate::train::{device, open_corpus, prefer_demo, read, stage};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
    /// The stage to run; only the GPT's batches have a size that can be set
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: Stage,
    /// How much is measured each time: on a GPU as many clips as so many steps of 64 have, on a processor twice
    /// so many rounds, a minute of them at most, in which every setting has its turn
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    steps: u64,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Measure every combination of batch size, threads and buffers, to check the choice by
    #[arg(long)]
    exhaustive: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Write what was chosen as a file for `--config`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Serialize)]
struct Report {
    device: String,
    stage: &'static str,
    preset: String,
    clips: usize,
    facts: Facts,
    exhaustive: bool,
    /// How the choice is made.
    rule: String,
    chosen: Cell,
    accumulate: usize,
    settings: Vec<Setting>,
    /// Settings the user made: they were not tried in other values.
    left_alone: Vec<&'static str>,
    /// Batches that are planned not to fit, with the bytes they would take.
    too_large: Vec<Planned>,
    rows: Vec<Row>,
}

/// A batch and the bytes it is planned to take.
type Planned = (usize, u64);

#[derive(Serialize)]
struct Setting {
    setting: &'static str,
    value: usize,
    reason: String,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(path) = args.write.as_ref().filter(|path| path.exists()) {
        // Now, and not after two minutes of measuring.
        return Err(UsageError(format!("{} is there already: name another file", path.display())).into());
    }
    let file = args.write.as_deref().map(|path| Destination::of("--write", path)).transpose()?;
    let machine = Machine::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    prefer_demo(&mut settings, machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let corpus = open_corpus(&plan, None, &progress)?;
    leave_at_once()?;
    let home = read(&plan, &progress)?.home(&plan.data);
    let facts = Facts::of(&[machine])?;
    let model = Ground::of(&plan, &corpus, machine, &home, &progress).untrained(args.stage)?;
    let asked = (args.stage, args.steps);
    let mut sweeper =
        Sweeper { plan, corpus: &corpus, machine, home: &home, facts, asked, model, progress: &progress };
    let report = sweeper.sweep(args.exhaustive)?;
    if let Some(file) = file {
        file.write(yaml(&report).as_bytes())?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&text(&report, args.write.as_deref()))?;
    }
    Ok(Exit::Done)
}

/// A file for `--config`.
fn yaml(report: &Report) -> String {
    let mut text = format!(
        "# Measured by `myxtts tune`: {} on {}, preset {}, {} clips. {}.\n",
        report.stage, report.device, report.preset, report.clips, report.rule
    );
    if !report.left_alone.is_empty() {
        text.push_str(&format!("# Set by you, and left to you: {}.\n", report.left_alone.join(", ")));
    }
    for section in Section::ALL {
        let own = |setting: &&Setting| Key::find(setting.setting).is_some_and(|key| key.section() == section);
        let mut settings = report.settings.iter().filter(own).peekable();
        if settings.peek().is_some() {
            text.push_str(&format!("{}:\n", section.name()));
        }
        for Setting { setting, value, reason } in settings {
            let name = setting.rsplit('.').next().unwrap_or(setting);
            text.push_str(&format!("  # {reason}\n  {name}: {value}\n"));
        }
    }
    text
}

fn text(report: &Report, written: Option<&Path>) -> String {
    let mut text = format!(
        "{} on {}: {}, {} clips, {} cores\n{:>6} {:>8} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}\n",
        report.stage,
        report.device,
        report.preset,
        report.clips,
        report.facts.cores,
        "batch",
        "threads",
        "buffers",
        "clips/s",
        "step ms",
        "planned",
        "waits",
        "busy"
    );
    for Row { cell, rate, figures, .. } in &report.rows {
        let mark = if *cell == report.chosen { "  <" } else { "" };
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        text.push_str(&format!(
            "{:>6} {:>8} {:>9} {rate:>9.1} {:>9.2} {:>10} {:>7} {:>7}{mark}\n",
            cell.batch,
            cell.workers,
            cell.prefetch,
            figures.step_ms,
            crate::output::size(figures.planned_bytes),
            share(figures.wait_share),
            figures.busy.map_or_else(|| "-".to_owned(), share),
        ));
    }
    for (batch, bytes) in &report.too_large {
        text.push_str(&format!(
            "{batch:>6} is planned to take {} and does not fit\n",
            crate::output::size(*bytes)
        ));
    }
    text.push_str(&format!("chosen: {}\n", report.rule));
    for Setting { setting, value, reason } in &report.settings {
        text.push_str(&format!("  {setting} = {value}  ({reason})\n"));
    }
    if !report.left_alone.is_empty() {
        text.push_str(&format!("set by you, and left alone: {}\n", report.left_alone.join(", ")));
    }
    match written {
        Some(path) => text.push_str(&format!("next:   myxtts train CORPUS --config {}\n", path.display())),
        None => {
            text.push_str("next:   the same with --write FILE, then `myxtts train CORPUS --config FILE`\n")
        }
    }
    text
}

//! `myxtts tune`: measures a stage with different settings, and prints or writes the best ones.

use std::path::{Path, PathBuf};

use myxtts_run::config::{Key, Section};
use myxtts_run::exit::Exit;
use myxtts_run::memory_size::memory_size;
use myxtts_run::output_path::OutputPath;
use myxtts_run::plan::StageKind;
use myxtts_train::corpus::{Assembled, assemble};
use myxtts_train::stage_context::StageContext;
use myxtts_train::tune::facts::Facts;
use myxtts_train::tune::sweep::Row;
use myxtts_train::tune::sweeper::{ChosenSetting, PlannedBatch, SweepReport, Sweeper};

use crate::arguments::stage;
use crate::failure::UsageError;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::{leave_at_once, stop_requested};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, in any supported layout; the built-in demo corpus if none is given
    corpus: Vec<PathBuf>,
    /// Stage to measure; only the batch size of the stage gpt can be tuned
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: StageKind,
    /// Amount of measurement: 64 x N clips per candidate on a GPU; on a CPU 2 x N rounds over all candidates, for at most a
    /// minute
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    steps: u64,
    /// Device to run on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Measure every combination of batch size, threads and buffers, to verify the choice
    #[arg(long)]
    exhaustive: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Write the chosen settings to a file for `--config`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(path) = args.write.as_ref().filter(|path| path.exists()) {
        // Now, and not after two minutes of measuring.
        return Err(UsageError(format!("{} exists already: name another file", path.display())).into());
    }
    let file = args.write.as_deref().map(|path| OutputPath::check("--write", path)).transpose()?;
    let (plan, machine) = args.settings.clone().for_training(&args.corpus, &args.device)?;
    let progress = Terminal::new();
    let Assembled { corpus, home, .. } = assemble::open(&plan, &stop_requested()?, &progress)?;
    leave_at_once()?;
    let facts = Facts::of(&[machine])?;
    let model = StageContext::of(&plan, &corpus, machine, &home, &progress).untrained(args.stage)?;
    let mut sweeper = Sweeper {
        plan,
        corpus: &corpus,
        machine,
        home: &home,
        facts,
        stage: args.stage,
        steps: args.steps,
        model,
        progress: &progress,
    };
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

/// The chosen settings as a file for `--config`.
fn yaml(report: &SweepReport) -> String {
    let mut text = format!(
        "# Measured by `myxtts tune`: {} on {}, preset {}, {} clips. {}.\n",
        report.stage, report.device, report.preset, report.clips, report.rule
    );
    if !report.left_alone.is_empty() {
        text.push_str(&format!("# Set by you, and not tuned: {}.\n", report.left_alone.join(", ")));
    }
    for section in Section::ALL {
        let own =
            |setting: &&ChosenSetting| Key::find(setting.setting).is_some_and(|key| key.section() == section);
        let mut settings = report.settings.iter().filter(own).peekable();
        if settings.peek().is_some() {
            text.push_str(&format!("{}:\n", section.name()));
        }
        for ChosenSetting { setting, value, reason } in settings {
            let name = setting.rsplit('.').next().unwrap_or(setting);
            text.push_str(&format!("  # {reason}\n  {name}: {value}\n"));
        }
    }
    text
}

fn text(report: &SweepReport, written: Option<&Path>) -> String {
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
            memory_size(figures.planned_bytes),
            share(figures.wait_share),
            figures.busy.map_or_else(|| "-".to_owned(), share),
        ));
    }
    for PlannedBatch { batch_size, bytes } in &report.too_large {
        text.push_str(&format!(
            "{batch_size:>6} does not fit: it is planned to take {}\n",
            memory_size(*bytes)
        ));
    }
    text.push_str(&format!("chosen: {}\n", report.rule));
    for ChosenSetting { setting, value, reason } in &report.settings {
        text.push_str(&format!("  {setting} = {value}  ({reason})\n"));
    }
    if !report.left_alone.is_empty() {
        text.push_str(&format!("set by you, and not tuned: {}\n", report.left_alone.join(", ")));
    }
    match written {
        Some(path) => text.push_str(&format!("next:   myxtts train CORPUS --config {}\n", path.display())),
        None => {
            text.push_str("next:   run this with --write FILE, then `myxtts train CORPUS --config FILE`\n")
        }
    }
    text
}

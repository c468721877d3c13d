//! `myxtts bench`: times the steps of a stage with different ways of loading data.

use std::path::PathBuf;

use myxtts_run::exit::Exit;
use myxtts_run::plan::StageKind;
use myxtts_train::bench::Figures;
use myxtts_train::bench::chart::{Bar, chart};
use myxtts_train::bench::variants::{BenchRequest, Operation, Row, Variant, variants};
use myxtts_train::corpus::RecordMode;
use serde::Serialize;

use crate::arguments::stage;
use crate::inputs::check_with_corpora;
use crate::output::print;
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::{leave_at_once, stop_requested};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, in any supported layout; the built-in demo corpus if none is given
    corpus: Vec<PathBuf>,
    /// Stage whose steps are timed
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: StageKind,
    /// Number of timed steps, at least 2
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..))]
    steps: u64,
    /// Minimum number of warm-up steps
    #[arg(long, default_value_t = 30)]
    warm: u64,
    /// Device to run on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Measure only the variants whose names contain this text
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Also print the time of each operation of a step, for the last batch shape
    #[arg(long)]
    profile: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also draw clips per second and GPU use of every variant as a bar chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Serialize)]
struct Report {
    device: String,
    stage: &'static str,
    preset: String,
    clips: usize,
    described: Vec<String>,
    rows: Vec<Row>,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let (plan, machine) = args.settings.clone().for_training(&args.corpus, &args.device)?;
    let svg = args.svg.as_deref().map(|path| check_with_corpora("--svg", path, &plan.data)).transpose()?;
    let progress = Terminal::new();
    let wanted = |variant: &Variant| {
        variant.suits(args.stage)
            && args.only.as_ref().is_none_or(|only| variant.name.contains(only.as_str()))
    };
    let all = variants(plan.data.num_workers, RecordMode::from_plan(&plan.data));
    let variants: Vec<Variant> = all.into_iter().filter(wanted).collect();
    let request = BenchRequest {
        plan: &plan,
        machine,
        stage: args.stage,
        steps: args.steps,
        warm: args.warm,
        operations: args.profile,
        progress: &progress,
    };
    let mut bench = request.open(&variants, &stop_requested()?)?;
    leave_at_once()?;
    let mut report = Report {
        device: machine.device.to_string(),
        stage: myxtts_train::stages::name(args.stage),
        preset: format!("{:?}", plan.model.preset).to_lowercase(),
        clips: bench.clips(),
        described: Vec::new(),
        rows: Vec::new(),
    };
    for variant in &variants {
        let row = bench.measure(variant)?;
        report.described.clone_from(&row.stage_description);
        if !args.json {
            if report.rows.is_empty() {
                print(&head(&report))?;
            }
            print(&line(variant, &row.figures))?;
            if args.profile && !row.figures.raw.is_empty() {
                print(&operation_table(&row.operations))?;
            }
        }
        report.rows.push(row);
    }
    if let Some(svg) = svg {
        svg.write(bar_chart(&report).as_bytes())?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    Ok(Exit::Done)
}

/// The report as a bar chart.
fn bar_chart(report: &Report) -> String {
    let bars: Vec<Bar<'_>> = report
        .rows
        .iter()
        .map(|Row { variant, figures, .. }| Bar {
            name: variant,
            samples_per_second: figures.samples_per_second,
            busy: figures.busy,
        })
        .collect();
    chart(&format!("{} on {}: {}", report.stage, report.device, report.preset), &bars)
}

/// The longest operations as a table.
fn operation_table(operations: &[Operation]) -> String {
    let all: f64 = operations.iter().map(|one| one.ms).sum();
    let mut text = format!("sum of all operations, run one at a time: {all:.2} ms\n");
    for Operation { op, scope, shape, count, ms } in operations.iter().take(30) {
        text.push_str(&format!("  {ms:>9.3} ms {count:>4} x {op:<22} {shape:<22} {scope}\n"));
    }
    text
}

fn head(report: &Report) -> String {
    format!(
        "{} on {}: {}\n{}\n{:<18} {:>9} {:>7} {:>9} {:>9} {:>7} {:>8} {:>7} {:>9} {:>7}\n",
        report.stage,
        report.device,
        report.preset,
        report.described.join("\n"),
        "variant",
        "clips/s",
        "busy",
        "batch ms",
        "p99 ms",
        "varies",
        "at equal",
        "waits",
        "p99 ms",
        "cores"
    )
}

fn line(variant: &Variant, figures: &Figures) -> String {
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let note = figures.no_busy.as_ref().map(|why| format!("\n  no busy share: {why}")).unwrap_or_default();
    let [rows, text, audio] = figures.mean_shape;
    format!(
        "{:<18} {:>9.1} {:>7} {:>9.2} {:>9.2} {:>7} {:>8} {:>7} {:>9.3} {:>7.2}  {}; {rows:.0} x ({text:.0} + {audio:.0}) positions{note}\n",
        variant.name,
        figures.samples_per_second,
        figures.busy.map_or_else(|| "-".to_owned(), share),
        figures.step_ms,
        figures.step_p99_ms,
        share(figures.variation),
        share(figures.variation_at_equal_shape),
        share(figures.wait_share),
        figures.wait_p99_ms,
        figures.cores,
        variant.description
    )
}

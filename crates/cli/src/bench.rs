//! `myxtts bench`: how fast a stage trains on this machine, and what it waits for.

use std::path::PathBuf;

use myxtts_run::exit::Exit;
use myxtts_run::plan::Stage;
use myxtts_tensor::Mode;
use myxtts_tensor::engine::Upload;
use myxtts_train::Machine;
use myxtts_train::bench::{Amount, Figures, measure};
use myxtts_train::feed::{Depth, Feeding};
use myxtts_train::pipeline::Ground;
use myxtts_train::session::AHEAD;
use serde::Serialize;

use crate::corpus;
use crate::output::print;
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::train::{device, open_corpus, prefer_demo, read, stage};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder or metadata file; the built-in demo corpus where none is named
    corpus: Option<PathBuf>,
    /// The stage to run
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: Stage,
    /// Steps that are timed
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// Steps before them, at least
    #[arg(long, default_value_t = 30)]
    warm: u64,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Only the ways of feeding whose names contain this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

/// One way of feeding a step.
struct Way {
    name: String,
    what: &'static str,
    feeding: Feeding,
    mode: Mode,
    ahead: usize,
}

#[derive(Serialize)]
struct Row {
    way: String,
    #[serde(flatten)]
    figures: Figures,
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

fn ways(workers: usize) -> Vec<Way> {
    let feeding = |upload, depth: Option<usize>| Feeding {
        workers,
        upload,
        depth: depth.map(Depth::of),
        planted: None,
    };
    let way =
        |name: &str, what, feeding, mode, ahead| Way { name: name.to_owned(), what, feeding, mode, ahead };
    let mut ways = vec![
        way(
            "blocking",
            "each batch made when its step is due, nothing beside it",
            feeding(Upload::InTurn, None),
            Mode::Captured,
            0,
        ),
        way(
            "prefetch",
            "batches made ahead, copied when their step is due, one step at a time",
            feeding(Upload::InTurn, Some(12)),
            Mode::Captured,
            0,
        ),
        way(
            "kernel by kernel",
            "as buffered, with steps that are not recorded",
            feeding(Upload::Ahead, Some(12)),
            Mode::Eager,
            AHEAD,
        ),
    ];
    for slots in [12, 50, 100] {
        ways.push(Way {
            name: format!("buffered {slots}"),
            what: "batches made and copied ahead, steps queued ahead: how training runs",
            feeding: feeding(Upload::Ahead, Some(slots)),
            mode: Mode::Captured,
            ahead: AHEAD,
        });
    }
    ways
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let machine = Machine::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_path("CORPUS", "data.train_data", args.corpus.as_deref())?;
    prefer_demo(&mut settings, machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let corpus = open_corpus(&plan, None, &progress)?;
    let home = corpus::cache_of(&read(&plan, &progress)?, &plan.data);
    let mut ground = Ground::of(&plan, &corpus, machine, &home, &progress);
    let mut model = ground.untrained(args.stage)?;
    let recipe = plan.recipe(args.stage, false);
    let mut report = Report {
        device: machine.device.to_string(),
        stage: myxtts_train::stages::name(args.stage),
        preset: format!("{:?}", plan.model.preset).to_lowercase(),
        clips: corpus.train.len(),
        described: Vec::new(),
        rows: Vec::new(),
    };
    for way in ways(plan.data.num_workers) {
        if args.only.as_ref().is_some_and(|only| !way.name.contains(only.as_str())) {
            continue;
        }
        (ground.feeding, ground.mode) = (way.feeding, way.mode);
        let mut stage = ground.stage(args.stage, &recipe, &mut model)?;
        report.described = stage.described();
        let watched = (args.steps / 3).clamp(10, 40);
        let amount = Amount { steps: args.steps, warm: args.warm, ahead: way.ahead, watched };
        let figures = measure(&mut *stage, &recipe, plan.training.seed, amount)?;
        if !args.json {
            if report.rows.is_empty() {
                print(&head(&report))?;
            }
            print(&line(&way, &figures))?;
        }
        report.rows.push(Row { way: way.name, figures });
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    Ok(Exit::Done)
}

fn head(report: &Report) -> String {
    format!(
        "{} on {}: {}\n{}\n{:<18} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7}\n",
        report.stage,
        report.device,
        report.preset,
        report.described.join("\n"),
        "way",
        "clips/s",
        "step ms",
        "p99 ms",
        "varies",
        "waits",
        "busy",
        "cores"
    )
}

fn line(way: &Way, figures: &Figures) -> String {
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let note = figures.no_busy.as_ref().map(|why| format!("\n  no busy share: {why}")).unwrap_or_default();
    let [rows, text, sound] = figures.mean_shape;
    format!(
        "{:<18} {:>9.1} {:>9.2} {:>9.2} {:>7} {:>7} {:>7} {:>7.2}  {}; {rows:.0} x ({text:.0} + {sound:.0}) places{note}\n",
        way.name,
        figures.samples_per_second,
        figures.step_ms,
        figures.step_p99_ms,
        share(figures.variation_at_equal_shape),
        share(figures.wait_share),
        figures.busy.map_or_else(|| "-".to_owned(), share),
        figures.cores,
        way.what
    )
}

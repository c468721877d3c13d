//! `myxtts bench`: how fast a stage trains on this machine, and what it waits for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use myxtts_run::destination::Destination;
use myxtts_run::durable;
use myxtts_run::durable::fault::disk_of_environment;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Stage;
use myxtts_tensor::engine::{OpTime, Upload};
use myxtts_tensor::{Control, Device, Mode};
use myxtts_train::Machine;
use myxtts_train::bench::chart::{Bar, chart};
use myxtts_train::bench::{Amount, Figures, measure};
use myxtts_train::feed::{Depth, Feeding};
use myxtts_train::pipeline::{Corpus, Ground};
use myxtts_train::session::AHEAD;
use myxtts_train::stages::gpt::Conditioning;
use serde::Serialize;

use crate::output::print;
use crate::place::DataGpu;
use crate::progress::Terminal;
use crate::records::Records;
use crate::settings::Settings;
use crate::signal::leave_at_once;
use crate::train::{corpus_of, device, prefer_demo, read, stage};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
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
    /// Also the time of a step by operation, for the last shape that was measured
    #[arg(long)]
    profile: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also draw clips per second and the busy share of every way as bars
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// One way of feeding a step.
#[derive(Clone)]
struct Way {
    name: String,
    what: &'static str,
    /// Where its records come from.
    records: Records,
    feeding: Feeding,
    heard: Heard,
    mode: Mode,
    /// Steps that may be queued before the first is waited for.
    ahead: usize,
}

/// Where the conditioning of a GPT's batches, or the mels of a DVAE's, come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// They bring it.
    Batch,
    /// It lies on the device.
    Device,
    /// A device computes it of sound: another one where there is one.
    DataGpu,
}

#[derive(Serialize)]
struct Row {
    way: String,
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<Operation>,
}

/// What operations of one kind, part of the model and shape take of a step.
#[derive(Serialize)]
struct Operation {
    op: &'static str,
    scope: String,
    shape: String,
    count: usize,
    ms: f64,
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

/// Every way that is measured, from what training was to what it is. `records` is where those of training come from.
fn ways(workers: usize, records: Records) -> Vec<Way> {
    let feeding = |slots| Feeding {
        workers,
        upload: Upload::Ahead,
        depth: Some(Depth::of(slots)),
        under_way: 0,
        ..Feeding::default()
    };
    let buffered = |slots| Way {
        name: format!("buffered {slots}"),
        what: "batches made and copied ahead, steps queued ahead: how training runs where conditioning does not fit the GPU",
        records,
        feeding: feeding(slots),
        heard: Heard::Batch,
        mode: Mode::Captured,
        ahead: AHEAD,
    };
    let computed = Records::Computed { memory_bytes: 0 };
    vec![
        Way {
            name: "per sample".into(),
            what: "every clip decoded and computed when its step is due, on one thread, nothing beside it",
            records: computed,
            feeding: Feeding { workers: 1, upload: Upload::InTurn, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Way {
            name: "blocking".into(),
            what: "each batch made when its step is due, nothing beside it",
            feeding: Feeding { upload: Upload::InTurn, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Way {
            name: "prefetch".into(),
            what: "batches made ahead, copied when their step is due, one step at a time",
            feeding: Feeding { upload: Upload::InTurn, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Way {
            name: "kernel by kernel".into(),
            what: "as buffered, with steps that are not recorded",
            mode: Mode::Eager,
            ..buffered(12)
        },
        Way {
            name: "no cache".into(),
            what: "as buffered, with every clip decoded and computed whenever a batch needs it",
            records: computed,
            ..buffered(12)
        },
        buffered(12),
        buffered(50),
        buffered(100),
        Way {
            name: "resident".into(),
            what: "as buffered, conditioning lies on the GPU and batches bring numbers: how training runs",
            heard: Heard::Device,
            ..buffered(12)
        },
        Way {
            name: "data GPU".into(),
            what: "clips decoded for every batch, conditioning or mels computed of them on a GPU for that, 50 batches waiting",
            heard: Heard::DataGpu,
            feeding: Feeding { depth: Some(Depth { least: 50, ..Depth::of(50) }), ..feeding(50) },
            ..buffered(50)
        },
    ]
}

/// The GPU that prepares batches for one that trains: the next one, or the same on a stream of its own.
fn data_gpu(machine: Machine) -> DataGpu {
    let device = match machine.device {
        Device::Cuda(own) if Machine::choose(Some(Device::Cuda(own + 1))).is_ok() => Device::Cuda(own + 1),
        device => device,
    };
    DataGpu { device, buffer_size: 50, model_start_delay: Duration::ZERO }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let svg = args.svg.as_deref().map(|path| Destination::of("--svg", path)).transpose()?;
    let machine = Machine::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    prefer_demo(&mut settings, machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let records = Records::of(&plan.data);
    let has = |way: &Way| match way.heard {
        Heard::Batch => true,
        Heard::Device => args.stage == Stage::Gpt,
        // The decoder's batches have nothing that a device would make of sound.
        Heard::DataGpu => args.stage != Stage::Decoder,
    };
    let wanted =
        |way: &Way| has(way) && args.only.as_ref().is_none_or(|only| way.name.contains(only.as_str()));
    let ways: Vec<Way> = ways(plan.data.num_workers, records).into_iter().filter(wanted).collect();
    let home = read(&plan, &progress)?.home(&plan.data);
    durable::create_folder(&*disk_of_environment(), &home)?;
    // Each source once, before anything is made of it.
    let mut corpora: Vec<((Records, bool), Corpus)> = Vec::new();
    let of = |way: &Way| (way.records, way.heard == Heard::DataGpu);
    for way in &ways {
        if !corpora.iter().any(|(key, _)| *key == of(way)) {
            let (records, apart) = of(way);
            let gpu = apart.then(|| data_gpu(machine));
            corpora.push((of(way), corpus_of(&plan, None, (records, None), gpu, &progress)?.0));
        }
    }
    leave_at_once()?;
    let recipe = plan.recipe(args.stage, false);
    let mut report = Report {
        device: machine.device.to_string(),
        stage: myxtts_train::stages::name(args.stage),
        preset: format!("{:?}", plan.model.preset).to_lowercase(),
        clips: corpora.first().map_or(0, |(_, corpus)| corpus.train.len()),
        described: Vec::new(),
        rows: Vec::new(),
    };
    let mut model = None;
    for way in ways {
        let Some((_, corpus)) = corpora.iter().find(|(key, _)| *key == of(&way)) else { continue };
        let mut ground = Ground::of(&plan, corpus, machine, &home, &progress);
        (ground.feeding, ground.mode) = (way.feeding, way.mode);
        match way.heard {
            Heard::Batch => ground.conditioning = Conditioning::Fed,
            Heard::Device => ground.conditioning = Conditioning::Resident { at_most: 1.0 },
            Heard::DataGpu => {}
        }
        if way.records.are_computed() {
            // Codes belong to their records by name: each would undo what the other has kept.
            ground.codes = home.join(COMPUTED_CODES);
        }
        let model = match &mut model {
            Some(model) => model,
            None => model.insert(ground.untrained(args.stage)?),
        };
        let mut stage = ground.stage(args.stage, &recipe, model)?;
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
        let mut operations = Vec::new();
        if args.profile
            && let Some(&(rows, text, sound, ..)) = figures.raw.last()
        {
            operations = by_operation(&stage.profile([rows, text, sound], &Control::default())?);
            if !args.json {
                print(&written(&operations))?;
            }
        }
        report.rows.push(Row { way: way.name, figures, operations });
    }
    if let Some(svg) = svg {
        svg.write(drawn(&report).as_bytes())?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    Ok(Exit::Done)
}

/// Codes of records that are computed, beside those of the cache.
const COMPUTED_CODES: &str = "codes-computed.bin";

/// The report as bars.
fn drawn(report: &Report) -> String {
    let bars: Vec<Bar<'_>> = report
        .rows
        .iter()
        .map(|Row { way, figures, .. }| Bar {
            name: way,
            samples_per_second: figures.samples_per_second,
            busy: figures.busy,
        })
        .collect();
    chart(&format!("{} on {}: {}", report.stage, report.device, report.preset), &bars)
}

/// The operations of a step, those of one kind, scope and shape together, the longest first.
fn by_operation(times: &[OpTime]) -> Vec<Operation> {
    let mut all: BTreeMap<(&'static str, &str, &str), (usize, Duration)> = BTreeMap::new();
    for OpTime { op, scope, shape, time } in times {
        let (count, sum) = all.entry((op, scope, shape)).or_default();
        *count += 1;
        *sum += *time;
    }
    let mut rows: Vec<Operation> = all
        .into_iter()
        .map(|((op, scope, shape), (count, time))| {
            let (scope, shape) = (scope.to_owned(), shape.to_owned());
            Operation { op, scope, shape, count, ms: time.as_secs_f64() * 1e3 }
        })
        .collect();
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows
}

/// The longest of them as a table.
fn written(operations: &[Operation]) -> String {
    let all: f64 = operations.iter().map(|one| one.ms).sum();
    let mut text = format!("one operation at a time: {all:.2} ms\n");
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
        "way",
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

fn line(way: &Way, figures: &Figures) -> String {
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let note = figures.no_busy.as_ref().map(|why| format!("\n  no busy share: {why}")).unwrap_or_default();
    let [rows, text, sound] = figures.mean_shape;
    format!(
        "{:<18} {:>9.1} {:>7} {:>9.2} {:>9.2} {:>7} {:>8} {:>7} {:>9.3} {:>7.2}  {}; {rows:.0} x ({text:.0} + {sound:.0}) places{note}\n",
        way.name,
        figures.samples_per_second,
        figures.busy.map_or_else(|| "-".to_owned(), share),
        figures.step_ms,
        figures.step_p99_ms,
        share(figures.variation),
        share(figures.variation_at_equal_shape),
        share(figures.wait_share),
        figures.wait_p99_ms,
        figures.cores,
        way.what
    )
}

//! `myxtts bench`: times the steps of a stage with different ways of loading data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use myxtts_run::durable;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::exit::Exit;
use myxtts_run::output_path::OutputPath;
use myxtts_run::plan::StageKind;
use myxtts_tensor::engine::{OpTime, Upload};
use myxtts_tensor::{Control, Device, Mode};
use myxtts_train::ComputeDevice;
use myxtts_train::bench::chart::{Bar, chart};
use myxtts_train::bench::{BenchSettings, Figures, measure};
use myxtts_train::corpus::{Assembly, CorpusSet, RecordMode};
use myxtts_train::feed::{Depth, FeedSettings};
use myxtts_train::session::AHEAD;
use myxtts_train::stage_context::StageContext;
use myxtts_train::stages::gpt::Conditioning;
use myxtts_train::training_data::{Corpus, DataGpu};
use serde::Serialize;

use crate::arguments::{device, stage};
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
    /// Number of timed steps
    #[arg(long, default_value_t = 100)]
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

/// One way of loading data that is measured.
#[derive(Clone)]
struct Variant {
    name: String,
    description: &'static str,
    /// Where its records come from.
    records: RecordMode,
    feeding: FeedSettings,
    conditioning: ConditioningSource,
    mode: Mode,
    /// Number of steps that may be queued before the loop waits for the first.
    ahead: usize,
}

/// Where the conditioning of GPT batches, or the mels of DVAE batches, come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConditioningSource {
    /// Each batch carries them.
    Batch,
    /// They are resident on the device.
    Device,
    /// A GPU computes them from waveforms: a second one if there is one.
    DataGpu,
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "way")]
    variant: String,
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<Operation>,
}

/// Time of all operations of one kind, scope and shape in a step.
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

/// All variants, from loading everything on demand to the pipeline that training uses. `records` is where training reads its records
/// from.
fn variants(workers: usize, records: RecordMode) -> Vec<Variant> {
    let feeding = |slots| FeedSettings {
        workers,
        upload: Upload::Ahead,
        depth: Some(Depth::of(slots)),
        under_way: 0,
        ..FeedSettings::default()
    };
    let buffered = |slots| Variant {
        name: format!("buffered {slots}"),
        description: "batches made and copied ahead, steps queued ahead: training when the conditioning does not fit the GPU",
        records,
        feeding: feeding(slots),
        conditioning: ConditioningSource::Batch,
        mode: Mode::Captured,
        ahead: AHEAD,
    };
    let on_demand = RecordMode::OnDemand { memory_bytes: 0 };
    vec![
        Variant {
            name: "per sample".into(),
            description: "every clip decoded and computed when its step is due, on one thread, without overlap",
            records: on_demand,
            feeding: FeedSettings { workers: 1, upload: Upload::WithStep, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "blocking".into(),
            description: "each batch made when its step is due, without overlap",
            feeding: FeedSettings { upload: Upload::WithStep, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "prefetch".into(),
            description: "batches made ahead, copied when their step is due, one step at a time",
            feeding: FeedSettings { upload: Upload::WithStep, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "kernel by kernel".into(),
            description: "as buffered, with steps that are not captured as CUDA graphs",
            mode: Mode::Eager,
            ..buffered(12)
        },
        Variant {
            name: "no cache".into(),
            description: "as buffered, with every clip decoded and computed for each batch",
            records: on_demand,
            ..buffered(12)
        },
        buffered(12),
        buffered(50),
        buffered(100),
        Variant {
            name: "resident".into(),
            description: "as buffered, conditioning resident on the GPU and batches carry only row indices: training by default",
            conditioning: ConditioningSource::Device,
            ..buffered(12)
        },
        Variant {
            name: "data GPU".into(),
            description: "clips decoded for every batch, conditioning or mels computed from them on a separate GPU, 50 batches buffered",
            conditioning: ConditioningSource::DataGpu,
            feeding: FeedSettings { depth: Some(Depth { min: 50, ..Depth::of(50) }), ..feeding(50) },
            ..buffered(50)
        },
    ]
}

/// The GPU that prepares batches: the next one after `machine`, or the same one on a separate stream.
fn data_gpu(machine: ComputeDevice) -> DataGpu {
    let device = match machine.device {
        Device::Cuda(own) if ComputeDevice::choose(Some(Device::Cuda(own + 1))).is_ok() => {
            Device::Cuda(own + 1)
        }
        device => device,
    };
    DataGpu { device, buffer_size: 50, model_start_delay: Duration::ZERO }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let svg = args.svg.as_deref().map(|path| OutputPath::check("--svg", path)).transpose()?;
    let machine = ComputeDevice::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    settings.prefer_for_training(machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let records = RecordMode::from_plan(&plan.data);
    let has = |variant: &Variant| match variant.conditioning {
        ConditioningSource::Batch => true,
        ConditioningSource::Device => args.stage == StageKind::Gpt,
        // Decoder batches contain nothing that a GPU would compute from waveforms.
        ConditioningSource::DataGpu => args.stage != StageKind::Decoder,
    };
    let wanted = |variant: &Variant| {
        has(variant) && args.only.as_ref().is_none_or(|only| variant.name.contains(only.as_str()))
    };
    let variants: Vec<Variant> =
        variants(plan.data.num_workers, records).into_iter().filter(wanted).collect();
    let home = CorpusSet::read(&plan.data, &progress)?.home(&plan.data);
    durable::create_folder(&*disk_from_env(), &home)?;
    let stop = stop_requested()?;
    // Open each record source once, before any stage is built.
    let mut corpora: Vec<((RecordMode, bool), Corpus)> = Vec::new();
    let of = |variant: &Variant| (variant.records, variant.conditioning == ConditioningSource::DataGpu);
    for variant in &variants {
        if !corpora.iter().any(|(key, _)| *key == of(variant)) {
            let (records, apart) = of(variant);
            let data_gpu = apart.then(|| data_gpu(machine));
            let assembly = Assembly { records: Some(records), data_gpu, ..Assembly::default() };
            corpora.push((of(variant), assembly.assemble(&plan, &stop, &progress)?.corpus));
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
    for variant in variants {
        let Some((_, corpus)) = corpora.iter().find(|(key, _)| *key == of(&variant)) else { continue };
        let mut context = StageContext::of(&plan, corpus, machine, &home, &progress);
        (context.feeding, context.mode) = (variant.feeding, variant.mode);
        match variant.conditioning {
            ConditioningSource::Batch => context.conditioning = Conditioning::Batch,
            ConditioningSource::Device => context.conditioning = Conditioning::Resident { at_most: 1.0 },
            ConditioningSource::DataGpu => {}
        }
        if variant.records.is_on_demand() {
            // The codes file names its records: cached and on-demand records would overwrite each other's.
            context.codes = home.join(ON_DEMAND_CODES);
        }
        let model = match &mut model {
            Some(model) => model,
            None => model.insert(context.untrained(args.stage)?),
        };
        let mut stage = context.stage(args.stage, &recipe, model)?;
        report.described = stage.description();
        let profiled = (args.steps / 3).clamp(10, 40);
        let amount = BenchSettings { steps: args.steps, warm: args.warm, ahead: variant.ahead, profiled };
        let figures = measure(&mut *stage, &recipe, plan.training.seed, amount)?;
        if !args.json {
            if report.rows.is_empty() {
                print(&head(&report))?;
            }
            print(&line(&variant, &figures))?;
        }
        let mut operations = Vec::new();
        if args.profile
            && let Some(&(rows, text, audio, ..)) = figures.raw.last()
        {
            operations = by_operation(&stage.profile([rows, text, audio], &Control::default())?);
            if !args.json {
                print(&operation_table(&operations))?;
            }
        }
        report.rows.push(Row { variant: variant.name, figures, operations });
    }
    if let Some(svg) = svg {
        svg.write(bar_chart(&report).as_bytes())?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    Ok(Exit::Done)
}

/// Codes of records that are computed on demand, next to those of the cache.
const ON_DEMAND_CODES: &str = "codes-computed.bin";

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

/// Sums the operations of a step by kind, scope and shape, the longest first.
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

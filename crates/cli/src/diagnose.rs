//! `myxtts diagnose`: finds the bottleneck of a stage on this machine, and the setting that removes it.

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::TypedValueParser;
use myxtts_run::exit::Exit;
use myxtts_run::plan::StageKind;
use myxtts_tensor::Device;
use myxtts_train::corpus::{Assembled, assemble};
use myxtts_train::diagnose::{
    BatchSetup, Cause, Diagnosis, Fault, FaultKind, NoMachineSampler, Trace, TraceSettings, collect,
    diagnose, html, text,
};
use myxtts_train::session::steps_ahead;
use myxtts_train::stage_context::StageContext;
use myxtts_train::stages;
use myxtts_train::stages::gpt::Conditioning;
use myxtts_train::statistics::Spread;
use serde::Serialize;
use std::collections::BTreeMap;

use crate::UsageError;
use crate::arguments::stage;
use crate::inputs::check_with_corpora;
use crate::machine_sampler::NvmlSampler;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::{leave_at_once, stop_requested};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, in any supported layout; the built-in demo corpus if none is given
    corpus: Vec<PathBuf>,
    /// Stage to examine
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: StageKind,
    /// Number of batches to trace, at least 4; more batches show rarer stalls
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(4..=100_000))]
    num_batches: u64,
    /// Device to run on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Print the whole trace as one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Also write an HTML page with a timeline and histograms
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Inject a known fault, to check that it is found
    #[arg(long, value_name = "FAULT", value_parser = plant())]
    plant: Option<FaultKind>,
    #[command(flatten)]
    settings: Settings,
}

fn plant() -> impl TypedValueParser<Value = FaultKind> {
    let names = clap::builder::PossibleValuesParser::new(FaultKind::ALL.map(FaultKind::name));
    names.map(|name| FaultKind::from_name(&name).unwrap_or(FaultKind::Healthy))
}

/// Number of batches before the trace: the buffer fills, and most batch shapes occur.
const WARM: u64 = 20;
/// Numbers of measured batches and of warm-up batches that time a healthy step before a fault is planted.
const HEALTHY: (u64, u64) = (12, 8);

#[derive(Serialize)]
struct Report<'a> {
    device: String,
    stage: &'static str,
    preset: String,
    #[serde(rename = "culprit")]
    cause: Cause,
    planted: Option<FaultKind>,
    /// Whether the planted fault was found.
    found: Option<bool>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    seconds: BTreeMap<&'static str, Spread>,
    trace: &'a Trace,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if args.plant == Some(FaultKind::ShapeChurn) && args.stage != StageKind::Gpt {
        let message = "--plant shape-churn needs --stage gpt, the only stage with batches of several lengths";
        return Err(UsageError(message.to_owned()).into());
    }
    let (plan, machine) = args.settings.clone().for_training(&args.corpus, &args.device)?;
    let page = args.html.as_deref().map(|path| check_with_corpora("--html", path, &plan.data)).transpose()?;
    let progress = Terminal::new();
    let Assembled { mut corpus, home, .. } = assemble::open(&plan, &stop_requested()?, &progress)?;
    leave_at_once()?;
    let fault = args.plant.map(Fault::new);
    if let Some(fault) = fault {
        corpus.source = fault.source(corpus.source);
    }
    let mut context = StageContext::of(&plan, &corpus, machine, &home, &progress);
    if let Some(fault) = fault {
        (context.feeding, context.lengths) = (fault.feeding(context.feeding), fault.lengths(context.lengths));
        // Resident data is never read again, so that a fault in reading would have no effect.
        context.conditioning = Conditioning::Batch;
    }
    let mut model = context.untrained(args.stage)?;
    let recipe = plan.recipe(args.stage, false);
    let mut stage = context.stage(args.stage, &recipe, &mut model)?;
    let ahead = steps_ahead(&plan, machine.device != Device::Cpu);
    let amount = TraceSettings { batches: args.num_batches, warm: WARM.min(args.num_batches), ahead };
    let setup = BatchSetup { workers: context.feeding.workers, batch_size: plan.data.batch_size };
    let seed = plan.training.seed;
    let mut sampler = NvmlSampler::start(machine.device);
    let mut hog = None;
    if let Some(fault) = fault {
        let settings = TraceSettings { batches: HEALTHY.0, warm: HEALTHY.1, ahead };
        // The fault is not armed yet, so that these steps are healthy.
        let healthy = collect(&mut *stage, &recipe, seed, settings, setup, None, &mut NoMachineSampler)?;
        fault.arm(&healthy);
        hog = fault.hog().context("--plant cpu-hog: the programs that load the CPU could not be started")?;
    }
    let trace = collect(&mut *stage, &recipe, seed, amount, setup, fault, &mut sampler)?;
    drop(hog);
    let found = diagnose(&trace);
    let named = args.plant.map(|plant| plant.cause() == found.cause());

    let (name, device) = (stages::name(args.stage), machine.device.to_string());
    let preset = format!("{:?}", plan.model.preset).to_lowercase();
    let title = format!("{name} on {device}: {preset}");
    if let Some(page) = page {
        page.write(html::page(&title, &trace, &found).as_bytes())?;
    }
    if args.json {
        print_json(&Report {
            device,
            stage: name,
            preset,
            cause: found.cause(),
            planted: args.plant,
            found: named,
            diagnosis: &found,
            seconds: text::spreads(&trace).into_iter().collect(),
            trace: &trace,
        })?;
    } else {
        let planted = args.plant.zip(named).map(|(plant, named)| {
            let (name, named) = (plant.name(), if named { "found" } else { "not found" });
            let why = plant.needs_gpu().filter(|_| machine.device == Device::Cpu);
            let why = why.map(|why| format!(": it has no effect here ({why})")).unwrap_or_default();
            format!("\nplanted      {name}: {named}{why}\n")
        });
        let planted = planted.unwrap_or_default();
        let page = args.html.map(|path| format!("\npage         {}\n", path.display())).unwrap_or_default();
        print(&format!("{title}\n{}{planted}{page}", text::text(&trace, &found)))?;
    }
    Ok(Exit::Done)
}

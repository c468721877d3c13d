//! `myxtts diagnose`: what keeps a stage from training faster on this machine, and what to set.

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::TypedValueParser;
use myxtts_run::destination::Destination;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Stage;
use myxtts_tensor::Device;
use myxtts_train::diagnose::statistics::Spread;
use myxtts_train::diagnose::{
    Amount, Culprit, Diagnosis, Fault, Nobody, Plant, Trace, collect, diagnose, html, text,
};
use myxtts_train::pipeline::Ground;
use myxtts_train::session::AHEAD;
use myxtts_train::stages::gpt::Conditioning;
use myxtts_train::{Machine, stages};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::UsageError;
use crate::beside::Looking;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::leave_at_once;
use crate::train::{device, open_corpus, prefer_demo, read, stage};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
    /// The stage to run
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: Stage,
    /// Batches that are looked at; 4 at least, and more find rarer stalls
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(4..=100_000))]
    num_batches: u64,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Every number as one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Also write a page with a timeline and histograms
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A demonstration: slow something down on purpose and see whether it is named
    #[arg(long, value_name = "FAULT", value_parser = plant())]
    plant: Option<Plant>,
    #[command(flatten)]
    settings: Settings,
}

fn plant() -> impl TypedValueParser<Value = Plant> {
    let names = clap::builder::PossibleValuesParser::new(Plant::ALL.map(Plant::name));
    names.map(|name| Plant::named(&name).unwrap_or(Plant::Healthy))
}

/// Batches before those that are looked at: the buffer fills, and most lengths are met.
const WARM: u64 = 20;
/// Batches by which a healthy step is measured before something is planted, and batches before those.
const HEALTHY: Amount = Amount { batches: 12, warm: 8, ahead: AHEAD };

#[derive(Serialize)]
struct Report<'a> {
    device: String,
    stage: &'static str,
    preset: String,
    culprit: Culprit,
    planted: Option<Plant>,
    /// Whether what was planted is what was named.
    found: Option<bool>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    seconds: BTreeMap<&'static str, Spread>,
    trace: &'a Trace,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if args.plant == Some(Plant::ShapeChurn) && args.stage != Stage::Gpt {
        let words =
            "--plant shape-churn: only the stage gpt has batches of several lengths; take --stage gpt";
        return Err(UsageError(words.to_owned()).into());
    }
    let page = args.html.as_deref().map(|path| Destination::of("--html", path)).transpose()?;
    let machine = Machine::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    prefer_demo(&mut settings, machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let mut corpus = open_corpus(&plan, None, &progress)?;
    leave_at_once()?;
    let fault = args.plant.map(Fault::new);
    if let Some(fault) = fault {
        corpus.source = fault.source(corpus.source);
    }
    let home = read(&plan, &progress)?.home(&plan.data);
    let mut ground = Ground::of(&plan, &corpus, machine, &home, &progress);
    if let Some(fault) = fault {
        (ground.feeding, ground.lengths) = (fault.feeding(ground.feeding), fault.lengths(ground.lengths));
        // What lies on the device is never read again: a fault would not be met.
        ground.conditioning = Conditioning::Fed;
    }
    let mut model = ground.untrained(args.stage)?;
    let recipe = plan.recipe(args.stage, false);
    let mut stage = ground.stage(args.stage, &recipe, &mut model)?;
    let amount = Amount { batches: args.num_batches, warm: WARM.min(args.num_batches), ahead: AHEAD };
    let (setup, seed) = ((ground.feeding.workers, plan.data.batch_size), plan.training.seed);
    let mut looking = Looking::at(machine.device);
    let mut hog = None;
    if let Some(fault) = fault {
        stage = fault.stage(stage);
        fault.arm(&collect(&mut *stage, &recipe, seed, HEALTHY, setup, &mut Nobody)?);
        hog = fault
            .hog()
            .context("--plant cpu-hog: the programs that burn the processor could not be started")?;
    }
    let trace = collect(&mut *stage, &recipe, seed, amount, setup, &mut looking)?;
    drop(hog);
    let found = diagnose(&trace);
    let named = args.plant.map(|plant| plant.culprit() == found.culprit());

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
            culprit: found.culprit(),
            planted: args.plant,
            found: named,
            diagnosis: &found,
            seconds: text::spreads(&trace).into_iter().collect(),
            trace: &trace,
        })?;
    } else {
        let planted = args.plant.zip(named).map(|(plant, named)| {
            let (name, named) = (plant.name(), if named { "named" } else { "not named" });
            let why = plant.needs_gpu().filter(|_| machine.device == Device::Cpu);
            let why = why.map(|why| format!(": it cannot be there ({why})")).unwrap_or_default();
            format!("\nplanted      {name}: {named}{why}\n")
        });
        let planted = planted.unwrap_or_default();
        let page = args.html.map(|path| format!("\npage         {}\n", path.display())).unwrap_or_default();
        print(&format!("{title}\n{}{planted}{page}", text::text(&trace, &found)))?;
    }
    Ok(Exit::Done)
}

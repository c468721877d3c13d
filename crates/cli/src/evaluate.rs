//! `myxtts evaluate`: held-out sentences spoken, and compared with their recordings.

use std::path::PathBuf;

use myxtts_model::sampling::SamplingOptions;
use myxtts_model::weights::ModelFolder;
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_train::Machine;
use myxtts_train::evaluate::held_out::{Asked, evaluate};
use myxtts_train::pipeline::MODEL_FOLDER;
use myxtts_train::voice::Voice;

use crate::corpus;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::train::{device, read};

#[derive(clap::Args)]
pub struct Args {
    /// The run whose model is tried, on what it held out
    run: String,
    /// Sentences to speak
    #[arg(long, value_name = "N", default_value_t = 20)]
    sentences: usize,
    /// Recordings that each is compared with, its own among them
    #[arg(long, value_name = "N", default_value_t = 20)]
    candidates: usize,
    /// Another model than the run's own
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Above 1 bolder, below more careful
    #[arg(long, value_name = "T", default_value_t = 0.5)]
    temperature: f32,
    /// How much less likely a code becomes once it was said; 1 for not at all
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    repetition_penalty: f32,
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    settings: Settings,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let runs = args.settings.plan()?.training.runs_dir;
    let folder = RunFolder::view(&runs, &args.run)?;
    let plan = folder.plan()?;
    let machine = Machine::choose(device(&args.device)?)?;
    let progress = Terminal::new();
    let corpus = read(&plan, &progress)?;
    let (held_out, known) = corpus::sides(&corpus, &plan);
    let model = ModelFolder::open(&args.model.unwrap_or_else(|| folder.path().join(MODEL_FOLDER)))?;
    let mut voice = Voice::open(&model, machine.device)?;
    let asked = Asked {
        sentences: args.sentences,
        candidates: args.candidates,
        seed: plan.training.seed,
        sampling: SamplingOptions {
            temperature: args.temperature,
            repetition_penalty: args.repetition_penalty,
            ..SamplingOptions::default()
        },
    };
    let found = evaluate(&mut voice, &known, &held_out, &asked, &progress)?;
    if args.json {
        print_json(&found)?;
    } else {
        print(&format!("{found}\n"))?;
    }
    Ok(Exit::Done)
}

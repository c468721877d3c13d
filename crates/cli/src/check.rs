//! `myxtts check`: reads a whole corpus, and reports every problem and a verdict.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::check::{self, CheckOptions, CorpusExaminer, Report, Summary};
use myxtts_data::dataset::Corpus;
use myxtts_data::features::Recipe;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_run::output_path::{OutputPath, OutputPathError};
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::{Progress, Silent};
use myxtts_train::corpus::features::{texts_of, with_cleaner};
use myxtts_train::corpus::read;

use crate::UsageError;
use crate::output::{errln, print};
use crate::progress::Terminal;
use crate::settings::Settings;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder or metadata file
    corpus: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Print the whole report as JSON, or write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write every problem to a file, as JSON lines
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Number of problems of each kind to print
    #[arg(long, value_name = "N", default_value_t = 5)]
    limit: usize,
    /// Print only the verdict
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut settings = args.settings;
    settings.set_path("CORPUS", "data.train_data", args.corpus.as_deref())?;
    let plan = settings.resolve()?.data;
    // The built-in demo corpus, which other commands use, would have to be written first.
    if plan.train_data.is_empty() {
        let message = "give a corpus folder; `myxtts demo-corpus demo` makes one to try";
        return Err(UsageError(message.to_owned()).into());
    }
    let options = CheckOptions {
        min_seconds: plan.min_seconds,
        max_seconds: plan.longest_seconds(),
        limited_by: plan.longest_setting(),
        max_text_tokens: plan.max_text_tokens,
        failure_budget: plan.failure_budget,
    };
    let tokenizer = match &plan.tokenizer {
        // A named file that cannot be used is a wrong argument.
        Some(file) => Some(Tokenizer::load(file).map_err(|error| UsageError(error.to_string()))?),
        None => None,
    };
    let progress: &dyn Progress = if args.quiet { &Silent } else { &Terminal::new() };
    // The summary names the layout of the corpus.
    let corpus = read::read(&plan, &Silent)?;
    let report_file =
        args.report.as_deref().map(|file| destination("--report", file, &corpus, &plan)).transpose()?;
    let json_file = match args.json.as_deref() {
        Some(file) if file != Path::new("-") => Some(destination("--json", file, &corpus, &plan)?),
        _ => None,
    };
    let plan = with_cleaner(&plan, tokenizer.as_ref(), &texts_of(&[&corpus]), progress)?;
    let examiner = CorpusExaminer::new(tokenizer.as_ref(), Recipe::from_plan(&plan).cleaner);
    let report = check::examine(&corpus, &options, &examiner, progress);

    if let Some(file) = &report_file {
        write_problems(&report, file)?;
    }
    let summary = Summary { report: &report, limit: args.limit };
    let text = if args.quiet { summary.verdict() } else { summary.to_string() };
    match (args.json, json_file) {
        (None, _) => print(&text)?,
        (Some(_), Some(file)) => {
            write(&file, json_of(&report)?.as_bytes())?;
            print(&text)?;
        }
        // Standard output carries the JSON.
        (Some(_), None) => {
            errln!("{}", text.trim_end_matches('\n'));
            print(&json_of(&report)?)?;
        }
    }
    Ok(report.exit())
}

fn json_of(report: &Report) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Checks that a report does not overwrite an input.
fn destination(
    argument: &'static str,
    file: &Path,
    corpus: &Corpus,
    plan: &DataPlan,
) -> Result<OutputPath, OutputPathError> {
    let settings = plan.train_data.iter().chain(&plan.tokenizer);
    let inputs = settings.map(|path| (path.as_path(), "read by this check"));
    let inputs = inputs.chain(corpus.files().map(|path| (path, "a file of the corpus")));
    OutputPath::check(argument, file)?.reject_inputs(argument, inputs)
}

fn write_problems(report: &Report, file: &OutputPath) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    for problem in &report.problems {
        serde_json::to_writer(&mut bytes, problem)?;
        bytes.push(b'\n');
    }
    write(file, &bytes)
}

fn write(file: &OutputPath, bytes: &[u8]) -> anyhow::Result<()> {
    file.write(bytes).with_context(|| format!("writing {}", file.path().display()))
}

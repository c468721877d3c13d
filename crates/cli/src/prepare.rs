//! `myxtts prepare`: everything training reads, computed once and kept.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::cache::{self, CacheError, PrepareOptions, PrepareReport};
use myxtts_data::dataset::Corpus;
use myxtts_data::features::Extractor;
use myxtts_data::problem::Problem;
use myxtts_run::durable::fault::disk_of_environment;
use myxtts_run::exit::Exit;
use myxtts_run::plan::DataPlan;
use serde::Serialize;

use crate::corpus;
use crate::output::{errln, print, print_json, size};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::stop_requested;

/// Problems that are printed one by one; `--json` has all of them.
const PRINTED: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder or metadata file; the built-in demo corpus where none is named
    corpus: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for machines.
#[derive(Serialize)]
struct Done<'a> {
    training: Prepared<'a>,
    validation: Option<Prepared<'a>>,
}

/// What was done for one corpus.
#[derive(Serialize)]
struct Prepared<'a> {
    corpus: &'a Path,
    cache: PathBuf,
    /// Lines of metadata that are no utterance.
    declared_wrong: &'a [Problem],
    #[serde(flatten)]
    report: PrepareReport,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut settings = args.settings;
    settings.set_path("CORPUS", "data.train_data", args.corpus.as_deref())?;
    let plan = settings.resolve()?.data;
    let progress = Terminal::new();

    let training = corpus::read(&plan, &progress)?;
    let validation = match &plan.val_data {
        Some(root) => Some(corpus::read_from(root, &plan, &progress)?),
        None => None,
    };
    let corpora: Vec<&Corpus> = std::iter::once(&training).chain(&validation).collect();
    let options = options_of(&plan)?;
    // One vocabulary for both: it is kept in the cache of the training corpus.
    let home = corpus::cache_of(&training, &plan);
    let extractor = corpus::extractor(&corpora, &home, &plan, &progress)?;
    extractor.keep_vocabulary(options.disk.as_ref()).context("keeping the vocabulary")?;

    let one = |corpus, cache| prepare_one(corpus, cache, &extractor.extractor, &options, &progress);
    let done = Done {
        training: one(&training, home.clone())?,
        validation: match &validation {
            Some(corpus) => Some(one(corpus, validation_cache(corpus, &plan))?),
            None => None,
        },
    };
    if args.json {
        print_json(&done)?;
    } else {
        for prepared in std::iter::once(&done.training).chain(&done.validation) {
            print(&summary(&prepared.cache, &prepared.report))?;
        }
    }
    Ok(Exit::Done)
}

fn prepare_one<'a>(
    corpus: &'a Corpus,
    cache: PathBuf,
    extractor: &Extractor,
    options: &PrepareOptions,
    progress: &Terminal,
) -> anyhow::Result<Prepared<'a>> {
    print_problems(&corpus.problems);
    let options = &PrepareOptions { lost: corpus.lost(), ..options.clone() };
    let report =
        cache::prepare(&cache, &corpus.utterances, extractor, options, progress).inspect_err(|error| {
            if let CacheError::OverBudget { problems, .. } = error {
                print_problems(problems);
            }
        })?;
    print_problems(&report.problems);
    Ok(Prepared { corpus: &corpus.root, cache, declared_wrong: &corpus.problems, report })
}

/// The cache of the validation corpus: its own, also where `data.cache_dir` names one for training.
fn validation_cache(corpus: &Corpus, plan: &DataPlan) -> PathBuf {
    match &plan.cache_dir {
        Some(dir) => dir.join("validation"),
        None => corpus::cache_of(corpus, plan),
    }
}

/// How a cache is written under these settings.
pub fn options_of(plan: &DataPlan) -> anyhow::Result<PrepareOptions> {
    Ok(PrepareOptions {
        workers: plan.num_workers,
        failure_budget: plan.failure_budget,
        disk: disk_of_environment(),
        stop: stop_requested()?,
        ..PrepareOptions::default()
    })
}

/// The first few of what is wrong, and how many more there are.
pub fn print_problems(problems: &[Problem]) {
    for problem in problems.iter().take(PRINTED) {
        errln!("{problem}");
    }
    if problems.len() > PRINTED {
        errln!("... and {} more; `myxtts check` lists them all", problems.len() - PRINTED);
    }
}

/// What a cache holds now, for people.
pub fn summary(dir: &Path, report: &PrepareReport) -> String {
    let PrepareReport { utterances, records, failed, computed, copied, shards, shards_kept, .. } = report;
    format!(
        "cache        {}\n\
         records      {records} of {utterances} utterances, {:.2} hours, {failed} failed\n\
         this time    {computed} computed, {copied} copied, {shards_kept} of {shards} shards kept\n\
         arrays       {}\n\
         fingerprint  {}\n",
        dir.display(),
        report.seconds / 3600.0,
        size(report.bytes),
        report.fingerprint
    )
}

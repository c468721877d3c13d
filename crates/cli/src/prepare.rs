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

use crate::corpora::Corpora;
use crate::corpus;
use crate::output::{errln, print, print_json, size};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::stop_requested;

/// Problems that are printed one by one; `--json` has all of them.
const PRINTED: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
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
    /// The other training corpora, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<Prepared<'a>>,
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
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    let plan = settings.resolve()?.data;
    let progress = Terminal::new();

    let corpora = Corpora::read(&plan, &progress, corpus::read_demo)?;
    let options = options_of(&plan)?;
    // One vocabulary for all: that of what is learnt from.
    let computing = corpora.vocabulary(&plan, (None, false), &progress)?;
    let mut caches = corpora.caches(&computing, &plan).into_iter();
    let mut one = |corpus| -> anyhow::Result<Prepared<'_>> {
        let cache = caches.next().context("every corpus has a cache")?;
        prepare_one(corpus, cache, &computing.extractor, &options, &progress)
    };
    let mut training = corpora.training.iter();
    let done = Done {
        training: one(training.next().context("a run has one corpus at least")?)?,
        more: training.map(&mut one).collect::<Result<_, _>>()?,
        validation: corpora.validation.iter().map(&mut one).next().transpose()?,
    };
    if args.json {
        print_json(&done)?;
    } else {
        for prepared in std::iter::once(&done.training).chain(&done.more).chain(&done.validation) {
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

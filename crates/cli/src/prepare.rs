//! `myxtts prepare`: everything training reads, computed once and kept; by one machine, or by several and merged.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::cache::{self, CacheError, MergeOptions, Part, PrepareOptions, PrepareReport};
use myxtts_data::dataset::Corpus;
use myxtts_data::features::Extractor;
use myxtts_data::problem::Problem;
use myxtts_run::durable::fault::disk_of_environment;
use myxtts_run::exit::Exit;
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;
use serde::Serialize;

use crate::corpora::Corpora;
use crate::corpus;
use crate::output::{errln, print, print_json, size};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::shard::part_of;
use crate::signal::stop_requested;

/// Problems that are printed one by one; `--json` has all of them.
const PRINTED: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, each of any layout; the built-in demo corpus where none is named
    corpus: Vec<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Prepare one of several equal shares on this machine, such as 3/16; `auto` takes it from Slurm's array variables
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Make one cache of the shards of all machines: checks everything, computes and copies nothing
    #[arg(long, conflicts_with = "shard")]
    merge: bool,
    /// With --merge: leave out the checksums of arrays; training checks them whenever it reads a record
    #[arg(long, requires = "merge")]
    quick: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for machines.
#[derive(Serialize)]
struct Done<'a> {
    /// Which of several shards was prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
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

/// What is made of a corpus.
#[derive(Clone, Copy)]
enum Share {
    All,
    Part(Part),
    Merged(MergeOptions),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut settings = args.settings;
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    let plan = settings.resolve()?.data;
    let progress = Terminal::new();
    let share = match &args.shard {
        Some(argument) => {
            let (part, found) = part_of(argument, |name| std::env::var(name).ok())?;
            found.iter().for_each(|found| progress.say(found));
            Share::Part(part)
        }
        None if args.merge => Share::Merged(MergeOptions { quick: args.quick }),
        None => Share::All,
    };

    let corpora = Corpora::read(&plan, &progress, corpus::read_demo)?;
    let options = options_of(&plan)?;
    // One vocabulary for all: that of what is learnt from. Of several machines one keeps it, and the others have it from there.
    let computing = corpora.vocabulary(&plan, (None, matches!(share, Share::Part(_))), &progress)?;
    let mut caches = corpora.caches(&computing, &plan).into_iter();
    let mut one = |corpus| -> anyhow::Result<Prepared<'_>> {
        let cache = caches.next().context("every corpus has a cache")?;
        prepare_one(corpus, cache, share, (&computing.extractor, &options), &progress)
    };
    let mut training = corpora.training.iter();
    let done = Done {
        shard: if let Share::Part(part) = share { Some(part.to_string()) } else { None },
        training: one(training.next().context("a run has one corpus at least")?)?,
        more: training.map(&mut one).collect::<Result<_, _>>()?,
        validation: corpora.validation.iter().map(&mut one).next().transpose()?,
    };
    if args.json {
        print_json(&done)?;
    } else {
        for prepared in std::iter::once(&done.training).chain(&done.more).chain(&done.validation) {
            print(&match share {
                Share::Part(part) => summary_of_part(&prepared.cache, part, &prepared.report),
                Share::All | Share::Merged(_) => summary(&prepared.cache, &prepared.report),
            })?;
        }
    }
    Ok(Exit::Done)
}

fn prepare_one<'a>(
    corpus: &'a Corpus,
    cache: PathBuf,
    share: Share,
    (extractor, options): (&Extractor, &PrepareOptions),
    progress: &Terminal,
) -> anyhow::Result<Prepared<'a>> {
    print_problems(&corpus.problems);
    let options = &PrepareOptions { lost: corpus.lost(), ..options.clone() };
    let utterances = &corpus.utterances;
    let report = match share {
        Share::All => cache::prepare(&cache, utterances, extractor, options, progress),
        Share::Part(part) => cache::prepare_part(&cache, part, utterances, extractor, options, progress),
        Share::Merged(how) => cache::merge(&cache, utterances, extractor, (options, how), progress),
    };
    let report = report.inspect_err(|error| {
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

/// What one of several shards holds now, for people.
fn summary_of_part(dir: &Path, part: Part, report: &PrepareReport) -> String {
    let PrepareReport { utterances, records, failed, computed, copied, shards, shards_kept, .. } = report;
    format!(
        "shard        {part}, in {}\n\
         records      {records} of {utterances} utterances, {:.2} hours, {failed} failed\n\
         this time    {computed} computed, {copied} copied, {shards_kept} of {shards} files kept\n\
         arrays       {}\n\
         next         when all shards are finished: the same command with --merge instead of --shard\n",
        dir.join(part.folder()).display(),
        report.seconds / 3600.0,
        size(report.bytes)
    )
}

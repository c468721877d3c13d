//! `myxtts prepare`: computes all features of a corpus once and stores them in a cache, on one machine or on several.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::cache::{self, CacheError, MergeOptions, Part, PrepareOptions, PrepareReport};
use myxtts_data::dataset::Corpus;
use myxtts_data::features::Extractor;
use myxtts_data::problem::Problem;
use myxtts_run::exit::Exit;
use myxtts_run::progress::Progress;
use myxtts_train::corpus::set::IfLocked;
use myxtts_train::corpus::{CorpusSet, prepare_options, read, report_problems};
use serde::Serialize;

use crate::output::{print, print_json, size};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::shard::part_of;
use crate::signal::stop_requested;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folders or metadata files, in any supported layout; the built-in demo corpus if none is given
    corpus: Vec<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Prepare only one of N equal parts, such as 3/16; `auto` reads it from Slurm's array variables
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Merge the parts of all machines into one cache: checks everything, computes and copies nothing
    #[arg(long, conflicts_with = "shard")]
    merge: bool,
    /// With --merge: skip the checksums of arrays; training checks them when it reads a record
    #[arg(long, requires = "merge")]
    quick: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The report, as `--json` prints it.
#[derive(Serialize)]
struct Done<'a> {
    /// The part that was prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    training: Prepared<'a>,
    /// Further training corpora.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<Prepared<'a>>,
    validation: Option<Prepared<'a>>,
}

/// The result for one corpus.
#[derive(Serialize)]
struct Prepared<'a> {
    corpus: &'a Path,
    cache: PathBuf,
    /// Lines of metadata that are not valid utterances.
    declared_wrong: &'a [Problem],
    #[serde(flatten)]
    report: PrepareReport,
}

/// What is done with a corpus.
#[derive(Clone, Copy)]
enum Task {
    All,
    Part(Part),
    Merged(MergeOptions),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut settings = args.settings;
    settings.set_paths("CORPUS", "data.train_data", &args.corpus)?;
    let plan = settings.resolve()?.data;
    let progress = Terminal::new();
    let task = match &args.shard {
        Some(argument) => {
            let (part, found) = part_of(argument, |name| std::env::var(name).ok())?;
            found.iter().for_each(|found| progress.say(found));
            Task::Part(part)
        }
        None if args.merge => Task::Merged(MergeOptions { quick: args.quick }),
        None => Task::All,
    };

    let corpora = CorpusSet::read_or(&plan, &progress, read::read_demo)?;
    let stop = stop_requested()?;
    let options = prepare_options(&plan, &stop);
    // One vocabulary for all corpora, that of the training corpora. Of several machines one saves it, and the others load it.
    let if_locked = if matches!(task, Task::Part(_)) { IfLocked::Wait } else { IfLocked::Fail };
    let setup = corpora.lock_vocabulary(&plan, None, if_locked, &stop, &progress)?;
    let mut caches = corpora.caches(&setup, &plan).into_iter();
    let mut one = |corpus| -> anyhow::Result<Prepared<'_>> {
        let cache = caches.next().context("every corpus has a cache")?;
        prepare_one(corpus, cache, task, (&setup.extractor, &options), &progress)
    };
    let mut training = corpora.training.iter();
    let done = Done {
        shard: if let Task::Part(part) = task { Some(part.to_string()) } else { None },
        training: one(training.next().context("a run has at least one corpus")?)?,
        more: training.map(&mut one).collect::<Result<_, _>>()?,
        validation: corpora.validation.iter().map(&mut one).next().transpose()?,
    };
    if args.json {
        print_json(&done)?;
    } else {
        for prepared in std::iter::once(&done.training).chain(&done.more).chain(&done.validation) {
            print(&match task {
                Task::Part(part) => summary_of_part(&prepared.cache, part, &prepared.report),
                Task::All | Task::Merged(_) => summary(&prepared.cache, &prepared.report),
            })?;
        }
    }
    Ok(Exit::Done)
}

fn prepare_one<'a>(
    corpus: &'a Corpus,
    cache: PathBuf,
    task: Task,
    (extractor, options): (&Extractor, &PrepareOptions),
    progress: &Terminal,
) -> anyhow::Result<Prepared<'a>> {
    report_problems(&corpus.problems, progress);
    let options = &PrepareOptions { rejected: corpus.rejected(), ..options.clone() };
    let utterances = &corpus.utterances;
    let report = match task {
        Task::All => cache::prepare(&cache, utterances, extractor, options, progress),
        Task::Part(part) => cache::prepare_part(&cache, part, utterances, extractor, options, progress),
        Task::Merged(how) => cache::merge(&cache, utterances, extractor, (options, how), progress),
    };
    let report = report.inspect_err(|error| {
        if let CacheError::OverBudget { problems, .. } = error {
            report_problems(problems, progress);
        }
    })?;
    report_problems(&report.problems, progress);
    Ok(Prepared { corpus: &corpus.root, cache, declared_wrong: &corpus.problems, report })
}

/// The content of a cache, as text.
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

/// The content of one part, as text.
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

//! `myxtts prepare`: everything training reads, computed once and kept.

mod interim;

use std::path::{Path, PathBuf};

use myxtts_data::cache::names::INDEX_FILE;
use myxtts_data::cache::{self, CacheError, Featurizer, PrepareOptions, PrepareReport};
use myxtts_data::problem::Problem;
use myxtts_data::utterance::Utterance;
use myxtts_run::durable::fault::disk_of_environment;
use myxtts_run::exit::Exit;
use myxtts_run::progress::Progress;

use crate::progress::Terminal;

/// Where a cache is kept, inside the corpus, unless the user says otherwise.
const CACHE_FOLDER: &str = ".myxtts-cache";

/// Problems that are printed one by one; `--json` has all of them.
const PRINTED: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub place: Place,
    /// Share of utterances that may be unusable; past it the exit code is 65
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub failure_budget: f64,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// What every command on a cache needs to know.
#[derive(clap::Args)]
pub struct Place {
    /// Corpus folder
    pub corpus: PathBuf,
    /// Folder of the cache [default: .myxtts-cache in the corpus]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub num_workers: Option<usize>,
}

impl Place {
    /// The folder of the cache.
    pub fn cache(&self) -> PathBuf {
        self.cache_dir.clone().unwrap_or_else(|| cache_of(&self.corpus))
    }

    /// How to write it.
    pub fn options(&self) -> PrepareOptions {
        let mut options = PrepareOptions { disk: disk_of_environment(), ..PrepareOptions::default() };
        options.workers = self.num_workers.unwrap_or(options.workers).max(1);
        options
    }
}

/// The cache of a corpus, or the folder itself where it is a cache.
pub fn cache_of(folder: &Path) -> PathBuf {
    if folder.join(INDEX_FILE).is_file() { folder.to_owned() } else { folder.join(CACHE_FOLDER) }
}

/// The corpus. SEAM: the interim reader knows LJSpeech only; `dataset::read` takes its place.
pub fn corpus(folder: &Path) -> anyhow::Result<Vec<Utterance>> {
    interim::corpus(folder)
}

/// What makes arrays of it. SEAM: the interim one stores bytes and samples as they are; audio, mel and
/// tokenizer take its place.
pub fn featurizer(progress: &dyn Progress) -> Box<dyn Featurizer> {
    progress.say("INTERIM FEATURES: text bytes and raw samples, no mels; for trying the cache only");
    Box::new(interim::Raw)
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let progress = Terminal::new();
    let utterances = corpus(&args.place.corpus)?;
    let dir = args.place.cache();
    let featurizer = featurizer(&progress);
    let options = PrepareOptions { failure_budget: args.failure_budget, ..args.place.options() };
    let report = match cache::prepare(&dir, &utterances, featurizer.as_ref(), &options, &progress) {
        Ok(report) => report,
        Err(error) => return Ok(ended(error)),
    };
    print_problems(&report.problems);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", summary(&dir, &report));
    }
    Ok(Exit::Done)
}

/// Says why it ended, and with which code the program should.
pub fn ended(error: CacheError) -> Exit {
    let exit = error.exit();
    if let CacheError::OverBudget { problems, .. } = &error {
        print_problems(problems);
    }
    eprintln!("error: {:#}", anyhow::Error::new(error));
    exit
}

fn print_problems(problems: &[Problem]) {
    for problem in problems.iter().take(PRINTED) {
        eprintln!("{problem}");
    }
    if problems.len() > PRINTED {
        eprintln!("... and {} more; `myxtts check` lists them all", problems.len() - PRINTED);
    }
}

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

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

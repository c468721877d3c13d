//! Where the records of a corpus come from: a cache that is written first, or computed on demand.

use super::{CorpusError, FeatureSetup, prepare_options, report_problems};
use myxtts_data::cache::{self, CacheError, PrepareOptions, Runtime, RuntimeOptions};
use myxtts_data::dataset::Corpus;
use myxtts_data::problem::Problem;
use myxtts_data::record::{COLUMNS, Column, RecordSource};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::lock::LockError;
use myxtts_run::plan::{DataPlan, PreprocessingMode};
use myxtts_run::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where records come from. Their bytes are the same in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordMode {
    /// Computed once and stored on disk.
    Cached,
    /// As [`Cached`](Self::Cached) if the cache folder can be written, else as [`OnDemand`](Self::OnDemand).
    CachedIfWritable {
        /// As for [`OnDemand`](Self::OnDemand).
        memory_bytes: usize,
    },
    /// Computed whenever they are read.
    OnDemand {
        /// Bytes of computed arrays that stay in memory.
        memory_bytes: usize,
    },
}

/// Whether an error says that a folder may not be written to, and not that its disk is full or broken.
pub(super) fn is_unwritable(error: &CacheError) -> bool {
    let source = match error {
        CacheError::Disk(error) => &error.source,
        CacheError::Lock(LockError::Io { source, .. }) => source,
        _ => return false,
    };
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
}

impl RecordMode {
    /// The mode that the settings select.
    pub fn from_plan(plan: &DataPlan) -> RecordMode {
        let memory_bytes = usize::try_from(plan.memory_cache_mb << 20).unwrap_or(usize::MAX);
        match plan.preprocessing_mode {
            _ if !plan.native_loading => RecordMode::OnDemand { memory_bytes: 0 },
            PreprocessingMode::Precompute => RecordMode::Cached,
            PreprocessingMode::Runtime => RecordMode::OnDemand { memory_bytes },
            PreprocessingMode::Auto => RecordMode::CachedIfWritable { memory_bytes },
        }
    }

    /// Whether records are computed on demand even if a cache could be written.
    pub fn is_on_demand(self) -> bool {
        matches!(self, RecordMode::OnDemand { .. })
    }

    /// Checks that `data.cache_columns` names every array that the stages read.
    pub(crate) fn check_columns(plan: &DataPlan) -> Result<(), CorpusError> {
        let has = |column: &Column| plan.cache_columns.iter().any(|name| name == column.name);
        let missing: Vec<&str> = COLUMNS.iter().filter(|column| !has(column)).map(|c| c.name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (columns, missing) = (plan.cache_columns.join(", "), missing.join(", "));
        Err(CorpusError::MissingColumns { columns, missing })
    }

    /// Opens the records of a corpus, tokenised with its vocabulary. Reports the clips that cannot be used.
    pub fn open(
        self,
        corpus: &Corpus,
        setup: FeatureSetup,
        plan: &DataPlan,
        stop: &Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<(Arc<dyn RecordSource>, Tokenizer), CorpusError> {
        let options = prepare_options(plan, stop);
        let over_budget = |error: &CacheError| {
            if let CacheError::OverBudget { problems, .. } = error {
                report_problems(problems, progress);
            }
        };
        let report_unusable = |problems: &[Problem]| {
            report_problems(problems, progress);
            if !problems.is_empty() {
                let (failed, all) = (problems.len(), corpus.utterances.len());
                progress.say(&format!("{failed} of {all} clips cannot be used"));
            }
        };
        match self {
            RecordMode::Cached | RecordMode::CachedIfWritable { .. } => {
                let (home, extractor) = (&setup.cache, &setup.extractor);
                // Of several processes started together one writes the cache, and the others wait for it.
                let waiting = PrepareOptions { wait: true, rejected: corpus.rejected(), ..options };
                let opened = cache::open(home, &corpus.utterances, extractor, &waiting, progress);
                if let (RecordMode::CachedIfWritable { memory_bytes }, Err(error)) = (self, &opened)
                    && is_unwritable(error)
                {
                    progress.say(&format!(
                        "cannot write a cache in {}: give another folder with --cache-dir",
                        home.display()
                    ));
                    return RecordMode::OnDemand { memory_bytes }.open(corpus, setup, plan, stop, progress);
                }
                let (store, report) = opened.inspect_err(over_budget)?;
                report_unusable(&report.problems);
                Ok((Arc::new(store), setup.extractor.into_tokenizer()))
            }
            RecordMode::OnDemand { memory_bytes } => {
                let vocabulary = setup.extractor.tokenizer();
                let tokenizer = Tokenizer::from_bytes(&vocabulary.to_json(), &setup.cache)?;
                let options = RuntimeOptions {
                    memory_bytes,
                    workers: options.workers,
                    failure_budget: options.failure_budget,
                    rejected: corpus.rejected(),
                    stop: options.stop,
                };
                let extractor = Arc::new(setup.extractor);
                let runtime = Runtime::open(&corpus.utterances, extractor, &options, progress)
                    .inspect_err(over_budget)?;
                report_unusable(runtime.problems());
                progress.say(&format!(
                    "no cache: features are computed on demand; {}",
                    match runtime.keeps_all() {
                        true => format!(
                            "{} MiB of them stay in memory once computed",
                            runtime.array_bytes().div_ceil(1 << 20)
                        ),
                        false => format!(
                            "{} of {} clips are read in pieces, the others whole",
                            runtime.piecewise_records(),
                            runtime.len()
                        ),
                    }
                ));
                Ok((Arc::new(runtime), tokenizer))
            }
        }
    }
}

//! Where the records of a corpus come from: a cache that is made first, or computed whenever they are asked for.

use std::sync::Arc;

use myxtts_data::cache::{self, CacheError, PrepareOptions, Runtime, RuntimeOptions};
use myxtts_data::dataset::Corpus;
use myxtts_data::problem::Problem;
use myxtts_data::record::{COLUMNS, Column, RecordSource};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::lock::LockError;
use myxtts_run::plan::{DataPlan, PreprocessingMode};
use myxtts_run::progress::Progress;

use crate::corpus::Computing;
use crate::failure::UsageError;
use crate::prepare::{options_of, print_problems};
use crate::progress::Terminal;

/// Where records come from. They are the same, to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Computed once and kept on disk.
    Cached,
    /// The same wherever that can be written, else computed when they are asked for.
    CachedWherePossible {
        /// As below.
        memory_bytes: usize,
    },
    /// Computed when they are asked for.
    Computed {
        /// Bytes of computed arrays that are kept in memory.
        memory_bytes: usize,
    },
}

/// Whether an error says that a folder is not to be written, and not that its disk is full or broken.
pub fn is_unwritable(error: &CacheError) -> bool {
    let source = match error {
        CacheError::Disk(error) => &error.source,
        CacheError::Lock(LockError::Io { source, .. }) => source,
        _ => return false,
    };
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
}

impl Records {
    /// As a plan has it.
    pub fn of(plan: &DataPlan) -> Records {
        let memory_bytes = usize::try_from(plan.memory_cache_mb << 20).unwrap_or(usize::MAX);
        match plan.preprocessing_mode {
            _ if !plan.native_loading => Records::Computed { memory_bytes: 0 },
            PreprocessingMode::Precompute => Records::Cached,
            PreprocessingMode::Runtime => Records::Computed { memory_bytes },
            PreprocessingMode::Auto => Records::CachedWherePossible { memory_bytes },
        }
    }

    /// Whether they are computed whenever they are asked for, whatever can be written.
    pub fn are_computed(self) -> bool {
        matches!(self, Records::Computed { .. })
    }

    /// Whether the records of a plan have all that the stages read; `data.cache_columns` may say otherwise.
    pub fn check(plan: &DataPlan) -> Result<(), UsageError> {
        let has = |column: &Column| plan.cache_columns.iter().any(|name| name == column.name);
        let missing: Vec<&str> = COLUMNS.iter().filter(|column| !has(column)).map(|c| c.name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(UsageError(format!(
            "data.cache_columns = {} lacks {}, and training reads all of them: add these, or leave data.cache_columns out",
            plan.cache_columns.join(", "),
            missing.join(", ")
        )))
    }

    /// The records of a corpus, and the vocabulary they are cut by.
    pub fn open(
        self,
        corpus: &Corpus,
        computing: Computing,
        plan: &DataPlan,
        progress: &Terminal,
    ) -> anyhow::Result<(Arc<dyn RecordSource>, Tokenizer)> {
        let options = options_of(plan)?;
        let spent = |error: &CacheError| {
            if let CacheError::OverBudget { problems, .. } = error {
                print_problems(problems);
            }
        };
        let unusable = |problems: &[Problem]| {
            print_problems(problems);
            if !problems.is_empty() {
                let (failed, all) = (problems.len(), corpus.utterances.len());
                progress.say(&format!("{failed} of {all} clips cannot be used"));
            }
        };
        match self {
            Records::Cached | Records::CachedWherePossible { .. } => {
                let (home, extractor) = (&computing.cache, &computing.extractor);
                // Of several that are started together one makes the cache, and the others have it from there.
                let waiting = PrepareOptions { wait: true, lost: corpus.lost(), ..options };
                let opened = cache::open(home, &corpus.utterances, extractor, &waiting, progress);
                if let (Records::CachedWherePossible { memory_bytes }, Err(error)) = (self, &opened)
                    && is_unwritable(error)
                {
                    progress.say(&format!(
                        "no cache can be written in {}: name a folder for it with --cache-dir",
                        home.display()
                    ));
                    return Records::Computed { memory_bytes }.open(corpus, computing, plan, progress);
                }
                let (store, report) = opened.inspect_err(spent)?;
                unusable(&report.problems);
                Ok((Arc::new(store), computing.extractor.into_tokenizer()))
            }
            Records::Computed { memory_bytes } => {
                let vocabulary = computing.extractor.tokenizer();
                let tokenizer = Tokenizer::from_bytes(&vocabulary.to_json(), &computing.cache)?;
                let options = RuntimeOptions {
                    memory_bytes,
                    workers: options.workers,
                    failure_budget: options.failure_budget,
                    lost: corpus.lost(),
                    stop: options.stop,
                };
                let extractor = Arc::new(computing.extractor);
                let runtime =
                    Runtime::open(&corpus.utterances, extractor, &options, progress).inspect_err(spent)?;
                unusable(runtime.problems());
                progress.say(&format!(
                    "no cache: features are computed whenever they are asked for; {}",
                    match runtime.keeps_all() {
                        true => format!(
                            "{} MiB of them stay in memory once they are computed",
                            runtime.array_bytes().div_ceil(1 << 20)
                        ),
                        false => format!(
                            "of {} clips {} are read in pieces, the others whole",
                            runtime.len(),
                            runtime.in_pieces()
                        ),
                    }
                ));
                Ok((Arc::new(runtime), tokenizer))
            }
        }
    }
}

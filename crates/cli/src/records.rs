//! Where the records of a corpus come from: a cache that is made first, or computed whenever they are asked for.

use std::sync::Arc;

use myxtts_data::cache::{self, CacheError, PrepareOptions, Runtime, RuntimeOptions};
use myxtts_data::dataset::Corpus;
use myxtts_data::problem::Problem;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;

use crate::corpus::Computing;
use crate::prepare::{options_of, print_problems};
use crate::progress::Terminal;

/// Where records come from. They are the same, to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Computed once and kept on disk.
    Cached,
    /// Computed when they are asked for.
    Computed {
        /// Bytes kept in memory of sound that has to be decoded whole for every piece of it.
        memory_bytes: usize,
    },
}

impl Records {
    /// As a plan has it.
    pub fn of(plan: &DataPlan) -> Records {
        match plan.native_loading {
            true => Records::Cached,
            false => Records::Computed { memory_bytes: RuntimeOptions::default().memory_bytes },
        }
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
            Records::Cached => {
                let (home, extractor) = (&computing.cache, &computing.extractor);
                // Of several that are started together one makes the cache, and the others have it from there.
                let options = PrepareOptions { wait: true, ..options };
                let (store, report) = cache::open(home, &corpus.utterances, extractor, &options, progress)
                    .inspect_err(spent)?;
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
                    stop: options.stop,
                };
                let extractor = Arc::new(computing.extractor);
                let runtime =
                    Runtime::open(&corpus.utterances, extractor, &options, progress).inspect_err(spent)?;
                unusable(runtime.problems());
                progress.say(&format!(
                    "no cache: features are computed whenever they are asked for; of {} clips {} are read in pieces, \
                     the others whole",
                    runtime.len(),
                    runtime.in_pieces()
                ));
                Ok((Arc::new(runtime), tokenizer))
            }
        }
    }
}

//! From the settings of a run to the records it trains on.
//!
//! In the order of a run: [`read`] (one corpus folder and its cache folder) -> [`set`] (all corpora of a run as one) ->
//! [`features`] (the vocabulary, and the extractor that computes records with it) -> [`records`] (a cache on disk, or records
//! computed on demand) -> [`validation_set`] (the clips that are never trained on) -> [`assemble`] (all of it, as
//! [`Corpus`](crate::training_data::Corpus)).

pub mod assemble;
mod error;
pub mod features;
pub mod read;
pub mod records;
pub mod set;
pub mod validation_set;

pub use assemble::{Assembled, Assembly};
pub use error::CorpusError;
pub use features::FeatureSetup;
pub use records::RecordMode;
pub use set::CorpusSet;
pub use validation_set::{SavedSplit, ValidationSet};

use myxtts_data::cache::PrepareOptions;
use myxtts_data::problem::Problem;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Number of problems that are printed one by one; `myxtts check` and `--json` have all of them.
const PRINTED_PROBLEMS: usize = 10;

/// Options for writing a cache under these settings. `stop` ends the work early when it is set.
pub fn prepare_options(plan: &DataPlan, stop: &Arc<AtomicBool>) -> PrepareOptions {
    PrepareOptions {
        workers: plan.num_workers,
        failure_budget: plan.failure_budget,
        disk: disk_from_env(),
        stop: stop.clone(),
        ..PrepareOptions::default()
    }
}

/// Reports the first few problems, and the number of those left out.
pub fn report_problems(problems: &[Problem], progress: &dyn Progress) {
    for problem in problems.iter().take(PRINTED_PROBLEMS) {
        progress.say(&problem.to_string());
    }
    if problems.len() > PRINTED_PROBLEMS {
        let more = problems.len() - PRINTED_PROBLEMS;
        progress.say(&format!("... and {more} more; `myxtts check` lists them all"));
    }
}

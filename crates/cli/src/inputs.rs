//! The files that a command reads: none of its outputs may replace them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use myxtts_data::dataset::Corpus;
use myxtts_model::weights::Part;
use myxtts_run::output_path::{OutputPath, OutputPathError};
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Silent;
use myxtts_train::corpus::CorpusSet;

/// Files that a command reads, each with what it is.
#[derive(Default)]
pub struct Inputs {
    /// By their paths without links, so that many outputs can be compared with many inputs.
    files: HashMap<PathBuf, &'static str>,
}

impl Inputs {
    /// Adds a file. One that does not exist cannot be replaced.
    pub fn add(&mut self, path: &Path, what: &'static str) {
        if let Ok(real) = path.canonicalize() {
            self.files.entry(real).or_insert(what);
        }
    }

    /// Adds the files of a model folder.
    pub fn add_model(&mut self, model: &Path) {
        let parts = Part::ALL.into_iter().flat_map(Part::files);
        let files = ["manifest.json", "vocab.json", "config.json"].into_iter().chain(parts);
        files.for_each(|file| self.add(&model.join(file), "a file of the model"));
    }

    /// Adds the files of a corpus.
    pub fn add_corpus(&mut self, corpus: &Corpus) {
        corpus.files().for_each(|path| self.add(path, "a file of the corpus"));
    }

    /// Returns an error if an output is one of the inputs.
    pub fn reject(&self, argument: &'static str, output: &Path) -> Result<(), OutputPathError> {
        let found = output.canonicalize().ok().and_then(|real| self.files.get(&real));
        found.map_or(Ok(()), |what| {
            Err(OutputPathError::IsInput { argument, path: output.to_owned(), what: (*what).to_owned() })
        })
    }

    /// Checks a path for one output, before the work.
    pub fn check(&self, argument: &'static str, output: &Path) -> Result<OutputPath, OutputPathError> {
        self.reject(argument, output)?;
        OutputPath::check(argument, output)
    }
}

/// Checks a path for a page or picture of a command that reads the corpora of a plan. They are read for that only if something
/// would be replaced.
pub fn check_with_corpora(
    argument: &'static str,
    output: &Path,
    plan: &DataPlan,
) -> anyhow::Result<OutputPath> {
    let mut inputs = Inputs::default();
    if output.exists() && !plan.train_data.is_empty() {
        let corpora = CorpusSet::read(plan, &Silent)?;
        corpora.training.iter().chain(&corpora.validation).for_each(|corpus| inputs.add_corpus(corpus));
    }
    Ok(inputs.check(argument, output)?)
}

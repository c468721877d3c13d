//! Why the corpus of a run cannot be used.

use myxtts_data::cache::CacheError;
use myxtts_data::dataset::{DatasetError, UnknownFormat};
use myxtts_data::record::JoinError;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_demo::DemoError;
use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_text::TextError;
use std::error::Error;
use std::path::PathBuf;

/// Why the corpus of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A corpus folder or its metadata cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// `data.format` names no corpus layout.
    #[error(transparent)]
    Format(#[from] UnknownFormat),
    /// The built-in demo corpus cannot be written.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A vocabulary cannot be read, trained or extended.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// `data.cleaner` names no cleaner.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The cache cannot be written or read.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The corpora hold different arrays.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// A new vocabulary cannot be saved next to its cache.
    #[error("saving the vocabulary")]
    SaveVocabulary(#[source] CacheError),
    /// A command that reads one corpus was given several.
    #[error("this command reads one corpus at a time, and data.train_data names {count}: {names}")]
    SeveralCorpora {
        /// Number of corpora.
        count: usize,
        /// Their paths, separated by commas.
        names: String,
    },
    /// A corpus would be trained on twice, or validated on what it was trained on.
    #[error("{} is named twice among data.train_data and data.val_data: name every corpus once", path.display())]
    NamedTwice {
        /// The path that occurs twice.
        path: PathBuf,
    },
    /// The validation corpus has no clip of its own.
    #[error(
        "all {clips} clips of the validation corpus {} are also trained on: validation would measure what the model knows by heart; \
         name another corpus with data.val_data, or leave it out to hold out data.val_fraction of the clips",
        corpus.display()
    )]
    ValidatedOnTraining {
        /// The validation corpus.
        corpus: PathBuf,
        /// Number of its usable clips.
        clips: usize,
    },
    /// `data.cache_columns` leaves out arrays that the stages read.
    #[error(
        "data.cache_columns = {columns} lacks {missing}, and training reads all of them: add these, or leave data.cache_columns \
         out"
    )]
    MissingColumns {
        /// The value of the setting.
        columns: String,
        /// Names of the arrays that are missing.
        missing: String,
    },
    /// Every clip of `data.val_data` failed.
    #[error("no clip of the validation corpus {} can be used: `myxtts check {}` says why", corpus.display(), corpus.display())]
    EmptyValidation {
        /// The validation corpus.
        corpus: PathBuf,
    },
    /// The records of a cache do not match the utterances of the corpus.
    #[error("the prepared records are not those of the corpus: run `myxtts prepare` again")]
    Mismatch,
    /// The list of validation clips in a run folder cannot be parsed.
    #[error("{} is damaged: restore it from a copy, or begin a new run", path.display())]
    DamagedSplit {
        /// The file.
        path: PathBuf,
        /// Where parsing failed.
        source: serde_json::Error,
    },
    /// A file of a run folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
}

impl CorpusError {
    /// Whether the user asked to stop while the cache was being written.
    pub fn is_stopped(&self) -> bool {
        matches!(self, CorpusError::Cache(CacheError::Stopped))
    }

    /// The exit code; `None` if the [`cause`](Self::cause) decides.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            CorpusError::SeveralCorpora { .. }
            | CorpusError::NamedTwice { .. }
            | CorpusError::ValidatedOnTraining { .. }
            | CorpusError::MissingColumns { .. }
            | CorpusError::EmptyValidation { .. } => Some(Exit::Usage),
            _ => None,
        }
    }

    /// The wrapped error, for callers that map errors of other crates to exit codes.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            CorpusError::Dataset(error) => error,
            CorpusError::Format(error) => error,
            CorpusError::Demo(error) => error,
            CorpusError::Tokenizer(error) => error,
            CorpusError::Text(error) => error,
            CorpusError::Cache(error) | CorpusError::SaveVocabulary(error) => error,
            CorpusError::Join(error) => error,
            CorpusError::Disk(error) => error,
            CorpusError::DamagedSplit { source, .. } => source,
            CorpusError::Read { source, .. } => source,
            _ => return None,
        })
    }
}

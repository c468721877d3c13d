//! Why a run cannot begin, be resumed or finish.

use crate::corpus::CorpusError;
use crate::error::TrainError;
use crate::evaluate::recognizer::RecognizerError;
use crate::ranks::RankError;
use crate::strategy::StrategyError;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_model::weights::WeightsError;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_run::checkpoint::CheckpointError;
use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::folder::FolderError;
use myxtts_run::tensorboard::TensorBoardError;
use std::error::Error;
use std::path::PathBuf;

/// Why a run cannot begin, be resumed or finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Its corpus cannot be used.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A stage failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its checkpoints cannot be opened.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// Its TensorBoard files cannot be opened.
    #[error(transparent)]
    TensorBoard(#[from] TensorBoardError),
    /// The speech recogniser of the settings cannot be used.
    #[error(transparent)]
    Recognizer(#[from] RecognizerError),
    /// The model that training begins from cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Its vocabulary cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file of the run folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The event log of the run cannot be read.
    #[error("cannot read the event log of {run}")]
    ReadEvents {
        /// Name of the run.
        run: String,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The request of a run is lost, and its event log does not repeat it.
    #[error(
        "{} {why}, and the event log of the run does not repeat it: write it again, {{\"stage\":null,\"from\":null}} for all \
         stages from scratch, with \"dvae\", \"gpt\" or \"decoder\" for a single stage, and with the model folder it began from",
        path.display()
    )]
    LostRequest {
        /// The file of the request.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The corpus has changed since the first stage of the run: its stages would not fit together.
    #[error(
        "the corpus is not the one that the run {run} has trained on: it had {before} usable clips and has {now}, or some have \
         changed. Put it back, or begin a new run on it with --from {}",
        model.display()
    )]
    CorpusChanged {
        /// Name of the run.
        run: String,
        /// Usable clips when the run began.
        before: String,
        /// Usable clips now.
        now: String,
        /// The model folder of the run.
        model: PathBuf,
    },
    /// Every usable clip is in the validation set.
    #[error(
        "no clip is left to train on: {usable} can be used, and data.val_fraction = {fraction} puts {validation} of them into the \
         validation set"
    )]
    NothingToTrainOn {
        /// Number of usable clips.
        usable: usize,
        /// `data.val_fraction`.
        fraction: f64,
        /// Number of validation clips.
        validation: usize,
    },
    /// All requested stages have 0 steps.
    #[error("{settings}: nothing would be trained, and there would be no model")]
    NoSteps {
        /// The settings that are 0.
        settings: String,
    },
    /// The model has a GPT without the vocabulary of its text tokens.
    #[error(
        "{} has a GPT and no {VOCABULARY}, so that the meaning of its text tokens is unknown; import it again with --vocab",
        from.display()
    )]
    NoVocabulary {
        /// The model folder.
        from: PathBuf,
    },
    /// The model was trained with a cleaner that this version does not have.
    #[error("{} reads text with the cleaner {cleaner:?}, which this version lacks: install a newer one", from.display())]
    UnknownCleaner {
        /// The model folder.
        from: PathBuf,
        /// The cleaner.
        cleaner: String,
    },
    /// Settings that cannot change in a resumed run.
    #[error(
        "the run {run} resumes with the settings it began with, and these cannot change:\n  {}\nleave them out, or begin a new run",
        refused.join("\n  ")
    )]
    FixedSettings {
        /// Name of the run.
        run: String,
        /// Each setting with its old and new value and the reason.
        refused: Vec<String>,
    },
    /// No batch size fits the memory of the device.
    #[error(
        "no batch size fits into {} according to the memory plan: set data.batch_size, or data.max_seconds to leave out long clips",
        myxtts_run::memory_size::memory_size(*bytes)
    )]
    NoBatchFits {
        /// Memory of the device, in bytes.
        bytes: u64,
    },
    /// Settings that a run of several processes does not support.
    #[error("{0}")]
    UnsupportedWithRanks(&'static str),
    /// The briefing of rank 0 cannot be parsed.
    #[error("the {what} that rank 0 sent cannot be read")]
    Briefing {
        /// The part that cannot be parsed.
        what: &'static str,
        /// Where parsing failed.
        source: serde_json::Error,
    },
    /// The user asked to stop before the first step.
    #[error("stopped on request before the first step; `myxtts train --resume {run}` continues from there")]
    StoppedEarly {
        /// Name of the run.
        run: String,
    },
}

impl From<RankError> for RunError {
    fn from(error: RankError) -> RunError {
        RunError::Train(error.into())
    }
}

impl From<StrategyError> for RunError {
    fn from(error: StrategyError) -> RunError {
        RunError::Train(error.into())
    }
}

impl RunError {
    /// Whether the user asked to stop, and everything is saved.
    pub fn is_stopped(&self) -> bool {
        matches!(self, RunError::StoppedEarly { .. } | RunError::Train(TrainError::Stopped { .. }))
    }

    /// The exit code; `None` if the [`cause`](Self::cause) decides.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            RunError::Corpus(error) => error.exit(),
            RunError::LostRequest { .. }
            | RunError::NoSteps { .. }
            | RunError::NoVocabulary { .. }
            | RunError::UnknownCleaner { .. }
            | RunError::FixedSettings { .. }
            | RunError::NoBatchFits { .. }
            | RunError::UnsupportedWithRanks(_) => Some(Exit::Usage),
            RunError::CorpusChanged { .. } | RunError::NothingToTrainOn { .. } => Some(Exit::BadData),
            RunError::StoppedEarly { .. } => Some(Exit::Stopped),
            _ => None,
        }
    }

    /// The wrapped error, for callers that map errors of other crates to exit codes.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            RunError::Corpus(error) => error,
            RunError::Train(error) => error,
            RunError::Folder(error) => error,
            RunError::Checkpoint(error) => error,
            RunError::Disk(error) => error,
            RunError::TensorBoard(error) => error,
            RunError::Recognizer(error) => error,
            RunError::Weights(error) => error,
            RunError::Tokenizer(error) => error,
            RunError::Read { source, .. } | RunError::ReadEvents { source, .. } => source,
            RunError::Briefing { source, .. } => source,
            _ => return None,
        })
    }
}

//! Why training or speaking could not go on.

use crate::strategy::StrategyError;
use myxtts_data::batch::PlanError;
use myxtts_data::loader::LoaderError;
use myxtts_data::record::RecordError;
use myxtts_model::weights::WeightsError;
use myxtts_model::{SequenceError, shapes::ShapeError};
use myxtts_run::checkpoint::CheckpointError;
use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::folder::FolderError;
use myxtts_run::tensorboard::TensorBoardError;
use std::path::PathBuf;

/// What ended a run that should have gone on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The engine: no device, no memory, a library that is missing.
    #[error(transparent)]
    Engine(#[from] myxtts_tensor::Error),
    /// Batches cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Batches stopped coming.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A record that is needed cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Text and codes that do not fit the model.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// Weight files.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A model whose parts do not fit each other.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Checkpoints.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The folder of the run.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Writing.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// Curves.
    #[error(transparent)]
    TensorBoard(#[from] TensorBoardError),
    /// A part of the model that a stage stands on is not there.
    #[error(
        "the stage `{stage}` needs {what}, which this run has not made: run `{earlier}` first, or give a model with --from"
    )]
    Missing {
        /// The stage that was to run.
        stage: &'static str,
        /// What it lacks.
        what: &'static str,
        /// The stage that makes it.
        earlier: &'static str,
    },
    /// More of the machine's own memory than it has.
    #[error("{0}")]
    HostMemory(String),
    /// Nothing to learn from.
    #[error("{0}")]
    NoData(String),
    /// Batches do not come.
    #[error("{0}")]
    Feed(String),
    /// A checkpoint that is of something else.
    #[error("the checkpoint {name} does not fit: {why}")]
    Foreign {
        /// The checkpoint.
        name: String,
        /// Where it differs.
        why: String,
    },
    /// Too many steps came out as no numbers, or had gradients far too long.
    #[error(
        "{how_many} {} by step {step} of stage `{stage}`, and nothing of them was learnt; the last batch is in {}, its clips: {clips}{fault}. Lower training.learning_rate, or look at these clips",
        if *exploded { "had gradients far too long" } else { "were no numbers" },
        saved.display()
    )]
    BadSteps {
        /// The stage.
        stage: &'static str,
        /// The step.
        step: u64,
        /// How many steps, and whether in a row.
        how_many: Box<str>,
        /// Whether gradients were far too long, and not no numbers.
        exploded: bool,
        /// Where the batch was saved.
        saved: PathBuf,
        /// What was in it.
        clips: String,
        /// The first operation whose result is not finite when the batch is computed again, if one is found.
        fault: String,
    },
    /// Devices that cannot be used as asked.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// Replicas that are not the same any more.
    #[error(
        "replica {rank} has come apart from the first: it reports {found}, the first {expected}. Go on from the last \
         checkpoint with `--resume`; if it happens again, train on one device and tell us"
    )]
    Apart {
        /// Which.
        rank: usize,
        /// What it says of a step.
        found: String,
        /// What the first says.
        expected: String,
    },
    /// Other processes of the run.
    #[error(transparent)]
    Ranks(#[from] crate::ranks::RankError),
    /// The user asked to stop while codes or states were made that a stage stands on; whoever runs the stages says which.
    #[error("stopped on request")]
    Interrupted,
    /// The user asked to stop; everything is saved.
    #[error(
        "stopped on request at step {step} of stage `{stage}`; `myxtts train --resume {run}` goes on from there"
    )]
    Stopped {
        /// The stage.
        stage: &'static str,
        /// Steps of it that are done.
        step: u64,
        /// The run.
        run: String,
    },
}

impl TrainError {
    /// Whether batches could not be made: nothing is wrong with what was learnt before.
    pub(crate) fn is_of_batches(&self) -> bool {
        matches!(self, TrainError::Loader(_) | TrainError::Record(_) | TrainError::Feed(_))
    }

    /// The exit code that belongs to it.
    pub fn exit(&self) -> Exit {
        match self {
            TrainError::Engine(_)
            | TrainError::Missing { .. }
            | TrainError::HostMemory(_)
            | TrainError::Strategy(_) => Exit::Usage,
            TrainError::Apart { .. } => Exit::Internal,
            TrainError::Ranks(error) => error.exit(),
            TrainError::Weights(error) => error.exit(),
            TrainError::Checkpoint(_) | TrainError::Disk(_) | TrainError::TensorBoard(_) => Exit::Io,
            TrainError::Folder(error) => error.exit(),
            TrainError::Stopped { .. } | TrainError::Interrupted => Exit::Stopped,
            TrainError::Plan(_)
            | TrainError::Loader(_)
            | TrainError::Record(_)
            | TrainError::Sequence(_)
            | TrainError::Shape(_)
            | TrainError::NoData(_)
            | TrainError::Feed(_)
            | TrainError::Foreign { .. }
            | TrainError::BadSteps { .. } => Exit::BadData,
        }
    }
}

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
    /// A stage needs more device memory than `training.memory_limit` allows.
    #[error("{0}")]
    DeviceMemory(String),
    /// No clip can be used by a stage.
    #[error("{0}")]
    NoClips(String),
    /// The corpus was prepared with a vocabulary that is not the model's.
    #[error("{0}")]
    Vocabulary(String),
    /// A part of the model lacks tensors, or has them in other shapes.
    #[error("{0}")]
    UnusableModel(String),
    /// `--from` names a folder without a model.
    #[error(
        "{} is not a model folder: `myxtts import` converts a checkpoint to one, and every run has one in its folder `model`",
        from.display()
    )]
    NotAModel {
        /// The folder.
        from: PathBuf,
    },
    /// The model has a GPT without the DVAE that its codes come from.
    #[error(
        "{} has a GPT and no DVAE: a new DVAE would give its audio codes another meaning; import the model again with --dvae",
        from.display()
    )]
    NoDvae {
        /// The model folder.
        from: PathBuf,
    },
    /// The decoder stage has no planned batches to look at.
    #[error(
        "the decoder stage samples windows of clips and has no planned batches: take the stage gpt or dvae"
    )]
    NoPreview,
    /// The system refused a thread.
    #[error("the thread {name} could not be started: {source}")]
    Thread {
        /// Name of the thread.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A bug in this program.
    #[error("internal error: {0}")]
    Internal(String),
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
    Ranks(#[from] crate::rank_error::RankError),
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
            TrainError::Engine(error) => engine_exit(error),
            TrainError::Missing { .. }
            | TrainError::HostMemory(_)
            | TrainError::DeviceMemory(_)
            | TrainError::NotAModel { .. }
            | TrainError::NoDvae { .. }
            | TrainError::NoPreview
            | TrainError::Strategy(_) => Exit::Usage,
            TrainError::Apart { .. } | TrainError::Internal(_) => Exit::Internal,
            TrainError::Thread { .. } => Exit::Io,
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
            | TrainError::NoClips(_)
            | TrainError::Vocabulary(_)
            | TrainError::UnusableModel(_)
            | TrainError::Feed(_)
            | TrainError::Foreign { .. }
            | TrainError::BadSteps { .. } => Exit::BadData,
        }
    }
}

/// The exit code of an error of the engine: [`Exit::Usage`] where a device, a library or memory is missing, which other
/// settings or an installation fix, and [`Exit::Internal`] where a call failed.
pub fn engine_exit(error: &myxtts_tensor::Error) -> Exit {
    use myxtts_tensor::Error;
    use myxtts_tensor::cuda::nccl::NcclError;
    match error {
        Error::OutOfMemory { .. }
        | Error::Missing(_)
        | Error::Unsupported(_)
        | Error::Nccl(NcclError::Library(_)) => Exit::Usage,
        // Other machines may be reached later.
        Error::Nccl(NcclError::TimedOut { .. }) => Exit::Retry,
        Error::Driver { .. }
        | Error::Compile(_)
        | Error::Gemm(_)
        | Error::Collective(_)
        | Error::Nccl(NcclError::Status { .. } | NcclError::Aborted { .. }) => Exit::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_tensor::Error;
    use myxtts_tensor::collective::CollectiveError;
    use myxtts_tensor::cuda::nccl::NcclError;

    #[test]
    fn every_cause_has_its_exit_code() {
        let text = || "why".to_owned();
        let driver = Error::Driver { doing: text(), reason: text() };
        let ended = CollectiveError::Ended { rank: 1, world: 2, reason: text() };
        let refused = std::io::Error::from(std::io::ErrorKind::WouldBlock);
        let cases: Vec<(TrainError, u8)> = vec![
            (Error::Unsupported(text()).into(), 2),
            (Error::from(NcclError::Library(text())).into(), 2),
            (TrainError::DeviceMemory(text()), 2),
            (TrainError::HostMemory(text()), 2),
            (TrainError::NotAModel { from: "model".into() }, 2),
            (TrainError::NoDvae { from: "model".into() }, 2),
            (TrainError::NoPreview, 2),
            (TrainError::NoClips(text()), 65),
            (TrainError::Vocabulary(text()), 65),
            (TrainError::UnusableModel(text()), 65),
            (TrainError::Feed(text()), 65),
            (driver.into(), 70),
            (Error::from(ended).into(), 70),
            (Error::from(NcclError::Aborted { rank: 0 }).into(), 70),
            (TrainError::Internal(text()), 70),
            (TrainError::Thread { name: text(), source: refused }, 74),
            (Error::from(NcclError::TimedOut { rank: 0, world: 2, seconds: 9 }).into(), 75),
            (TrainError::Interrupted, 143),
        ];
        for (error, code) in cases {
            assert_eq!(error.exit().code(), code, "{error:?}");
        }
    }
}

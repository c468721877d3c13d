//! Errors of training, and the exit code of each.

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

/// Why training stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The tensor engine failed: no device, too little memory, or a missing library.
    #[error(transparent)]
    Engine(#[from] myxtts_tensor::Error),
    /// No batches can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The loader failed.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A required record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// More records cannot be read than `data.failure_budget` allows.
    #[error(
        "{bad} of {total} records cannot be read for the {doing}, more than the budget of {:.1} %: {problems}; run `myxtts verify --fix`",
        rate * 100.0
    )]
    BadRecords {
        /// What is computed from the records.
        doing: &'static str,
        /// Number of bad records found so far.
        bad: usize,
        /// Number of records to read.
        total: usize,
        /// Fraction that is allowed.
        rate: f64,
        /// The first few of them, with their reasons.
        problems: String,
    },
    /// A text or its codes do not fit the model.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// A weights file cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The parts of a model do not fit each other.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// TensorBoard files cannot be written.
    #[error(transparent)]
    TensorBoard(#[from] TensorBoardError),
    /// A stage needs a part of the model that does not exist yet.
    #[error(
        "the stage `{stage}` needs {what}, which this run has not trained yet: run `{earlier}` first, or give a model with --from"
    )]
    Missing {
        /// The stage that was to run.
        stage: &'static str,
        /// The missing part.
        what: &'static str,
        /// The stage that trains the missing part.
        earlier: &'static str,
    },
    /// The machine has too little RAM. The message has the amounts.
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
    /// The batches of the decoder stage cannot be shown without a trained GPT.
    #[error(
        "the batches of the stage decoder cannot be shown: they are windows of the GPT's states over its training clips, \
         which exist only while that stage runs; choose the stage gpt or dvae"
    )]
    NoPreview,
    /// The system could not start a thread.
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
    /// The feed of batches failed.
    #[error("{0}")]
    Feed(String),
    /// A checkpoint does not belong to this stage, corpus or network.
    #[error("the checkpoint {name} does not fit: {why}")]
    Foreign {
        /// Name of the checkpoint.
        name: String,
        /// What differs, as a clause.
        why: String,
    },
    /// Too many steps had a NaN or Inf loss or gradient, or a gradient far above the clipping limit.
    #[error(
        "{how_many} {} by step {step} of stage `{stage}`; their updates were skipped. The last batch is in {}, its clips: {clips}{fault}. Lower training.learning_rate, or check these clips",
        if *exploded { "had far too large gradients" } else { "had NaN or Inf gradients" },
        saved.display()
    )]
    BadSteps {
        /// The stage.
        stage: &'static str,
        /// Step of the stage, from 1.
        step: u64,
        /// Number of steps, and whether they were consecutive, as text.
        how_many: Box<str>,
        /// True if gradients were far too large, false if they were NaN or Inf.
        exploded: bool,
        /// The file that the batch was saved to.
        saved: PathBuf,
        /// Names of its clips.
        clips: String,
        /// The first operation with a NaN or Inf result when the batch is computed again; empty if none is found.
        fault: String,
    },
    /// The requested devices cannot be used.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The replicas no longer hold the same weights.
    #[error(
        "replica {rank} no longer matches replica 0: it reports {found}, replica 0 reports {expected}. Resume from the last \
         checkpoint with `--resume`; if it happens again, train on one device and report a bug"
    )]
    Apart {
        /// The replica that differs from replica 0.
        rank: usize,
        /// Its report of a step.
        found: String,
        /// The report of replica 0.
        expected: String,
    },
    /// Ranks could not train together.
    #[error(transparent)]
    Ranks(#[from] crate::rank_error::RankError),
    /// The user asked to stop while codes or states were computed for a stage. The caller, which knows the stage, turns it
    /// into [`Stopped`](Self::Stopped).
    #[error("stopped on request")]
    Interrupted,
    /// The user asked to stop; everything is saved.
    #[error(
        "stopped on request at step {step} of stage `{stage}`; `myxtts train --resume {run}` continues from there"
    )]
    Stopped {
        /// The stage.
        stage: &'static str,
        /// Completed steps of the stage.
        step: u64,
        /// Name of the run.
        run: String,
    },
}

impl TrainError {
    /// Whether batches could not be made. The weights trained so far are still good.
    pub(crate) fn is_batch_error(&self) -> bool {
        matches!(self, TrainError::Loader(_) | TrainError::Record(_) | TrainError::Feed(_))
    }

    /// The exit code of the error.
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
            | TrainError::BadRecords { .. }
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

/// The exit code of an error of the engine: [`Exit::Usage`] if a device, a library or memory is missing, which other
/// settings or an installation fix, and [`Exit::Internal`] if a call failed.
pub fn engine_exit(error: &myxtts_tensor::Error) -> Exit {
    use myxtts_tensor::Error;
    use myxtts_tensor::cuda::compile::CompileError;
    use myxtts_tensor::cuda::nccl::{INVALID_USAGE, NcclError, REMOTE_ERROR};
    match error {
        Error::OutOfMemory { .. }
        | Error::Missing(_)
        | Error::Unsupported(_)
        | Error::Compile(CompileError::Missing(_) | CompileError::Arch { .. })
        | Error::Nccl(NcclError::Library(_) | NcclError::Status { status: INVALID_USAGE, .. }) => Exit::Usage,
        // Other machines may be reached later, or are gone.
        Error::Nccl(NcclError::TimedOut { .. } | NcclError::Status { status: REMOTE_ERROR, .. }) => {
            Exit::Retry
        }
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
    use myxtts_tensor::cuda::compile::{Arch, CompileError};
    use myxtts_tensor::cuda::nccl::NcclError;

    #[test]
    fn every_cause_has_its_exit_code() {
        let text = || "why".to_owned();
        let status =
            |status| Error::from(NcclError::Status { call: "a call", status, message: text() }).into();
        let driver = Error::Driver { doing: text(), reason: text() };
        let ended = CollectiveError::Ended { rank: 1, world: 2, reason: text() };
        let too_old = CompileError::Arch { arch: Arch::new(5, 0), version: text(), supported: Vec::new() };
        let refused = std::io::Error::from(std::io::ErrorKind::WouldBlock);
        let cases: Vec<(TrainError, u8)> = vec![
            (Error::Unsupported(text()).into(), 2),
            (Error::from(too_old).into(), 2),
            (Error::from(NcclError::Library(text())).into(), 2),
            (status(myxtts_tensor::cuda::nccl::INVALID_USAGE), 2),
            (TrainError::DeviceMemory(text()), 2),
            (TrainError::HostMemory(text()), 2),
            (TrainError::NotAModel { from: "model".into() }, 2),
            (TrainError::NoDvae { from: "model".into() }, 2),
            (TrainError::NoPreview, 2),
            (TrainError::NoClips(text()), 65),
            (TrainError::Vocabulary(text()), 65),
            (TrainError::UnusableModel(text()), 65),
            (TrainError::Feed(text()), 65),
            (TrainError::BadRecords { doing: "codes", bad: 1, total: 2, rate: 0.0, problems: text() }, 65),
            (driver.into(), 70),
            (Error::from(ended).into(), 70),
            (Error::from(NcclError::Aborted { rank: 0 }).into(), 70),
            (status(1), 70),
            (TrainError::Internal(text()), 70),
            (TrainError::Thread { name: text(), source: refused }, 74),
            (Error::from(NcclError::TimedOut { rank: 0, world: 2, seconds: 9 }).into(), 75),
            (status(myxtts_tensor::cuda::nccl::REMOTE_ERROR), 75),
            (TrainError::Interrupted, 143),
        ];
        for (error, code) in cases {
            assert_eq!(error.exit().code(), code, "{error:?}");
        }
    }
}

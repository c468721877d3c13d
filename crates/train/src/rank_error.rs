//! Errors of runs with several ranks.

use myxtts_run::exit::Exit;
use std::io;

/// What ended a run of several ranks. Every message names the ranks that are involved and what to check.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// Flags or environment variables about ranks contradict each other.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// Other machines could join a run that has no token.
    #[error(
        "ranks meet at {address}, which other machines can reach, and no token is set: set MYXTTS_RENDEZVOUS_TOKEN to the \
         same long random word on every rank (openssl rand -hex 16)"
    )]
    NoToken {
        /// The address where ranks meet.
        address: String,
    },
    /// Rank 0 cannot listen on its address.
    #[error(
        "rank 0 cannot listen on {address} for {asked}: {source}. Rank 0 must run on the machine with that name, on a port \
         that nothing else uses"
    )]
    Listen {
        /// The address that was tried.
        address: String,
        /// The address as the user gave it.
        asked: String,
        /// What the system reported.
        source: io::Error,
    },
    /// Some ranks did not connect in time.
    #[error(
        "rank 0 waited {seconds} s at {address} for {}, which did not connect: were all {world} processes started (srun, not \
         the batch script itself, starts them under Slurm), can they reach that address, and do they have the same \
         token? --rendezvous-timeout waits longer, and --world-size 1 trains in this process alone",
        list_ranks(.missing, .world)
    )]
    Absent {
        /// The missing ranks.
        missing: Vec<usize>,
        /// Number of ranks of the run.
        world: usize,
        /// Address of rank 0.
        address: String,
        /// Time waited, in seconds.
        seconds: f64,
    },
    /// Rank 0 was reached, but not all others came in time.
    #[error(
        "rank {rank} waited {seconds} s for all {world} ranks to reach rank 0 at {address}: the output of rank 0 names those that did \
         not come. --rendezvous-timeout waits longer"
    )]
    Incomplete {
        /// The rank that waited.
        rank: usize,
        /// Number of ranks of the run.
        world: usize,
        /// Address of rank 0.
        address: String,
        /// Time waited, in seconds.
        seconds: f64,
    },
    /// Rank 0 cannot be reached.
    #[error(
        "rank {rank} could not reach rank 0 at {address} for {seconds} s ({last}): is rank 0 started, is the address its \
         machine's, and does a firewall let the port through? --rendezvous-timeout waits longer"
    )]
    Unreachable {
        /// The rank that tried.
        rank: usize,
        /// Address of rank 0.
        address: String,
        /// Time spent trying, in seconds.
        seconds: f64,
        /// Error of the last attempt.
        last: String,
    },
    /// Rank 0 refused this rank.
    #[error("rank 0 at {address} refused rank {rank}: {why}")]
    Refused {
        /// The refused rank.
        rank: usize,
        /// Address of rank 0.
        address: String,
        /// The reason, from rank 0.
        why: String,
    },
    /// A rank is lost: killed, stopped, hanging, or disconnected.
    #[error(
        "rank {rank} of {world} ({name}) is lost: {reason}. All ranks end; the last checkpoint is kept, and \
         `train --resume` continues from it, with any number of ranks"
    )]
    Lost {
        /// The lost rank.
        rank: usize,
        /// Number of ranks of the run.
        world: usize,
        /// Host name of the rank.
        name: String,
        /// How the loss was detected.
        reason: String,
    },
    /// A rank ended with an error of its own, and reported it.
    #[error("rank {rank} of {world} ({name}) failed: {reason}")]
    Failed {
        /// The failed rank.
        rank: usize,
        /// Number of ranks of the run.
        world: usize,
        /// Host name of the rank.
        name: String,
        /// Its error message.
        reason: String,
        /// Its exit code, with which all ranks end.
        exit: Exit,
    },
    /// The records of a rank differ from those of rank 0.
    #[error(
        "the corpus of rank {rank} differs from that of rank 0: {found}. All ranks must read the same files: copy them, or name a folder \
         that all machines share"
    )]
    Corpus {
        /// The rank that differs.
        rank: usize,
        /// How the corpus of that rank differs, as a clause.
        found: String,
    },
    /// The ranks do not have the same kind of device, or do not compute in the same precision.
    #[error(
        "rank {rank} trains on {found} and rank 0 on {expected}: give all ranks a GPU each, or all --device cpu, and \
         MYXTTS_PRECISION=f32 to all of them or to none"
    )]
    Devices {
        /// The rank that differs.
        rank: usize,
        /// Kind of device and precision of that rank.
        found: String,
        /// Kind of device and precision of rank 0.
        expected: String,
    },
    /// A rank has no GPU of its own.
    #[error(
        "this is process {local_rank} (from 0) of its machine, which has {gpus} visible GPUs: start at most {gpus} ranks there, \
         one for each, or name the GPU with --device cuda:N"
    )]
    NoGpu {
        /// Rank within its machine, from 0.
        local_rank: usize,
        /// Number of visible GPUs.
        gpus: usize,
    },
    /// A batch cannot be split evenly over the ranks.
    #[error(
        "{setting} = {rows} cannot be split evenly over {world} ranks: {below} or {above} can, or start another number of \
         ranks"
    )]
    Uneven {
        /// The setting with the batch size.
        setting: &'static str,
        /// Rows per batch.
        rows: usize,
        /// Number of ranks of the run.
        world: usize,
        /// The next smaller batch that can be split; 0 if there is none.
        below: usize,
        /// The next larger batch that can be split.
        above: usize,
    },
    /// The run uses something that several ranks do not support.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Weights that should be equal are not.
    #[error(
        "the weights of rank {rank} differ from those of rank 0 after the same steps: resume from the last checkpoint with `--resume`; if \
         it happens again, train on one device and report a bug"
    )]
    Apart {
        /// The rank that differs from rank 0.
        rank: usize,
    },
    /// The user asked to stop before there was anything to save.
    #[error("stopped on request before all ranks had connected")]
    Stopped,
    /// Rank 0 has ended the run without an error.
    #[error("rank 0 has ended the run")]
    Finished(Exit),
    /// A socket between ranks failed.
    #[error("the connection between ranks failed: {0}")]
    Socket(io::Error),
}

impl RankError {
    /// The exit code of the error.
    pub fn exit(&self) -> Exit {
        match self {
            RankError::Discovery(_)
            | RankError::NoToken { .. }
            | RankError::Refused { .. }
            | RankError::Devices { .. }
            | RankError::NoGpu { .. }
            | RankError::Uneven { .. }
            | RankError::Unsupported(_) => Exit::Usage,
            RankError::Listen { .. }
            | RankError::Absent { .. }
            | RankError::Incomplete { .. }
            | RankError::Unreachable { .. }
            | RankError::Socket(_)
            | RankError::Lost { .. } => Exit::Retry,
            RankError::Failed { exit, .. } | RankError::Finished(exit) => *exit,
            RankError::Corpus { .. } => Exit::BadData,
            RankError::Apart { .. } => Exit::Internal,
            RankError::Stopped => Exit::Stopped,
        }
    }
}

/// `ranks 1 and 2 of 4`
fn list_ranks(ranks: &[usize], world: &usize) -> String {
    let words: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match words.split_last() {
        Some((last, [])) => format!("rank {last} of {world}"),
        Some((last, before)) => format!("ranks {} and {last} of {world}", before.join(", ")),
        None => format!("no rank of {world}"),
    }
}

/// Flags or environment variables that contradict each other, or do not say enough, about the ranks of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiscoveryError(pub String);

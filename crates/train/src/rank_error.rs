//! Why ranks could not train together, or cannot any more.

use myxtts_run::exit::Exit;
use std::io;

/// What ended a run of several processes. Every message says who waited for whom, and what to look at.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// What was said of ranks does not go together.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// Other machines could join a run that has no token.
    #[error(
        "ranks meet at {address}, which other machines reach, and there is no token: set MYXTTS_RENDEZVOUS_TOKEN to the \
         same long random word on every rank (openssl rand -hex 16), or give --rendezvous-token"
    )]
    NoToken {
        /// Where they meet.
        address: String,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen on {address} for {asked}: {source}. Rank 0 must run on the machine of that name, on a port \
         that nothing else uses"
    )]
    Listen {
        /// What was tried.
        address: String,
        /// What was asked for.
        asked: String,
        /// What the system said.
        source: io::Error,
    },
    /// Some did not come.
    #[error(
        "rank 0 waited {seconds} s at {address} for {}, which did not come: were all {world} processes started (srun, not \
         the batch script itself, starts them under Slurm), do they reach that address, and do they have the same \
         token? --rendezvous-timeout waits longer",
        listed(.missing, .world)
    )]
    Absent {
        /// Who.
        missing: Vec<usize>,
        /// Of how many.
        world: usize,
        /// Where they were waited for.
        address: String,
        /// How long.
        seconds: u64,
    },
    /// Rank 0 is not there.
    #[error(
        "rank {rank} could not reach rank 0 at {address} for {seconds} s ({last}): is rank 0 started, is the address its \
         machine's, and does a firewall let the port through? --rendezvous-timeout waits longer"
    )]
    Unreachable {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// How long.
        seconds: u64,
        /// What the last try said.
        last: String,
    },
    /// Rank 0 does not want this one.
    #[error("rank 0 at {address} refused rank {rank}: {why}")]
    Refused {
        /// Who.
        rank: usize,
        /// By whom.
        address: String,
        /// Its words.
        why: String,
    },
    /// A rank is gone: killed, stopped, hanging, or cut off.
    #[error(
        "rank {rank} of {world} ({name}) is lost: {reason}. All ranks end; what the last checkpoint holds is kept, and \
         `train --resume` goes on from it, with any number of ranks"
    )]
    Lost {
        /// Which.
        rank: usize,
        /// Of how many.
        world: usize,
        /// Where it ran.
        name: String,
        /// How that was noticed.
        reason: String,
    },
    /// A rank ended by an error of its own, which it told.
    #[error("rank {rank} of {world} ({name}) failed: {reason}")]
    Failed {
        /// Which.
        rank: usize,
        /// Of how many.
        world: usize,
        /// Where it ran.
        name: String,
        /// In its own words.
        reason: String,
        /// Its exit code, which all take over.
        exit: Exit,
    },
    /// Ranks whose records are not the same.
    #[error(
        "rank {rank} finds another corpus than rank 0: {found}. All ranks read the same files: copy them, or name a folder \
         that all machines share"
    )]
    Corpus {
        /// Which.
        rank: usize,
        /// What differs.
        found: String,
    },
    /// Ranks that do not have the same kind of device.
    #[error(
        "rank {rank} trains on {found} and rank 0 on {expected}: give all ranks a GPU each, or all --device cpu"
    )]
    Devices {
        /// Which.
        rank: usize,
        /// What it has.
        found: String,
        /// What rank 0 has.
        expected: String,
    },
    /// A rank has no GPU of its own.
    #[error(
        "this is process {local_rank} (from 0) of its machine, which shows {gpus} GPUs: start at most {gpus} ranks there, \
         one for each, or name the GPU with --device cuda:N"
    )]
    NoGpu {
        /// Which of its machine.
        local_rank: usize,
        /// GPUs that are visible.
        gpus: usize,
    },
    /// A batch that ranks cannot share.
    #[error(
        "{setting} = {rows} cannot be split evenly over {world} ranks: {below} or {above} can, or start another number of \
         ranks"
    )]
    Uneven {
        /// The setting.
        setting: &'static str,
        /// Rows of a batch.
        rows: usize,
        /// Ranks.
        world: usize,
        /// The next smaller batch that can be split.
        below: usize,
        /// The next larger one.
        above: usize,
    },
    /// Something that several processes cannot have.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Weights that should be the same are not.
    #[error(
        "rank {rank} has other weights than rank 0 after the same steps: go on from the last checkpoint with `--resume`; if \
         it happens again, train on one device and tell us"
    )]
    Apart {
        /// Which.
        rank: usize,
    },
    /// Asked to stop before there was anything to save.
    #[error("stopped on request before all ranks had come")]
    Stopped,
    /// Rank 0 has ended the run in good order.
    #[error("rank 0 has ended the run")]
    Finished(Exit),
    /// A socket that cannot be used.
    #[error("a socket between ranks: {0}")]
    Socket(io::Error),
}

impl RankError {
    /// The exit code that belongs to it.
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
fn listed(ranks: &[usize], world: &usize) -> String {
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

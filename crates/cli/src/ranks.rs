//! `train` as one of several processes: its rank, the rendezvous with the others, and how all of them end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use myxtts_run::exit::Exit;
use myxtts_tensor::Device;
use myxtts_train::briefing;
use myxtts_train::ranks::discovery::{Identity, RankFlags, discover};
use myxtts_train::ranks::health::{EXPLAIN_TIMEOUT, GRACE};
use myxtts_train::ranks::{Options, RankError, Ranks, Token};
use myxtts_train::{RunError, TrainError};

use crate::failure::{exit_of, message};
use crate::output::errln;
use crate::progress::Terminal;

/// The environment variable with the token; other users of a machine can see arguments, but not variables.
pub const TOKEN: &str = "MYXTTS_RENDEZVOUS_TOKEN";

/// Arguments of a run of several processes.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Several processes (default: the variables of torchrun or Slurm)")]
pub struct RankArgs {
    /// Rank of this process, from 0; rank 0 writes all files
    #[arg(long, value_name = "N")]
    rank: Option<usize>,
    /// Number of processes of the run; 1 trains in this process alone and ignores the variables
    #[arg(long, value_name = "N")]
    world_size: Option<usize>,
    /// Address where rank 0 listens
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,
    /// Shared secret of all ranks; required unless they meet on a loopback address
    #[arg(long, value_name = "TOKEN", env = TOKEN, hide_env_values = true)]
    rendezvous_token: Option<String>,
    /// How long ranks wait for each other at the start, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Options::RENDEZVOUS.as_secs_f64(), value_parser = seconds)]
    rendezvous_timeout: f64,
    /// Seconds without a heartbeat after which a rank counts as lost and the run ends; the value of rank 0 applies
    #[arg(long, value_name = "SECONDS", default_value_t = Options::LIMIT.as_secs_f64(), value_parser = seconds)]
    rank_timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.1 to 1000000".to_owned()),
    }
}

impl RankArgs {
    /// Names of the options that say which rank this is.
    pub const PLACE: [&str; 3] = ["--rank", "--world-size", "--rendezvous"];

    /// The rank of this process; `None` if it trains alone.
    pub fn identity(&self) -> Result<Option<Identity>, TrainError> {
        let flags =
            RankFlags { rank: self.rank, world_size: self.world_size, rendezvous: self.rendezvous.clone() };
        Ok(discover(&flags, &|name| std::env::var(name).ok()).map_err(RankError::from)?)
    }

    /// Connects to the other ranks of `run`, as the command line names it. Returns `None` if this process trains alone.
    pub fn meet(&self, run: Option<&str>, stop: &Arc<AtomicBool>) -> Result<Option<Arc<Ranks>>, TrainError> {
        let Some(identity) = self.identity()? else { return Ok(None) };
        errln!("{identity}");
        let options = Options {
            token: self.rendezvous_token.as_deref().filter(|token| !token.is_empty()).map(Token::of),
            run: run.map(str::to_owned),
            rendezvous: Duration::from_secs_f64(self.rendezvous_timeout),
            limit: Duration::from_secs_f64(self.rank_timeout),
        };
        let ranks = Arc::new(Ranks::meet(identity, &options, stop, &|line| errln!("{line}"))?);
        exit_after_loss(&ranks);
        Ok(Some(ranks))
    }
}

/// Ends this process after the loss of another rank if it does not end by itself, because it waits for a device or a disk.
fn exit_after_loss(ranks: &Arc<Ranks>) {
    let health = Arc::downgrade(ranks.health());
    let ending = move || {
        let Some(cause) = health.upgrade().and_then(|health| health.cause()) else { return };
        let named = std::thread::Builder::new().name("time limit".into());
        let _ = named.spawn(move || {
            std::thread::sleep(GRACE);
            errln!("error: {cause}");
            errln!("this process did not end within {} s and is killed", GRACE.as_secs());
            signal_hook::low_level::exit(i32::from(cause.exit().code()));
        });
    };
    ranks.health().on_loss(ending);
}

/// Reports the end of rank 0 to the other ranks. If a rank is lost, that is the error.
pub fn finish(ranks: &Ranks, outcome: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let error = match outcome {
        Ok(exit) => {
            if let Err(error) = ranks.finish(exit) {
                // All work of rank 0 is done and written.
                errln!("note: not all ranks could be notified of the end of the run: {error}");
            }
            return Ok(exit);
        }
        Err(error) => error,
    };
    Err(failed(ranks, error))
}

/// Handles an error that ends this rank: reports it to the others, unless another rank failed first.
fn failed(ranks: &Ranks, error: anyhow::Error) -> anyhow::Error {
    // NCCL may report that a rank is gone before its heartbeat does.
    let limit = match exit_of(&error) {
        Exit::Internal | Exit::Retry => EXPLAIN_TIMEOUT,
        _ => Duration::ZERO,
    };
    if let Some(cause) = ranks.health().cause_within(limit) {
        // Exit at once: destructors would hang in libraries that wait for the GPUs of other ranks, and all files are
        // written.
        errln!("error: {cause}");
        ranks.health().linger();
        signal_hook::low_level::exit(i32::from(cause.exit().code()));
    }
    ranks.health().fail(&message(&error), exit_of(&error));
    error
}

/// Runs as a rank other than 0, until the end of the run.
pub fn follow_rank_0(
    ranks: &Arc<Ranks>,
    device: Option<Device>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Exit> {
    match briefing::follow_rank_0(ranks, device, stop, &Terminal::quiet()) {
        Ok(exit) => Ok(exit),
        Err(RunError::Train(TrainError::Ranks(RankError::Finished(exit)))) => Ok(exit),
        Err(error) => Err(failed(ranks, error.into())),
    }
}

//! `train` as one of several processes: which rank it is, how it meets the others, what rank 0 tells them, and how all end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Plan;
use myxtts_run::progress::Progress;
use myxtts_train::TrainError;
use myxtts_train::pipeline::{Corpus, Ground};
use myxtts_train::ranks::discovery::{RankFlags, discover};
use myxtts_train::ranks::health::GRACE;
use myxtts_train::ranks::{Options, RankError, Ranks, Token, follow};
use serde::{Deserialize, Serialize};

use crate::corpora::Opened;
use crate::failure::{UsageError, exit_of, words};
use crate::output::errln;
use crate::place::Place;
use crate::progress::Terminal;
use crate::records::Records;
use crate::train::read;

/// The variable that holds the token; other users of a machine see arguments, but not variables.
pub const TOKEN: &str = "MYXTTS_RENDEZVOUS_TOKEN";

/// What the command line says of other processes.
#[derive(clap::Args, Clone, Debug)]
#[command(
    next_help_heading = "Several processes (torchrun's and Slurm's variables are read where these are not given)"
)]
pub struct RankArgs {
    /// Which process of the run this is, from 0; rank 0 writes
    #[arg(long, value_name = "N")]
    rank: Option<usize>,
    /// How many processes the run has; 1 trains alone, whatever the variables say
    #[arg(long, value_name = "N")]
    world_size: Option<usize>,
    /// Where rank 0 listens and the others find it
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,
    /// What ranks prove to each other that they belong together; needed where they meet on a network
    #[arg(long, value_name = "TOKEN", env = TOKEN, hide_env_values = true)]
    rendezvous_token: Option<String>,
    /// Seconds that ranks wait for each other at the beginning
    #[arg(long, value_name = "SECONDS", default_value_t = Options::RENDEZVOUS.as_secs_f64(), value_parser = seconds)]
    rendezvous_timeout: f64,
    /// Seconds without a sign of life after which a rank is lost and all end; rank 0's counts
    #[arg(long, value_name = "SECONDS", default_value_t = Options::LIMIT.as_secs_f64(), value_parser = seconds)]
    rank_timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.1 to 1000000".to_owned()),
    }
}

impl RankArgs {
    /// Meets the other ranks; nothing where this process is alone.
    pub fn meet(&self, stop: &Arc<AtomicBool>) -> Result<Option<Arc<Ranks>>, TrainError> {
        let flags =
            RankFlags { rank: self.rank, world_size: self.world_size, rendezvous: self.rendezvous.clone() };
        let found = discover(&flags, &|name| std::env::var(name).ok()).map_err(RankError::from)?;
        let Some(identity) = found else { return Ok(None) };
        errln!("{identity}");
        let options = Options {
            token: self.rendezvous_token.as_deref().filter(|word| !word.is_empty()).map(Token::of),
            rendezvous: Duration::from_secs_f64(self.rendezvous_timeout),
            limit: Duration::from_secs_f64(self.rank_timeout),
        };
        let ranks = Arc::new(Ranks::meet(identity, &options, stop, &|line| errln!("{line}"))?);
        end_in_time(&ranks);
        Ok(Some(ranks))
    }
}

/// A rank that heard of a loss and does not end by itself, because it waits for a device or a disk, is ended.
fn end_in_time(ranks: &Arc<Ranks>) {
    let health = Arc::downgrade(ranks.health());
    let ending = move || {
        let Some(cause) = health.upgrade().and_then(|health| health.cause()) else { return };
        let named = std::thread::Builder::new().name("time limit".into());
        let _ = named.spawn(move || {
            std::thread::sleep(GRACE);
            errln!("error: {cause}");
            errln!("this process did not end by itself within {} s and is ended", GRACE.as_secs());
            signal_hook::low_level::exit(i32::from(cause.exit().code()));
        });
    };
    ranks.health().on_loss(ending);
}

/// Tells the other ranks how rank 0 ended, and says what its end means where a rank is gone.
pub fn ended(ranks: &Ranks, outcome: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let error = match outcome {
        Ok(exit) => {
            if let Err(error) = ranks.finish(exit) {
                // Everything that rank 0 was to do is done and written.
                errln!("note: not all ranks heard that the run is over: {error}");
            }
            return Ok(exit);
        }
        Err(error) => error,
    };
    Err(failed(ranks, error))
}

/// An error that ends this rank: told to the others where it is this one's, else theirs.
fn failed(ranks: &Ranks, error: anyhow::Error) -> anyhow::Error {
    if let Some(cause) = ranks.health().cause() {
        // At once: libraries that wait for the GPUs of the others would be taken down while they do, and everything of
        // ours is written.
        errln!("error: {cause}");
        ranks.health().linger();
        signal_hook::low_level::exit(i32::from(cause.exit().code()));
    }
    ranks.health().fail(&words(&error), exit_of(&error));
    error
}

/// What rank 0 tells the others before the first stage.
#[derive(Serialize, Deserialize)]
struct Brief {
    plan: String,
    /// The vocabulary of the model that the run began from.
    base: Option<String>,
    train: Vec<u32>,
    validation: Vec<u32>,
    corpus: Fingerprint,
}

/// What must be the same on all ranks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    records: usize,
    content: [u8; 32],
    vocabulary: String,
}

impl Fingerprint {
    fn of(corpus: &Opened) -> Fingerprint {
        Fingerprint::new(&*corpus.source, &corpus.tokenizer)
    }

    fn new(source: &dyn myxtts_data::record::RecordSource, tokenizer: &Tokenizer) -> Fingerprint {
        let vocabulary = Token::of(&String::from_utf8_lossy(&tokenizer.to_json())).fingerprint();
        Fingerprint { records: source.len(), content: source.fingerprint(), vocabulary }
    }

    /// What of another rank's differs, in words.
    fn differs(&self, theirs: &Fingerprint) -> Option<String> {
        if self.records != theirs.records {
            Some(format!("{} usable clips, and rank 0 has {}", self.records, theirs.records))
        } else if self.vocabulary != theirs.vocabulary {
            Some("another vocabulary".to_owned())
        } else if self.content != theirs.content {
            Some("as many clips, and some of them are not the same".to_owned())
        } else {
            None
        }
    }
}

/// Rank 0 tells the others what is trained, and on what.
pub fn brief(ranks: &Ranks, plan: &Plan, base: Option<&Tokenizer>, corpus: &Corpus) -> anyhow::Result<()> {
    let base = base.map(|base| String::from_utf8(base.to_json())).transpose();
    let brief = Brief {
        plan: plan.to_json(),
        base: base.context("a vocabulary is text")?,
        train: corpus.train.clone(),
        validation: corpus.validation.clone(),
        corpus: Fingerprint::new(&*corpus.source, &corpus.tokenizer),
    };
    ranks.share_bytes(Some(&serde_json::to_vec(&brief)?)).map_err(TrainError::from)?;
    Ok(())
}

/// Another rank: does what rank 0 asks, to the end of the run.
pub fn follow_rank_0(
    ranks: &Arc<Ranks>,
    device: Option<myxtts_tensor::Device>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Exit> {
    match followed(ranks, device, stop) {
        Ok(exit) => Ok(exit),
        Err(error) => {
            if let Some(TrainError::Ranks(RankError::Finished(exit))) = error.downcast_ref() {
                return Ok(*exit);
            }
            Err(failed(ranks, error))
        }
    }
}

fn followed(
    ranks: &Arc<Ranks>,
    device: Option<myxtts_tensor::Device>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Exit> {
    let progress = Terminal::quiet();
    let bytes = ranks.share_bytes(None).map_err(TrainError::from)?.unwrap_or_default();
    let brief: Brief = serde_json::from_slice(&bytes).context("what rank 0 told cannot be read")?;
    let plan = Plan::from_json(&brief.plan).context("the plan that rank 0 sent cannot be read")?;
    let place = Place::of_rank(&plan, device, ranks.identity())?;
    progress.say(&format!("rank {} of {}: trains on {}", ranks.rank(), ranks.world(), place.sentence()));
    let base = brief
        .base
        .as_deref()
        .map(|base| Tokenizer::from_bytes(base.as_bytes(), Path::new("rank 0's vocabulary")));
    let base = base.transpose()?;
    let read = read(&plan, &progress)?;
    let computing = read.vocabulary(&plan.data, (base.as_ref(), true), &progress)?;
    let opened = read.open(Records::of(&plan.data), computing, &plan.data, &progress)?;
    if let Some(found) = Fingerprint::of(&opened).differs(&brief.corpus) {
        return Err(TrainError::from(RankError::Corpus { rank: ranks.rank(), found }).into());
    }
    let corpus = Corpus {
        source: opened.source,
        train: brief.train,
        validation: brief.validation,
        tokenizer: opened.tokenizer,
        sentences: Vec::new(),
        data_side: None,
    };
    let ground = Ground::of(&plan, &corpus, place.machines[0], Path::new(""), &progress);
    let ground = Ground { machines: &place.machines, ranks: Some(ranks), stop, ..ground };
    Ok(follow::follow(ranks, &ground)?)
}

/// Refuses what several processes cannot have.
pub fn refuse(plan: &Plan, simulate_gpus: Option<u32>) -> Result<(), UsageError> {
    let refused = if plan.training.multi_gpu {
        Some(
            "training.multi_gpu (--multi-gpu) and several ranks: give every GPU a rank of its own, as `myxtts launch --gpus` does",
        )
    } else if plan.data.data_gpu.is_some() || plan.data.model_gpu.is_some() {
        Some(
            "data.data_gpu and data.model_gpu have no part in a run of several ranks: every rank prepares its own batches",
        )
    } else if simulate_gpus.is_some() {
        Some("--simulate-gpus and several ranks: `myxtts launch --ranks` starts ranks on the processor")
    } else {
        None
    };
    refused.map_or(Ok(()), |words| Err(UsageError(words.to_owned())))
}

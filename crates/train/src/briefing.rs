//! What rank 0 sends to the other ranks before the first stage: settings, split, and the identity of the corpus.

use crate::corpus::set::IfLocked;
use crate::corpus::{CorpusSet, RecordMode};
use crate::devices::RunDevices;
use crate::follow;
use crate::rank_error::RankError;
use crate::ranks::{Ranks, Token};
use crate::run_error::RunError;
use crate::stage_context::StageContext;
use crate::training_data::Corpus;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_run::plan::Plan;
use myxtts_run::progress::Progress;
use myxtts_tensor::Device;
use myxtts_tensor::cuda::gemm;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Serialize, Deserialize)]
struct Briefing {
    plan: String,
    /// The vocabulary of the base model.
    base: Option<String>,
    train: Vec<u32>,
    validation: Vec<u32>,
    corpus: Fingerprint,
    /// The tables of algorithms that the run has kept.
    algorithms: Vec<Vec<u8>>,
}

/// The identity of a corpus, which must be the same on all ranks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    records: usize,
    content: [u8; 32],
    vocabulary: String,
}

impl Fingerprint {
    fn new(source: &dyn RecordSource, tokenizer: &Tokenizer) -> Fingerprint {
        let vocabulary = Token::of(&String::from_utf8_lossy(&tokenizer.to_json())).fingerprint();
        Fingerprint { records: source.len(), content: source.fingerprint(), vocabulary }
    }

    /// How the corpus of this rank differs from that of rank 0; `None` if it is the same.
    fn difference(&self, rank_0: &Fingerprint) -> Option<String> {
        if self.records != rank_0.records {
            Some(format!("{} usable clips, and rank 0 has {}", self.records, rank_0.records))
        } else if self.vocabulary != rank_0.vocabulary {
            Some("another vocabulary".to_owned())
        } else if self.content != rank_0.content {
            Some("the same number of clips, but some of them differ".to_owned())
        } else {
            None
        }
    }
}

/// Sends the briefing, as rank 0.
pub fn send(
    ranks: &Ranks,
    plan: &Plan,
    base: Option<&Tokenizer>,
    corpus: &Corpus,
    algorithms: Vec<Vec<u8>>,
) -> Result<(), RunError> {
    let briefing = Briefing {
        plan: plan.to_json(),
        base: base.map(|base| String::from_utf8_lossy(&base.to_json()).into_owned()),
        train: corpus.train.clone(),
        validation: corpus.validation.clone(),
        corpus: Fingerprint::new(&*corpus.source, &corpus.tokenizer),
        algorithms,
    };
    let bytes = serde_json::to_vec(&briefing).expect("text and numbers are JSON");
    ranks.broadcast_bytes(Some(&bytes))?;
    Ok(())
}

/// Receives the briefing as another rank, opens the same corpus, and follows rank 0 to the end of the run.
pub fn follow_rank_0(
    ranks: &Arc<Ranks>,
    device: Option<Device>,
    stop: Arc<AtomicBool>,
    progress: &dyn Progress,
) -> Result<Exit, RunError> {
    let bytes = ranks.broadcast_bytes(None)?.unwrap_or_default();
    let unreadable = |what| move |source| RunError::Briefing { what, source };
    let briefing: Briefing = serde_json::from_slice(&bytes).map_err(unreadable("briefing"))?;
    gemm::pin(briefing.algorithms);
    let plan = Plan::from_json(&briefing.plan).map_err(unreadable("plan"))?;
    let devices = RunDevices::for_rank(&plan, device, ranks.identity())?;
    let (rank, world) = (ranks.rank(), ranks.world());
    progress.say(&format!("rank {rank} of {world}: trains on {}", devices.summary()));
    let base = briefing
        .base
        .as_deref()
        .map(|base| Tokenizer::from_bytes(base.as_bytes(), Path::new("rank 0's vocabulary")))
        .transpose()?;
    let corpora = CorpusSet::read(&plan.data, progress)?;
    let setup = corpora.lock_vocabulary(&plan.data, base.as_ref(), IfLocked::Wait, &stop, progress)?;
    let opened = corpora.open(RecordMode::from_plan(&plan.data), setup, &plan.data, &stop, progress)?;
    let own = Fingerprint::new(&*opened.source, &opened.tokenizer);
    if let Some(found) = own.difference(&briefing.corpus) {
        return Err(RankError::Corpus { rank, found }.into());
    }
    let corpus = Corpus {
        source: opened.source,
        train: briefing.train,
        validation: briefing.validation,
        tokenizer: opened.tokenizer,
        sentences: Vec::new(),
        data_side: None,
    };
    let context = StageContext::of(&plan, &corpus, devices.first(), Path::new(""), progress);
    let context = StageContext { machines: &devices.machines, ranks: Some(ranks), stop, ..context };
    Ok(follow::follow(ranks, &context)?)
}

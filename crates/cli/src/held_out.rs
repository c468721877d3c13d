//! What a run holds out: chosen when it begins, kept in its folder, and taken from there by whoever asks later.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::dataset::split::{Clip, HeldOut, Split, Unit, hold_out, split_by_id, text_key};
use myxtts_data::utterance::Utterance;
use myxtts_run::folder::{HELD_OUT, RunFolder};
use myxtts_run::plan::Plan;
use serde::{Deserialize, Serialize};

use crate::corpora::Corpora;
use crate::failure::UsageError;

/// Speakers that are named one by one.
const NAMED: usize = 5;

/// What a run holds out, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutClips {
    /// The corpus that is validated on, where it is one of its own.
    pub corpus: Option<PathBuf>,
    /// What is on one side as a whole.
    pub unit: Unit,
    /// Speakers that are held out as a whole.
    pub speakers: Vec<String>,
    /// Ids of the clips that are only measured on.
    pub clips: Vec<String>,
    /// Ids of the clips that are on neither side.
    pub set_aside: Vec<String>,
}

/// Where a run's split comes from.
pub enum Kept {
    /// Its folder.
    Listed(HeldOutClips),
    /// A version that held clips out by their ids and kept no list.
    ById,
}

impl Kept {
    /// What a run has kept; none where it has not begun to learn, and may choose anew.
    pub fn of(folder: &Path, has_begun: bool) -> anyhow::Result<Option<Kept>> {
        if !has_begun {
            return Ok(None);
        }
        let path = folder.join(HELD_OUT);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let listed = serde_json::from_slice(&bytes);
                let listed =
                    listed.with_context(|| format!("{} is not as it was written", path.display()))?;
                Ok(Some(Kept::Listed(listed)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(has_begun.then_some(Kept::ById)),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
}

/// Splits records: by what the run has kept, by the validation corpus (`training` of the records come before it), or anew.
pub fn split(
    utterances: &[Utterance],
    training: usize,
    plan: &Plan,
    kept: Option<&Kept>,
) -> anyhow::Result<HeldOut> {
    let (fraction, seed) = (plan.data.val_fraction, plan.training.seed);
    match kept {
        Some(Kept::Listed(listed)) => Ok(listed_split(utterances, listed)),
        Some(Kept::ById) => {
            let split = split_by_id(utterances.iter().map(|u| u.id.as_str()), fraction, seed);
            Ok(HeldOut { split, unit: Unit::Clip, ..HeldOut::default() })
        }
        None if plan.data.val_data.is_some() => {
            if let Some(corpus) = plan.data.val_data.as_ref().filter(|_| training == utterances.len()) {
                let corpus = corpus.display();
                return Err(UsageError(format!(
                    "no clip of the validation corpus {corpus} can be used: `myxtts check {corpus}` says why"
                ))
                .into());
            }
            let (train, validation) = ((0..training).collect(), (training..utterances.len()).collect());
            Ok(HeldOut { split: Split { train, validation }, ..HeldOut::default() })
        }
        None => {
            let clips: Vec<Clip<'_>> = utterances
                .iter()
                .map(|Utterance { id, text, speaker, .. }| Clip { id, text, speaker })
                .collect();
            Ok(hold_out(&clips, fraction, seed))
        }
    }
}

/// Clips that are gone are held out by nobody: whether the corpus may have changed is asked elsewhere.
fn listed_split(utterances: &[Utterance], listed: &HeldOutClips) -> HeldOut {
    let set = |ids: &[String]| ids.iter().cloned().collect::<HashSet<String>>();
    let (clips, aside) = (set(&listed.clips), set(&listed.set_aside));
    let mut found = HeldOut { speakers: listed.speakers.clone(), unit: listed.unit, ..HeldOut::default() };
    for (at, utterance) in utterances.iter().enumerate() {
        let side = match &utterance.id {
            id if clips.contains(id) => &mut found.split.validation,
            id if aside.contains(id) => &mut found.set_aside,
            _ => &mut found.split.train,
        };
        side.push(at);
    }
    found
}

impl HeldOutClips {
    /// What is kept of a split.
    pub fn of(found: &HeldOut, utterances: &[Utterance], plan: &Plan) -> HeldOutClips {
        let ids = |side: &[usize]| side.iter().map(|&at| utterances[at].id.clone()).collect();
        HeldOutClips {
            corpus: plan.data.val_data.clone(),
            unit: found.unit,
            speakers: found.speakers.clone(),
            clips: ids(&found.split.validation),
            set_aside: ids(&found.set_aside),
        }
    }

    /// Writes the list to a run's folder.
    pub fn keep(&self, folder: &RunFolder) -> anyhow::Result<()> {
        Ok(myxtts_run::durable::write(&folder.path().join(HELD_OUT), &serde_json::to_vec_pretty(self)?)?)
    }
}

/// What is held out and how, for people; nothing where nothing is.
pub fn described(found: &HeldOut, utterances: &[Utterance], plan: &Plan) -> Vec<String> {
    let texts = |side: &[usize]| -> BTreeSet<String> {
        side.iter().map(|&at| text_key(&utterances[at].text)).collect()
    };
    let (held, learnt) = (texts(&found.split.validation), texts(&found.split.train));
    let count = found.split.validation.len();
    if count == 0 {
        return Vec::new();
    }
    let both = held.intersection(&learnt).count();
    let mut lines = Vec::new();
    if let Some(corpus) = &plan.data.val_data {
        let speakers: BTreeSet<&str> =
            found.split.validation.iter().map(|&at| utterances[at].speaker.as_str()).collect();
        lines.push(format!(
            "held out     all {count} usable clips of {}: {} texts, {} speakers; nothing of what is learnt from",
            corpus.display(),
            held.len(),
            speakers.len()
        ));
    } else if found.unit == Unit::Clip {
        lines.push(format!("held out     {count} clips, chosen one by one: {} texts", held.len()));
    } else {
        lines.push(format!("held out     {count} clips: {} texts that are not learnt from", held.len()));
    }
    if both > 0 {
        lines.push(format!(
            "note: {both} of the {} held-out texts are also learnt from: validation says little about unseen text",
            held.len()
        ));
    }
    if !found.speakers.is_empty() {
        let more = match found.speakers.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = found.speakers.iter().take(NAMED).map(String::as_str).collect();
        lines.push(format!(
            "held out     {} speakers as a whole: {}{more}",
            found.speakers.len(),
            named.join(", ")
        ));
    }
    if !found.set_aside.is_empty() {
        lines.push(format!(
            "set aside    {} clips of these speakers, whose texts others read in training",
            found.set_aside.len()
        ));
    }
    lines
}

/// The utterances a run held out and those it learnt from, of the corpora as they are now.
pub fn sides(
    folder: &Path,
    corpora: &Corpora,
    plan: &Plan,
) -> anyhow::Result<(Vec<Utterance>, Vec<Utterance>)> {
    let utterances = corpora.utterances();
    let kept = Kept::of(folder, true)?;
    let found = split(&utterances, corpora.training_utterances(), plan, kept.as_ref())?;
    let of = |side: &[usize]| side.iter().map(|&at| utterances[at].clone()).collect();
    Ok((of(&found.split.validation), of(&found.split.train)))
}

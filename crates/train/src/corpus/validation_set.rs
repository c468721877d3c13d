//! The validation set of a run: chosen when the run begins, saved in its folder, and read from there afterwards.

use super::{CorpusError, CorpusSet};
use myxtts_data::dataset::split::{Clip, HeldOut, Split, Unit, hold_out, split_by_id, text_key};
use myxtts_data::utterance::Utterance;
use myxtts_run::durable::DurableError;
use myxtts_run::folder::{HELD_OUT_FILE, RunFolder};
use myxtts_run::plan::Plan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Number of speakers that are listed by name.
const NAMED_SPEAKERS: usize = 5;

/// The validation set of a run, as it is saved in the run folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationSet {
    /// The validation corpus (`data.val_data`); `None` if clips of the training corpora were held out.
    pub corpus: Option<PathBuf>,
    /// What was kept together on one side of the split.
    pub unit: Unit,
    /// Speakers with all their clips in the validation set.
    pub speakers: Vec<String>,
    /// Ids of the validation clips.
    pub clips: Vec<String>,
    /// Ids of clips that are in neither set.
    pub set_aside: Vec<String>,
}

/// The split that an earlier start of a run has used.
pub enum SavedSplit {
    /// Listed in the run folder.
    Listed(ValidationSet),
    /// Chosen by clip ids: a version without such lists began the run.
    ById,
}

impl SavedSplit {
    /// The split of a run; `None` if the run has not trained yet and may choose a new one.
    pub fn load(folder: &Path, has_begun: bool) -> Result<Option<SavedSplit>, CorpusError> {
        if !has_begun {
            return Ok(None);
        }
        let path = folder.join(HELD_OUT_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(listed) => Ok(Some(SavedSplit::Listed(listed))),
                Err(source) => Err(CorpusError::DamagedSplit { path, source }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Some(SavedSplit::ById)),
            Err(source) => Err(CorpusError::Read { path, source }),
        }
    }
}

/// Splits records into training and validation: as the run has saved it, by the validation corpus (the first `training`
/// utterances come before it), or by a new choice.
pub fn split(
    utterances: &[Utterance],
    training: usize,
    plan: &Plan,
    saved: Option<&SavedSplit>,
) -> Result<HeldOut, CorpusError> {
    let (fraction, seed) = (plan.data.val_fraction, plan.training.seed);
    match (saved, &plan.data.val_data) {
        (Some(SavedSplit::Listed(listed)), _) => Ok(listed_split(utterances, listed)),
        (Some(SavedSplit::ById), _) => {
            let split = split_by_id(utterances.iter().map(|u| u.id.as_str()), fraction, seed);
            Ok(HeldOut { split, unit: Unit::Clip, ..HeldOut::default() })
        }
        (None, Some(corpus)) => {
            if training == utterances.len() {
                return Err(CorpusError::EmptyValidation { corpus: corpus.clone() });
            }
            let split =
                Split { train: (0..training).collect(), validation: (training..utterances.len()).collect() };
            let clips = split.validation.len();
            if shared_clips(utterances, &split) == clips {
                return Err(CorpusError::ValidatedOnTraining { corpus: corpus.clone(), clips });
            }
            Ok(HeldOut { split, ..HeldOut::default() })
        }
        (None, None) => {
            let clips: Vec<Clip<'_>> = utterances
                .iter()
                .map(|Utterance { id, text, speaker, .. }| Clip { id, text, speaker })
                .collect();
            Ok(hold_out(&clips, fraction, seed))
        }
    }
}

/// Number of validation clips whose audio file is also trained on: two metadata files may list the same clips.
fn shared_clips(utterances: &[Utterance], split: &Split) -> usize {
    // Few folders hold many files.
    let mut folders: HashMap<PathBuf, PathBuf> = HashMap::new();
    let mut file = |at: &usize| {
        let audio = &utterances[*at].audio;
        let folder = audio.parent().unwrap_or(Path::new(""));
        let real = folders
            .entry(folder.to_owned())
            .or_insert_with(|| folder.canonicalize().unwrap_or_else(|_| folder.to_owned()));
        real.join(audio.file_name().unwrap_or_default())
    };
    let trained: HashSet<PathBuf> = split.train.iter().map(&mut file).collect();
    split.validation.iter().filter(|at| trained.contains(&file(at))).count()
}

/// Listed clips that the corpus no longer has are ignored: whether the corpus may change is checked elsewhere.
fn listed_split(utterances: &[Utterance], listed: &ValidationSet) -> HeldOut {
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

impl ValidationSet {
    /// The list that is saved of a split.
    pub(crate) fn from_split(found: &HeldOut, utterances: &[Utterance], plan: &Plan) -> ValidationSet {
        let ids = |side: &[usize]| side.iter().map(|&at| utterances[at].id.clone()).collect();
        ValidationSet {
            corpus: plan.data.val_data.clone(),
            unit: found.unit,
            speakers: found.speakers.clone(),
            clips: ids(&found.split.validation),
            set_aside: ids(&found.set_aside),
        }
    }

    /// Writes the list to a run folder.
    pub fn save(&self, folder: &RunFolder) -> Result<(), DurableError> {
        let json = serde_json::to_vec_pretty(self).expect("names and numbers are JSON");
        myxtts_run::durable::write(&folder.path().join(HELD_OUT_FILE), &json)
    }
}

/// Describes the validation set in a few lines; none if it is empty.
pub fn describe(found: &HeldOut, utterances: &[Utterance], plan: &Plan) -> Vec<String> {
    let texts = |side: &[usize]| -> BTreeSet<String> {
        side.iter().map(|&at| text_key(&utterances[at].text)).collect()
    };
    let (held, trained) = (texts(&found.split.validation), texts(&found.split.train));
    let count = found.split.validation.len();
    if count == 0 {
        return Vec::new();
    }
    let both = held.intersection(&trained).count();
    let mut lines = Vec::new();
    if let Some(corpus) = &plan.data.val_data {
        let speakers: BTreeSet<&str> =
            found.split.validation.iter().map(|&at| utterances[at].speaker.as_str()).collect();
        let shared = match shared_clips(utterances, &found.split) {
            0 => "no clip of the training corpora".to_owned(),
            shared => format!("{shared} of them are also trained on, and should be in one corpus only"),
        };
        lines.push(format!(
            "validation   all {count} usable clips of {}: {} texts, {} speakers; {shared}",
            corpus.display(),
            held.len(),
            speakers.len()
        ));
    } else if found.unit == Unit::Clip {
        lines.push(format!("validation   {count} clips, chosen one by one: {} texts", held.len()));
    } else {
        lines.push(format!("validation   {count} clips: {} texts that are not trained on", held.len()));
    }
    if both > 0 {
        lines.push(format!(
            "note: {both} of the {} validation texts are also trained on: validation says little about unseen text",
            held.len()
        ));
    }
    if !found.speakers.is_empty() {
        let more = match found.speakers.len().saturating_sub(NAMED_SPEAKERS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = found.speakers.iter().take(NAMED_SPEAKERS).map(String::as_str).collect();
        lines[0] += &format!(
            ", among them all clips of {} speaker{}: {}{more}",
            found.speakers.len(),
            if found.speakers.len() == 1 { "" } else { "s" },
            named.join(", ")
        );
    }
    if !found.set_aside.is_empty() {
        lines.push(format!(
            "set aside    {} clips of these speakers, because their texts are trained on in other voices",
            found.set_aside.len()
        ));
    }
    lines
}

/// The utterances of the validation set of a run and those it trained on, from the corpora as they are now.
pub fn partition(
    folder: &Path,
    corpora: &CorpusSet,
    plan: &Plan,
) -> Result<(Vec<Utterance>, Vec<Utterance>), CorpusError> {
    let utterances = corpora.utterances();
    let saved = SavedSplit::load(folder, true)?;
    let found = split(&utterances, corpora.training_utterances(), plan, saved.as_ref())?;
    let of = |side: &[usize]| side.iter().map(|&at| utterances[at].clone()).collect();
    Ok((of(&found.split.validation), of(&found.split.train)))
}

//! The corpora of a run: those it trains on and the one it validates on, and their records as one source.
//!
//! Each corpus has its own layout and cache; all share one vocabulary, built from everything that is trained on.
//! If a run trains on several corpora, ids begin with the corpus's label. A speaker's name that occurs in two training
//! corpora means two people, unless `data.speaker` names it; in a validation corpus the same name means the same person.

use super::features::cache_for;
use super::records::is_unwritable;
use super::{CorpusError, FeatureSetup, RecordMode, prepare_options, read, report_problems};
use myxtts_data::cache::CacheError;
use myxtts_data::dataset::Corpus;
use myxtts_data::record::{JoinInput, JoinedSource, RecordSource, SharedSpeakers, joined_id};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_data::utterance::Utterance;
use myxtts_run::lock::{FolderLock, LockError};
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The corpora of a run, as declared by their metadata.
pub struct CorpusSet {
    /// Corpora that are trained on; at least one.
    pub training: Vec<Corpus>,
    /// A corpus of its own for validation.
    pub validation: Option<Corpus>,
    /// A unique label for each, the validation corpus last.
    labels: Vec<String>,
}

/// The records of all corpora.
pub struct OpenedSet {
    /// Training corpora first, the validation corpus last.
    pub source: Arc<dyn RecordSource>,
    /// The vocabulary that the texts are tokenised with.
    pub tokenizer: Tokenizer,
    /// The utterance of each record, with the id and the speaker's name it has in `source`.
    pub utterances: Vec<Utterance>,
    /// Number of records of the training corpora.
    pub training: usize,
}

/// What to do if another process is writing in the cache folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLocked {
    /// Wait until it is finished.
    Wait,
    /// Return an error.
    Fail,
}

impl CorpusSet {
    /// Reads the corpora of a run; the demo corpus for training if the settings name none.
    pub fn read(plan: &DataPlan, progress: &dyn Progress) -> Result<CorpusSet, CorpusError> {
        CorpusSet::read_or(plan, progress, read::read_demo_voice)
    }

    /// Reads the corpora of a plan; `demo` provides the one that is used if the settings name none.
    pub fn read_or(
        plan: &DataPlan,
        progress: &dyn Progress,
        demo: fn(&DataPlan, &dyn Progress) -> Result<Corpus, CorpusError>,
    ) -> Result<CorpusSet, CorpusError> {
        let paths: Vec<&Path> = plan.train_data.iter().chain(&plan.val_data).map(PathBuf::as_path).collect();
        check_unique(&paths)?;
        let mut training = Vec::new();
        for root in &plan.train_data {
            training.push(read::read_from(root, plan, progress)?);
        }
        if training.is_empty() {
            training.push(demo(plan, progress)?);
        }
        let validation = match &plan.val_data {
            Some(root) => Some(read::read_from(root, plan, progress)?),
            None => None,
        };
        let mut labels: Vec<String> = Vec::new();
        let roots: Vec<&Path> = match plan.train_data[..] {
            [] => training.iter().map(|corpus| corpus.root.as_path()).chain(paths).collect(),
            _ => paths,
        };
        for root in roots {
            let name = label(root);
            let mut own = name.clone();
            let mut number = 2;
            // Ids without a label must not look like those with this one.
            let begins = |own: &str| {
                let prefix = format!("{own}:");
                training[0].utterances.iter().any(|utterance| utterance.id.starts_with(&prefix))
            };
            while labels.contains(&own) || begins(&own) {
                own = format!("{name}-{number}");
                number += 1;
            }
            labels.push(own);
        }
        Ok(CorpusSet { training, validation, labels })
    }

    /// All corpora, the validation corpus last, each with the label that its ids begin with.
    fn all(&self) -> impl Iterator<Item = (&Corpus, Option<&str>)> {
        let several = self.training.len() > 1;
        let labelled = move |at: usize| several || at >= self.training.len();
        let corpora = self.training.iter().chain(&self.validation).zip(&self.labels).enumerate();
        corpora.map(move |(at, (corpus, label))| (corpus, labelled(at).then_some(label.as_str())))
    }

    /// The folder for files that belong to all corpora: the cache folder of the first.
    pub fn home(&self, plan: &DataPlan) -> PathBuf {
        self.homes(plan).swap_remove(0)
    }

    /// The cache folder of each corpus.
    fn homes(&self, plan: &DataPlan) -> Vec<PathBuf> {
        let several = self.training.len() > 1;
        let home = |(at, (corpus, _)): (usize, (&Corpus, Option<&str>))| match &plan.cache_dir {
            Some(dir) if at >= self.training.len() => dir.join("validation"),
            Some(dir) if several => dir.join(&self.labels[at]),
            _ => read::cache_of(corpus, plan),
        };
        self.all().enumerate().map(home).collect()
    }

    /// Chooses the vocabulary of everything that is trained on, or that of the model `base` if one is fine-tuned, and saves
    /// it under the lock of the cache before any record is computed with it.
    pub fn lock_vocabulary(
        &self,
        plan: &DataPlan,
        base: Option<&Tokenizer>,
        if_locked: IfLocked,
        stop: &Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<FeatureSetup, CorpusError> {
        let options = prepare_options(plan, stop);
        let training: Vec<&Corpus> = self.training.iter().collect();
        loop {
            let setup = match (&training[..], base) {
                ([one], Some(base)) => FeatureSetup::for_model(base, one, plan, progress)?,
                ([one], None) => FeatureSetup::for_cache(&[one], &read::cache_of(one, plan), plan, progress)?,
                (several, base) => {
                    FeatureSetup::for_several(base, several, &self.home(plan), plan, progress)?
                }
            };
            match setup.save_vocabulary(options.disk.as_ref()) {
                Err(CacheError::Lock(held @ LockError::Held { .. })) if if_locked == IfLocked::Wait => {
                    progress.say(&held.waiting_message());
                    // Then choose again: the other process may have saved a suitable one.
                    if !FolderLock::wait(&setup.cache, &options.stop).map_err(CacheError::from)? {
                        return Err(CacheError::Stopped.into());
                    }
                }
                // Records are computed on demand then, and a resumed run trains the same vocabulary again.
                Err(error) if is_unwritable(&error) && RecordMode::from_plan(plan) != RecordMode::Cached => {
                    progress.say(&format!(
                        "cannot save the vocabulary in {}: give another folder with --cache-dir",
                        setup.cache.display()
                    ));
                    return Ok(setup);
                }
                saved => {
                    saved.map_err(CorpusError::SaveVocabulary)?;
                    return Ok(setup);
                }
            }
        }
    }

    /// The cache folder of each corpus, for records tokenised with one vocabulary. The cache of a single training corpus
    /// is the folder of its vocabulary; any other is named after the vocabulary, so that a corpus can be part of several runs.
    pub fn caches(&self, setup: &FeatureSetup, plan: &DataPlan) -> Vec<PathBuf> {
        let mut caches: Vec<PathBuf> = Vec::new();
        for (at, home) in self.homes(plan).into_iter().enumerate() {
            let mut cache = match at {
                0 if self.training.len() == 1 => setup.cache.clone(),
                _ => cache_for(&home, setup.extractor.tokenizer()),
            };
            // Two metadata files of one folder are two corpora.
            if caches.contains(&cache) {
                cache = cache.join(&self.labels[at]);
            }
            caches.push(cache);
        }
        caches
    }

    /// Opens the records of all corpora, and reports the problems of each.
    pub fn open(
        &self,
        mode: RecordMode,
        setup: FeatureSetup,
        plan: &DataPlan,
        stop: &Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<OpenedSet, CorpusError> {
        if let ([corpus], None) = (&self.training[..], &self.validation) {
            report_problems(&corpus.problems, progress);
            let (source, tokenizer) = mode.open(corpus, setup, plan, stop, progress)?;
            let (utterances, training) = (self.utterances_of(&*source)?, source.len());
            return Ok(OpenedSet { source, tokenizer, utterances, training });
        }
        let caches = self.caches(&setup, plan);
        let (mut sources, mut training) = (Vec::new(), 0);
        let mut tokenizer = None;
        for (at, ((corpus, label), cache)) in self.all().zip(caches).enumerate() {
            report_problems(&corpus.problems, progress);
            let own = setup.with_cache(cache)?;
            let (source, vocabulary) = mode.open(corpus, own, plan, stop, progress)?;
            tokenizer.get_or_insert(vocabulary);
            if at < self.training.len() {
                training += source.len();
            }
            if let Some(label) = label {
                progress.say(&format!("{label}: {} clips of {}", source.len(), corpus.root.display()));
            }
            sources.push((label.map(str::to_owned), source));
        }
        let tokenizer = tokenizer.ok_or(CorpusError::Mismatch)?;
        let source = self.join(sources, plan, progress)?;
        let utterances = self.utterances_of(&*source)?;
        Ok(OpenedSet { source, tokenizer, utterances, training })
    }

    fn join(
        &self,
        sources: Vec<(Option<String>, Arc<dyn RecordSource>)>,
        plan: &DataPlan,
        progress: &dyn Progress,
    ) -> Result<Arc<dyn RecordSource>, CorpusError> {
        let training = self.training.len();
        let joining = sources.into_iter().enumerate().map(|(at, (label, source))| {
            let shared = if at < training {
                SharedSpeakers::Only(plan.speaker.clone())
            } else {
                SharedSpeakers::Names
            };
            JoinInput { source, label, shared }
        });
        let joined = JoinedSource::new(joining.collect())?;
        for (name, own) in joined.renamed() {
            progress.say(&format!(
                "note: two corpora have a speaker {name}: they count as two people, the second as {own}; if they are one \
                 person, and the corpora name no speakers, give --speaker NAME"
            ));
        }
        Ok(Arc::new(joined))
    }

    /// Every declared utterance, with the id it has among the records of all corpora.
    pub fn utterances(&self) -> Vec<Utterance> {
        let labelled = |(corpus, label): (&Corpus, Option<&str>)| {
            let label = label.map(str::to_owned);
            let id = move |u: &Utterance| Utterance { id: joined_id(label.as_deref(), &u.id), ..u.clone() };
            corpus.utterances.iter().map(id).collect::<Vec<_>>()
        };
        self.all().flat_map(labelled).collect()
    }

    /// Number of [`Self::utterances`] that are of the training corpora; they come first.
    pub(crate) fn training_utterances(&self) -> usize {
        self.training.iter().map(|corpus| corpus.utterances.len()).sum()
    }

    fn utterances_of(&self, source: &dyn RecordSource) -> Result<Vec<Utterance>, CorpusError> {
        let mut by_id: HashMap<String, Utterance> =
            self.utterances().into_iter().map(|utterance| (utterance.id.clone(), utterance)).collect();
        let of = |record: usize| {
            let mut utterance = by_id.remove(&source.id(record))?;
            let name = source.speakers().get(source.speaker(record) as usize)?;
            utterance.speaker.clone_from(name);
            Some(utterance)
        };
        let utterances: Option<Vec<Utterance>> = (0..source.len()).map(of).collect();
        utterances.ok_or(CorpusError::Mismatch)
    }
}

/// Refuses a corpus that is named twice: it would be trained on twice, or validated on what it was trained on.
fn check_unique(paths: &[&Path]) -> Result<(), CorpusError> {
    let mut seen = BTreeSet::new();
    for path in paths {
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())) {
            return Err(CorpusError::NamedTwice { path: path.to_path_buf() });
        }
    }
    Ok(())
}

/// The name of a corpus: its folder, or its metadata file without the extension.
fn label(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_file() { whole.file_stem() } else { whole.file_name() };
    let name = name.map_or("corpus".into(), |name| name.to_string_lossy());
    name.replace(':', "_")
}

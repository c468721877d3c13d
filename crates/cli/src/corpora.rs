//! The corpora of a run: those it learns from, the one it validates on, and their records as one source.
//!
//! Each is read by its own layout and has a cache of its own; the vocabulary is one, of all that is learnt from. Where several
//! are learnt from, ids begin with the corpus's name. A speaker's name that occurs in two training corpora means two people,
//! unless it is the one of `data.speaker`; a validation corpus means the same people by the same names.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use myxtts_data::cache::CacheError;
use myxtts_data::dataset::Corpus;
use myxtts_data::record::{Joined, Joining, RecordSource, Shared, joined_id};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_data::utterance::Utterance;
use myxtts_run::lock::{FolderLock, LockError};
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;

use crate::corpus::{self, Computing};
use crate::failure::UsageError;
use crate::prepare::{options_of, print_problems};
use crate::progress::Terminal;
use crate::records::{Records, is_unwritable};

/// The corpora of a run, as declared.
pub struct Corpora {
    /// What is learnt from; one at least.
    pub training: Vec<Corpus>,
    /// What is validated on, where that is a corpus of its own.
    pub validation: Option<Corpus>,
    /// Names of all of them, the validation corpus's last; no two are the same.
    labels: Vec<String>,
}

/// The records of all corpora.
pub struct Opened {
    /// Training corpora first, the validation corpus last.
    pub source: Arc<dyn RecordSource>,
    /// The vocabulary they are cut by.
    pub tokenizer: Tokenizer,
    /// Of each record its utterance, under the id and the speaker's name it has in the source.
    pub utterances: Vec<Utterance>,
    /// Records of the training corpora.
    pub training: usize,
}

impl Corpora {
    /// Reads the corpora of a plan; `demo` makes the one that is taken where none is named.
    pub fn read(
        plan: &DataPlan,
        progress: &dyn Progress,
        demo: fn(&DataPlan, &dyn Progress) -> anyhow::Result<Corpus>,
    ) -> anyhow::Result<Corpora> {
        let paths: Vec<&Path> = plan.train_data.iter().chain(&plan.val_data).map(PathBuf::as_path).collect();
        named_once(&paths)?;
        let mut training = Vec::new();
        for root in &plan.train_data {
            training.push(corpus::read_from(root, plan, progress)?);
        }
        if training.is_empty() {
            training.push(demo(plan, progress)?);
        }
        let validation = match &plan.val_data {
            Some(root) => Some(corpus::read_from(root, plan, progress)?),
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
        Ok(Corpora { training, validation, labels })
    }

    /// All of them, the validation corpus last, with what their ids begin with.
    fn all(&self) -> impl Iterator<Item = (&Corpus, Option<&str>)> {
        let several = self.training.len() > 1;
        let labelled = move |at: usize| several || at >= self.training.len();
        let corpora = self.training.iter().chain(&self.validation).zip(&self.labels).enumerate();
        corpora.map(move |(at, (corpus, label))| (corpus, labelled(at).then_some(label.as_str())))
    }

    /// The folder where what belongs to all of them is kept: the cache of the first.
    pub fn home(&self, plan: &DataPlan) -> PathBuf {
        self.homes(plan).swap_remove(0)
    }

    /// The cache folder of each.
    fn homes(&self, plan: &DataPlan) -> Vec<PathBuf> {
        let several = self.training.len() > 1;
        let home = |(at, (corpus, _)): (usize, (&Corpus, Option<&str>))| match &plan.cache_dir {
            Some(dir) if at >= self.training.len() => dir.join("validation"),
            Some(dir) if several => dir.join(&self.labels[at]),
            _ => corpus::cache_of(corpus, plan),
        };
        self.all().enumerate().map(home).collect()
    }

    /// The vocabulary of everything that is learnt from, which is a model's where one is trained further. Kept before
    /// anything is made with it. Another process that writes there is waited for, or with `wait` off an error.
    pub fn vocabulary(
        &self,
        plan: &DataPlan,
        (base, wait): (Option<&Tokenizer>, bool),
        progress: &Terminal,
    ) -> anyhow::Result<Computing> {
        let options = options_of(plan)?;
        let training: Vec<&Corpus> = self.training.iter().collect();
        loop {
            let computing = match (&training[..], base) {
                ([one], Some(base)) => corpus::extractor_of_model(base, one, plan, progress)?,
                ([one], None) => corpus::extractor(&[one], &corpus::cache_of(one, plan), plan, progress)?,
                (several, base) => {
                    corpus::extractor_of_several(base, several, &self.home(plan), plan, progress)?
                }
            };
            match computing.keep_vocabulary(options.disk.as_ref()) {
                Err(CacheError::Lock(held @ LockError::Held { .. })) if wait => {
                    progress.say(&held.waiting());
                    // Then it is chosen again: there may be one by then that serves.
                    if !FolderLock::wait(&computing.cache, &options.stop).map_err(CacheError::from)? {
                        return Err(CacheError::Stopped.into());
                    }
                }
                // Records will be computed, and the same vocabulary trained again when the run goes on.
                Err(error) if is_unwritable(&error) && Records::of(plan) != Records::Cached => {
                    progress.say(&format!(
                        "the vocabulary cannot be kept in {}: name a folder for it with --cache-dir",
                        computing.cache.display()
                    ));
                    return Ok(computing);
                }
                kept => {
                    kept.context("keeping the vocabulary")?;
                    return Ok(computing);
                }
            }
        }
    }

    /// The cache of each, for records cut by a vocabulary. That of a single training corpus is where its vocabulary is kept;
    /// any other is named by the vocabulary, so that the same corpus can be part of several runs.
    pub fn caches(&self, computing: &Computing, plan: &DataPlan) -> Vec<PathBuf> {
        let mut caches: Vec<PathBuf> = Vec::new();
        for (at, home) in self.homes(plan).into_iter().enumerate() {
            let mut cache = match at {
                0 if self.training.len() == 1 => computing.cache.clone(),
                _ => corpus::cache_for(&home, computing.extractor.tokenizer()),
            };
            // Two metadata files of one folder are two corpora.
            if caches.contains(&cache) {
                cache = cache.join(&self.labels[at]);
            }
            caches.push(cache);
        }
        caches
    }

    /// The records of all of them. What is wrong with a corpus is printed.
    pub fn open(
        &self,
        records: Records,
        computing: Computing,
        plan: &DataPlan,
        progress: &Terminal,
    ) -> anyhow::Result<Opened> {
        if let ([corpus], None) = (&self.training[..], &self.validation) {
            print_problems(&corpus.problems);
            let (source, tokenizer) = records.open(corpus, computing, plan, progress)?;
            let (utterances, training) = (self.utterances_of(&*source)?, source.len());
            return Ok(Opened { source, tokenizer, utterances, training });
        }
        let caches = self.caches(&computing, plan);
        let (mut sources, mut training) = (Vec::new(), 0);
        let mut tokenizer = None;
        for (at, ((corpus, label), cache)) in self.all().zip(caches).enumerate() {
            print_problems(&corpus.problems);
            let own = computing.in_cache(cache)?;
            let (source, vocabulary) = records.open(corpus, own, plan, progress)?;
            tokenizer.get_or_insert(vocabulary);
            if at < self.training.len() {
                training += source.len();
            }
            if let Some(label) = label {
                progress.say(&format!("{label}: {} clips of {}", source.len(), corpus.root.display()));
            }
            sources.push((label.map(str::to_owned), source));
        }
        let tokenizer = tokenizer.context("a run has one corpus at least")?;
        let source = self.join(sources, plan, progress)?;
        let utterances = self.utterances_of(&*source)?;
        Ok(Opened { source, tokenizer, utterances, training })
    }

    fn join(
        &self,
        sources: Vec<(Option<String>, Arc<dyn RecordSource>)>,
        plan: &DataPlan,
        progress: &Terminal,
    ) -> anyhow::Result<Arc<dyn RecordSource>> {
        let several = self.training.len();
        let joining = sources.into_iter().enumerate().map(|(at, (label, source))| {
            let shared = if at < several { Shared::Only(plan.speaker.clone()) } else { Shared::Names };
            Joining { source, label, shared }
        });
        let joined = Joined::new(joining.collect())?;
        for (name, own) in joined.renamed() {
            progress.say(&format!(
                "note: two corpora have a speaker {name}: they are taken for two people, the second as {own}; where they are \
                 one, and the corpora name no speakers, give --speaker NAME"
            ));
        }
        Ok(Arc::new(joined))
    }

    /// Every utterance that is declared, under the id it has among the records of all corpora.
    pub fn utterances(&self) -> Vec<Utterance> {
        let labelled = |(corpus, label): (&Corpus, Option<&str>)| {
            let label = label.map(str::to_owned);
            let id = move |u: &Utterance| Utterance { id: joined_id(label.as_deref(), &u.id), ..u.clone() };
            corpus.utterances.iter().map(id).collect::<Vec<_>>()
        };
        self.all().flat_map(labelled).collect()
    }

    /// How many of [`Self::utterances`] are of the training corpora; they come first.
    pub fn training_utterances(&self) -> usize {
        self.training.iter().map(|corpus| corpus.utterances.len()).sum()
    }

    fn utterances_of(&self, source: &dyn RecordSource) -> anyhow::Result<Vec<Utterance>> {
        let mut by_id: HashMap<String, Utterance> =
            self.utterances().into_iter().map(|utterance| (utterance.id.clone(), utterance)).collect();
        let of = |record: usize| {
            let mut utterance = by_id.remove(&source.id(record))?;
            let name = source.speakers().get(source.speaker(record) as usize)?;
            utterance.speaker.clone_from(name);
            Some(utterance)
        };
        let utterances: Option<Vec<Utterance>> = (0..source.len()).map(of).collect();
        utterances.context("the prepared records are not those of the corpus: run `myxtts prepare` again")
    }
}

/// A corpus that is named twice would be learnt twice, or validated on what was learnt.
fn named_once(paths: &[&Path]) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for path in paths {
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())) {
            let path = path.display();
            return Err(UsageError(format!(
                "{path} is named twice among data.train_data and data.val_data: name every corpus once"
            ))
            .into());
        }
    }
    Ok(())
}

/// What a corpus is called: its folder, or its metadata file without the ending.
fn label(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_file() { whole.file_stem() } else { whole.file_name() };
    let name = name.map_or("corpus".into(), |name| name.to_string_lossy());
    name.replace(':', "_")
}

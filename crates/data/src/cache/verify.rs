//! Reads everything in a store and reports what is wrong. It writes nothing; [`repair`] does, and rebuilds only what is
//! broken or stale.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use myxtts_run::progress::Progress;
use serde::Serialize;

use super::featurizer::Featurizer;
use super::fingerprint::{self, Hash, failure_key, record_key};
use super::index::{Index, IndexBuilder};
use super::names::{INDEX_FILE, Listing, ShardName, sort_key};
use super::prepare::{Partition, PrepareOptions, PrepareReport, prepare};
use super::shard::SealedShard;
use super::{CacheError, source, workers};
use crate::utterance::Utterance;

/// Kinds of damage and staleness of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The index is missing, damaged, or does not match the seals.
    Index,
    /// A seal is missing or damaged.
    Seal,
    /// An array file is missing, has the wrong length or another header.
    ArrayFile,
    /// The checksum of an array does not match.
    Record,
    /// No index names the file: an interrupted `prepare` left it.
    Leftover,
    /// The store was made with other settings.
    Recipe,
    /// An utterance of the corpus is not in the store.
    NotInStore,
    /// A record of the store is no longer in the corpus.
    NotInCorpus,
    /// The audio file has changed.
    SourceChanged,
    /// Text, speaker or language has changed.
    DeclarationChanged,
}

/// One thing that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Category, for counting and filtering.
    pub kind: FindingKind,
    /// Affected file.
    pub file: PathBuf,
    /// Affected utterance; `None` if the finding concerns a whole file.
    pub id: Option<String>,
    /// Message for people.
    pub detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{}: {id}: {}", self.file.display(), self.detail),
            None => write!(f, "{}: {}", self.file.display(), self.detail),
        }
    }
}

/// Result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Shards examined.
    pub shards: u64,
    /// Records in the examined shards.
    pub records: u64,
    /// Bytes of arrays whose checksum matched.
    pub bytes: u64,
    /// Utterances recorded as failed; they are not damage.
    pub failures: u64,
    /// What is wrong, sorted by kind, file and utterance.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Returns whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks every record, seal, header and the index, and compares them with the corpus if it is given.
pub fn verify(
    dir: &Path,
    corpus: Option<(&[Utterance], &dyn Featurizer)>,
    workers: usize,
    progress: &dyn Progress,
) -> Result<VerifyReport, CacheError> {
    let listing = match Listing::read(dir) {
        Err(CacheError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Listing::default()
        }
        other => other?,
    };
    let index = Index::open(&dir.join(INDEX_FILE));
    let mut check = Check { dir, corpus: None, report: Mutex::default() };
    let names: Vec<ShardName> = match &index {
        Ok(index) => (0..index.shards()).map(|shard| index.shard(shard).name).collect(),
        Err(error) => {
            check.report_index(error);
            listing.seals.clone()
        }
    };
    if let (Ok(index), Some((utterances, featurizer))) = (&index, corpus) {
        check.set_corpus(index, utterances, featurizer);
    }

    progress.start("verify", names.len() as u64);
    workers::for_each(workers, names.len(), &AtomicBool::new(false), |at| {
        check.shard(names[at]);
        progress.advance(1);
        Ok(())
    })?;
    progress.finish();

    if let Ok(index) = &index {
        check.leftovers(&listing, &names);
        check.compare_index(index, &names);
    }
    let mut report = check.report.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    report.shards = names.len() as u64;
    report.findings.sort();
    Ok(report)
}

/// Rebuilds only what is broken or stale: the result has the bytes of a fresh store.
pub fn repair(
    dir: &Path,
    utterances: &[Utterance],
    featurizer: &dyn Featurizer,
    options: &PrepareOptions,
    progress: &dyn Progress,
) -> Result<PrepareReport, CacheError> {
    let options = PrepareOptions { thorough: true, ..options.clone() };
    prepare(dir, utterances, featurizer, &options, progress)
}

struct Check<'a> {
    dir: &'a Path,
    corpus: Option<Corpus<'a>>,
    report: Mutex<VerifyReport>,
}

struct Corpus<'a> {
    recipe: Hash,
    shards: Vec<Vec<&'a Utterance>>,
}

impl<'a> Check<'a> {
    fn add(&self, kind: FindingKind, file: PathBuf, id: Option<&str>, detail: String) {
        self.update(|report| report.findings.push(Finding { kind, file, id: id.map(str::to_owned), detail }));
    }

    fn update(&self, act: impl FnOnce(&mut VerifyReport)) {
        act(&mut self.report.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    fn report_index(&self, error: &CacheError) {
        let detail = match error {
            CacheError::Damaged { what, .. } => what.clone(),
            CacheError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "it does not exist: the cache was never finished".into()
            }
            CacheError::Read { source, .. } => format!("it cannot be read: {source}"),
            other => other.to_string(),
        };
        self.add(FindingKind::Index, self.dir.join(INDEX_FILE), None, detail);
    }

    /// Distributes the utterances of the corpus over the shards of the store.
    fn set_corpus(&mut self, index: &Index, utterances: &'a [Utterance], featurizer: &dyn Featurizer) {
        let recipe = fingerprint::recipe(featurizer.columns(), &featurizer.fingerprint());
        if recipe != index.recipe() {
            let detail =
                "it was made with other settings, another vocabulary or another version of the program"
                    .into();
            self.add(FindingKind::Recipe, self.dir.join(INDEX_FILE), None, detail);
            // Every record is stale for this one reason; a finding per record would bury it.
            return;
        }
        self.corpus = Some(Corpus { recipe, shards: Partition::new(utterances, index.shards()).shards });
    }

    fn shard(&self, name: ShardName) {
        let shard = match SealedShard::load(self.dir, name) {
            Ok(shard) => shard,
            Err(error) => {
                let detail = match error {
                    CacheError::Damaged { what, .. } => what,
                    CacheError::Read { source, .. } => format!("it cannot be read: {source}"),
                    other => other.to_string(),
                };
                return self.add(FindingKind::Seal, self.dir.join(name.seal()), None, detail);
            }
        };
        for column in 0..shard.seal.columns.len() {
            match shard.check_file(column) {
                Ok(()) => self.arrays(&shard, column),
                Err(error) => {
                    self.add(FindingKind::ArrayFile, shard.array_path(column), None, error.to_string());
                }
            }
        }
        self.update(|report| {
            report.records += shard.seal.records.len() as u64;
            report.failures += shard.seal.failures.len() as u64;
        });
        if let Some(corpus) = &self.corpus {
            self.compare(corpus, &shard);
        }
    }

    fn arrays(&self, shard: &SealedShard, column: usize) {
        let mut bytes = 0;
        for (at, record) in shard.seal.records.iter().enumerate() {
            match shard.array(at, column) {
                Some(array) => bytes += array.len() as u64,
                None => self.add(
                    FindingKind::Record,
                    shard.array_path(column),
                    Some(&record.id),
                    "its checksum does not match".into(),
                ),
            }
        }
        self.update(|report| report.bytes += bytes);
    }

    fn compare(&self, corpus: &Corpus, shard: &SealedShard) {
        let wanted = &corpus.shards[shard.seal.shard as usize];
        let seal_path = || self.dir.join(shard.name.seal());
        for utterance in wanted {
            let digest = source::read(&utterance.audio).1;
            let key = record_key(&corpus.recipe, utterance, &digest);
            let (kind, detail) = match shard.seal.find(&utterance.id) {
                Some(at) if shard.seal.records[at].key == key => continue,
                Some(at) if shard.seal.records[at].source != digest => {
                    (FindingKind::SourceChanged, format!("{} has changed", utterance.audio.display()))
                }
                Some(_) => {
                    let detail = format!("text, speaker or language changed in {}", utterance.origin);
                    (FindingKind::DeclarationChanged, detail)
                }
                None => match shard.seal.find_failure(&utterance.id) {
                    Some(failure) if failure.key == failure_key(&key, utterance) => continue,
                    Some(_) => {
                        let detail = "it failed before and has changed since".into();
                        (FindingKind::SourceChanged, detail)
                    }
                    None => (FindingKind::NotInStore, format!("it is new in {}", utterance.origin)),
                },
            };
            self.add(kind, seal_path(), Some(&utterance.id), detail);
        }
        let stored = shard.seal.records.iter().map(|record| &record.id);
        let stored = stored.chain(shard.seal.failures.iter().map(|failure| &failure.id));
        for id in stored {
            if wanted.binary_search_by(|utterance| sort_key(&utterance.id).cmp(&sort_key(id))).is_err() {
                let detail = "it is no longer in the corpus".into();
                self.add(FindingKind::NotInCorpus, seal_path(), Some(id), detail);
            }
        }
    }

    fn leftovers(&self, listing: &Listing, names: &[ShardName]) {
        let named: HashSet<&ShardName> = names.iter().collect();
        let seals = listing.seals.iter().map(|shard| (shard, shard.seal()));
        let arrays = listing.arrays.iter().map(|(shard, file)| (shard, file.clone()));
        let others = seals.chain(arrays).filter(|(shard, _)| !named.contains(shard)).map(|(_, file)| file);
        for file in others.chain(listing.unfinished.iter().cloned()) {
            let detail = "an interrupted `prepare` left it".into();
            self.add(FindingKind::Leftover, self.dir.join(file), None, detail);
        }
    }

    /// Checks that the index is byte for byte the one built from these seals.
    fn compare_index(&self, index: &Index, names: &[ShardName]) {
        let mut builder = IndexBuilder::new(index.columns().to_vec(), index.recipe(), index.shards());
        for name in names {
            // An unreadable seal was reported already, and nothing can be compared without it.
            let Ok(shard) = SealedShard::load(self.dir, *name) else { return };
            if let Err(error) = builder.seal(&shard.seal, &shard.hash) {
                return self.add(FindingKind::Seal, self.dir.join(name.seal()), None, error.to_string());
            }
        }
        if !builder.finish().is_ok_and(|image| image.matches(index.bytes())) {
            let detail = "it does not match the seals".into();
            self.add(FindingKind::Index, self.dir.join(INDEX_FILE), None, detail);
        }
    }
}

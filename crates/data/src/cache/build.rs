//! Builds one shard from its utterances. An unchanged shard is kept; otherwise it is rewritten, with valid records copied
//! from old shards and only the rest computed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use myxtts_run::durable::Disk;
use myxtts_run::lock::FolderLock;
use myxtts_run::progress::Progress;

use super::CacheError;
use super::featurizer::{self, Featurizer};
use super::fingerprint::{Hash, failure_key, record_key};
use super::names::{ShardName, sort_key};
use super::seal::{Failure, Seal, SealedRecord, StoredColumn};
use super::shard::{SealedShard, ShardWriter};
use super::source::{self, SourceDigest};
use crate::problem::Problem;
use crate::utterance::Utterance;

/// State shared by all workers of a `prepare`.
pub(super) struct Job<'a> {
    pub(super) dir: &'a Path,
    pub(super) disk: &'a dyn Disk,
    pub(super) featurizer: &'a dyn Featurizer,
    pub(super) columns: Vec<StoredColumn>,
    pub(super) recipe: Hash,
    pub(super) shards: u32,
    /// Verify the checksum of every record before a shard is kept.
    pub(super) thorough: bool,
    /// Failures in the whole corpus so far.
    pub(super) failed: AtomicU64,
    /// Utterances in the whole corpus.
    pub(super) total: u64,
    /// Fraction of `total` that may fail.
    pub(super) budget: f64,
    pub(super) stop: &'a AtomicBool,
    pub(super) halt: AtomicBool,
    /// Write lock, which can be lost; `None` if nothing is written.
    pub(super) lock: Option<&'a FolderLock>,
    pub(super) progress: &'a dyn Progress,
}

/// Result of building a shard.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) name: ShardName,
    pub(super) hash: Hash,
    pub(super) kept: bool,
    pub(super) computed: u64,
    pub(super) copied: u64,
    pub(super) problems: Vec<Problem>,
}

impl Job<'_> {
    /// Builds shard `shard` from `utterances`: exactly those that belong to it, in ascending order of their sort keys. `old`
    /// names seals in the folder that may hold some of them.
    pub(super) fn build(
        &self,
        shard: u32,
        utterances: &[&Utterance],
        old: &[ShardName],
    ) -> Result<Built, CacheError> {
        let old = self.load(old);
        let digests = if old.is_empty() { Vec::new() } else { self.digests(utterances)? };
        let built = match self.find_unchanged(shard, utterances, &old, &digests)? {
            Some(kept) => {
                self.progress.advance(utterances.len() as u64);
                kept
            }
            None => self.write(shard, utterances, &old, &digests)?,
        };
        Ok(built)
    }

    /// Returns the existing shard as [`Self::build`] would, or `None` if it has to be built.
    pub(super) fn keep(
        &self,
        shard: u32,
        utterances: &[&Utterance],
        old: &[ShardName],
    ) -> Result<Option<Built>, CacheError> {
        let old = self.load(old);
        if old.is_empty() {
            return Ok(None);
        }
        self.find_unchanged(shard, utterances, &old, &self.digests(utterances)?)
    }

    /// Returns the old shard that is identical to the one that would be built.
    fn find_unchanged(
        &self,
        shard: u32,
        utterances: &[&Utterance],
        old: &[SealedShard],
        digests: &[SourceDigest],
    ) -> Result<Option<Built>, CacheError> {
        let kept = old.iter().find(|old| {
            let same_shard = (old.seal.shard, old.seal.shards) == (shard, self.shards);
            same_shard && self.holds_exactly(&old.seal, utterances, digests) && self.intact(old)
        });
        let Some(old) = kept else { return Ok(None) };
        let problems = self.problems(&old.seal, utterances);
        self.count_failures(&problems)?;
        Ok(Some(Built { name: old.name, hash: old.hash, kept: true, computed: 0, copied: 0, problems }))
    }

    /// Loads the old shards that are readable and have the current recipe and columns.
    fn load(&self, names: &[ShardName]) -> Vec<SealedShard> {
        let load = |name: &ShardName| match SealedShard::load(self.dir, *name) {
            Ok(old) if old.seal.recipe == self.recipe && old.seal.columns == self.columns => Some(old),
            Ok(_) => None,
            Err(error) => {
                self.progress.say(&format!("{error}; its records are computed again"));
                None
            }
        };
        names.iter().filter_map(load).collect()
    }

    /// Reads and hashes every audio file.
    fn digests(&self, utterances: &[&Utterance]) -> Result<Vec<SourceDigest>, CacheError> {
        let digest = |utterance: &&Utterance| {
            self.check_stop()?;
            Ok(source::read(&utterance.audio).1)
        };
        utterances.iter().map(digest).collect()
    }

    fn holds_exactly(&self, seal: &Seal, utterances: &[&Utterance], digests: &[SourceDigest]) -> bool {
        seal.records.len() + seal.failures.len() == utterances.len()
            && utterances.iter().zip(digests).all(|(utterance, digest)| {
                let key = record_key(&self.recipe, utterance, digest);
                match seal.find(&utterance.id) {
                    Some(record) => seal.records[record].key == key,
                    None => seal
                        .find_failure(&utterance.id)
                        .is_some_and(|failure| failure.key == failure_key(&key, utterance)),
                }
            })
    }

    fn intact(&self, old: &SealedShard) -> bool {
        (0..self.columns.len()).all(|column| match old.check_file(column) {
            Ok(()) => true,
            Err(error) => {
                self.progress.say(&format!("{}: {error}", old.array_path(column).display()));
                false
            }
        }) && (!self.thorough || (0..old.seal.records.len()).all(|record| old.arrays(record).is_some()))
    }

    fn write(
        &self,
        shard: u32,
        utterances: &[&Utterance],
        old: &[SealedShard],
        digests: &[SourceDigest],
    ) -> Result<Built, CacheError> {
        let mut writer =
            ShardWriter::new(self.disk, self.dir, shard, self.shards, self.recipe, &self.columns);
        let (mut computed, mut copied) = (0, 0);
        let mut problems = Vec::new();
        for (at, utterance) in utterances.iter().enumerate() {
            self.check_stop()?;
            let known = digests.get(at).map(|digest| record_key(&self.recipe, utterance, digest));
            let reused = match &known {
                Some(key) => reuse(old, utterance, key, &mut writer)?,
                None => Reuse::Nothing,
            };
            let failure = match reused {
                Reuse::Nothing => {
                    computed += 1;
                    self.compute(utterance, &mut writer)?
                }
                Reuse::Record => {
                    copied += 1;
                    None
                }
                Reuse::Failure(failure) => {
                    copied += 1;
                    Some(failure)
                }
            };
            if let Some(failure) = failure {
                problems.push(failure.problem(utterance.origin.clone()));
                writer.fail(failure);
                self.count_failures(&problems[problems.len() - 1..])?;
            }
            self.progress.advance(1);
        }
        let (seal, hash) = writer.finish()?;
        let name = ShardName::new(seal.shard, seal.shards, &hash);
        Ok(Built { name, hash, kept: false, computed, copied, problems })
    }

    /// Computes and adds a record; returns the failure if that is not possible.
    fn compute(
        &self,
        utterance: &Utterance,
        writer: &mut ShardWriter,
    ) -> Result<Option<Failure>, CacheError> {
        let (bytes, source) = source::read(&utterance.audio);
        let key = record_key(&self.recipe, utterance, &source);
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Some(why.failure(&utterance.id, failure_key(&key, utterance)))),
        };
        match featurizer::compute(self.featurizer, utterance, &bytes) {
            Ok(features) => {
                let record = SealedRecord {
                    id: utterance.id.clone(),
                    speaker: utterance.speaker.clone(),
                    language: utterance.language.clone(),
                    key,
                    source,
                    seconds: features.seconds,
                    arrays: Vec::with_capacity(features.arrays.len()),
                };
                writer.push(record, &features.arrays)?;
                Ok(None)
            }
            Err(problem) => Ok(Some(Failure {
                id: utterance.id.clone(),
                key: failure_key(&key, utterance),
                kind: problem.kind,
                severity: problem.severity,
                detail: problem.detail,
            })),
        }
    }

    pub(super) fn problems(&self, seal: &Seal, utterances: &[&Utterance]) -> Vec<Problem> {
        let origin = |failure: &Failure| {
            let at = utterances.binary_search_by_key(&sort_key(&failure.id), |u| sort_key(&u.id)).ok()?;
            Some(failure.problem(utterances[at].origin.clone()))
        };
        seal.failures.iter().filter_map(origin).collect()
    }

    /// Counts failures and returns an error once they exceed the budget.
    pub(super) fn count_failures(&self, problems: &[Problem]) -> Result<(), CacheError> {
        let more = problems.len() as u64;
        let failed = self.failed.fetch_add(more, Ordering::Relaxed) + more;
        // Later successes cannot bring the corpus back within its budget.
        if failed as f64 > self.budget * self.total as f64 {
            let (total, budget, problems) = (self.total, self.budget, problems.to_vec());
            return Err(CacheError::OverBudget { failed, total, budget, problems });
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), CacheError> {
        if self.stop.load(Ordering::Relaxed) || self.halt.load(Ordering::Acquire) {
            return Err(CacheError::Stopped);
        }
        match self.lock {
            Some(lock) => Ok(lock.check()?),
            None => Ok(()),
        }
    }
}

/// What the old shards hold for an utterance.
enum Reuse {
    Nothing,
    /// A record, already copied.
    Record,
    Failure(Failure),
}

/// Copies the record of an utterance from an old shard that holds it unchanged and undamaged.
fn reuse(
    old: &[SealedShard],
    utterance: &Utterance,
    key: &Hash,
    writer: &mut ShardWriter,
) -> Result<Reuse, CacheError> {
    for old in old {
        if let Some(at) = old.seal.find(&utterance.id) {
            let record = &old.seal.records[at];
            if record.key == *key
                && let Some(arrays) = old.arrays(at)
            {
                writer.push(record.clone(), &arrays)?;
                return Ok(Reuse::Record);
            }
        } else if let Some(failure) = old.seal.find_failure(&utterance.id)
            && failure.key == failure_key(key, utterance)
        {
            return Ok(Reuse::Failure(failure.clone()));
        }
    }
    Ok(Reuse::Nothing)
}

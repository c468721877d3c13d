//! Whether a store has to be written at all: asked without its lock, by any number of processes at once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;

use myxtts_run::lock::LOCK_FILE;
use myxtts_run::progress::Progress;

use super::build::{Built, Job};
use super::fingerprint::record_key;
use super::index::Index;
use super::names::{INDEX_FILE, Listing, ShardName};
use super::prepare::{Partition, PrepareReport, assemble, hex};
use super::seal::Seal;
use super::shard::SealedShard;
use super::{CacheError, workers};
use crate::utterance::Utterance;

/// A store that is what `prepare` would make of it.
pub(super) struct Whole {
    pub(super) report: PrepareReport,
    /// Nothing lies beside it: no files of a writer that died, or of one that is at work.
    pub(super) is_tidy: bool,
}

impl Job<'_> {
    /// Looks at a finished store; none where something is missing, damaged or stale, or changes at this moment.
    ///
    /// It finds what building under the lock would find, because it asks the same questions. Whatever is not as it should
    /// be is only noticed here: who has the lock asks again, and says it.
    pub(super) fn whole(
        &self,
        partition: &Partition,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Option<Whole>, CacheError> {
        let Ok(index) = Index::open(&self.dir.join(INDEX_FILE)) else { return Ok(None) };
        let of_today = index.recipe() == self.recipe && index.columns() == self.columns;
        if !of_today || index.shards() != self.shards {
            return Ok(None);
        }
        let names: Vec<ShardName> = (0..self.shards).map(|shard| index.shard(shard).name).collect();
        // What was declared first: for what was recorded every sound is read, and where the store turns out to be stale
        // after all, they are read again under the lock.
        for (name, members) in names.iter().zip(&partition.shards) {
            match SealedShard::load(self.dir, *name) {
                Ok(shard) if self.declares(&shard.seal, members) => {}
                _ => return Ok(None),
            }
        }
        progress.start("compare", partition.shards.iter().map(|members| members.len() as u64).sum());
        let built: Mutex<Vec<Built>> = Mutex::new(Vec::with_capacity(names.len()));
        let outcome = workers::deal(threads, names.len(), &self.halt, |shard| {
            let members = &partition.shards[shard];
            let done = self.keep(shard as u32, members, &[names[shard]])?;
            let stale = || CacheError::NoStore { dir: self.dir.to_owned() };
            built.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(done.ok_or_else(stale)?);
            progress.advance(members.len() as u64);
            Ok(())
        });
        progress.finish();
        match outcome {
            Ok(()) => {}
            Err(CacheError::Stopped) => return Err(CacheError::Stopped),
            Err(_) => return Ok(None),
        }
        let built = built.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (mut report, built) = PrepareReport::of(partition, self.total, built);
        match assemble(self, &built, &mut report) {
            Ok(image) if image.is(index.bytes()) => report.fingerprint = hex(&image.content()),
            _ => return Ok(None),
        }
        Ok(Some(Whole { report, is_tidy: is_tidy(self.dir, &names) }))
    }

    /// Was this shard made of these utterances, as far as that can be told without their sounds?
    pub(super) fn declares(&self, seal: &Seal, utterances: &[&Utterance]) -> bool {
        seal.records.len() + seal.failures.len() == utterances.len()
            && utterances.iter().all(|utterance| match seal.find(&utterance.id) {
                Some(at) => {
                    let record = &seal.records[at];
                    record.key == record_key(&self.recipe, utterance, &record.source)
                }
                None => seal.find_failure(&utterance.id).is_some(),
            })
    }
}

/// Is there nothing in the folder but what the index names? A lock file that is not empty was left by a writer that was
/// killed, or one writes now.
fn is_tidy(dir: &Path, names: &[ShardName]) -> bool {
    let Ok(listing) = Listing::read(dir) else { return false };
    let named: HashSet<&ShardName> = names.iter().collect();
    listing.unfinished.is_empty()
        && listing.seals.iter().all(|shard| named.contains(shard))
        && listing.arrays.iter().all(|(shard, _)| named.contains(shard))
        && std::fs::metadata(dir.join(LOCK_FILE)).map_or(true, |lock| lock.len() == 0)
}

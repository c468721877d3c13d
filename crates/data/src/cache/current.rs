//! Checks whether a store has to be written at all. Takes no lock, so any number of processes can check at once.

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

/// A store that is identical to what `prepare` would make.
pub(super) struct CurrentStore {
    pub(super) report: PrepareReport,
    /// Whether the folder holds no other files, such as those of a killed or running writer.
    pub(super) is_tidy: bool,
}

impl Job<'_> {
    /// Examines a finished store; `None` if anything is missing, damaged or stale, or changes during the check.
    ///
    /// It applies the same checks as building under the lock. Problems are not reported here: the process that takes the
    /// lock repeats the checks and reports them.
    pub(super) fn find_current(
        &self,
        partition: &Partition,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Option<CurrentStore>, CacheError> {
        let Ok(index) = Index::open(&self.dir.join(INDEX_FILE)) else { return Ok(None) };
        let up_to_date = index.recipe() == self.recipe && index.columns() == self.columns;
        if !up_to_date || index.shards() != self.shards {
            return Ok(None);
        }
        let names: Vec<ShardName> = (0..self.shards).map(|shard| index.shard(shard).name).collect();
        // Compare the declarations first: comparing the records reads every audio file, and a stale store would have them
        // read again under the lock.
        for (name, members) in names.iter().zip(&partition.shards) {
            match SealedShard::load(self.dir, *name) {
                Ok(shard) if self.declares(&shard.seal, members) => {}
                _ => return Ok(None),
            }
        }
        progress.start("compare", partition.shards.iter().map(|members| members.len() as u64).sum());
        let built: Mutex<Vec<Built>> = Mutex::new(Vec::with_capacity(names.len()));
        let outcome = workers::for_each(threads, names.len(), &self.halt, |shard| {
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
        let (mut report, built) = PrepareReport::from_built(partition, self.total, built);
        match assemble(self, &built, &mut report) {
            Ok(image) if image.matches(index.bytes()) => report.fingerprint = hex(&image.content()),
            _ => return Ok(None),
        }
        Ok(Some(CurrentStore { report, is_tidy: is_tidy(self.dir, &names) }))
    }

    /// Returns whether this shard was made from these utterances, as far as that shows without reading their audio.
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

/// Returns whether the folder holds only what the index names. A lock file that is not empty belongs to a killed or a
/// running writer.
fn is_tidy(dir: &Path, names: &[ShardName]) -> bool {
    let Ok(listing) = Listing::read(dir) else { return false };
    let named: HashSet<&ShardName> = names.iter().collect();
    listing.unfinished.is_empty()
        && listing.seals.iter().all(|shard| named.contains(shard))
        && listing.arrays.iter().all(|(shard, _)| named.contains(shard))
        && std::fs::metadata(dir.join(LOCK_FILE)).map_or(true, |lock| lock.len() == 0)
}

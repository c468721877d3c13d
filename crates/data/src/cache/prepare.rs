//! Turns utterances into a finished store: in parallel, resumable, and always with the same bytes.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use myxtts_run::durable::{self, Disk, OsDisk, Writer};
use myxtts_run::lock::{FolderLock, LockError};
use myxtts_run::progress::{Progress, Silent};
use serde::Serialize;

use super::CacheError;
use super::build::{Built, Job};
use super::current::CurrentStore;
use super::featurizer::Featurizer;
use super::fingerprint;
use super::index::{Index, IndexBuilder, IndexImage};
use super::names::{self, INDEX_FILE, Listing, ShardName, shard_count, shard_of, sort_key};
use super::seal::{Seal, StoredColumn};
use super::shard::{SealedShard, array_file_bytes};
use super::store::Store;
use super::workers;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Utterance;

/// Options of [`prepare()`]. Only `shard_size` affects the bytes of the store.
#[derive(Clone)]
pub struct PrepareOptions {
    /// Number of worker threads.
    pub workers: usize,
    /// Fraction of utterances that may fail before the work is given up.
    pub failure_budget: f64,
    /// Declared entries that could not become utterances, see [`Corpus::rejected`](crate::dataset::Corpus::rejected); they count as
    /// failed.
    pub rejected: u64,
    /// Maximum average number of utterances per shard, see [`names::shard_count`]. Tests make it small.
    pub shard_size: u32,
    /// Verify the checksum of every record before its shard is kept, not only files and keys.
    pub thorough: bool,
    /// Disk to write to; tests inject faults here.
    pub disk: Arc<dyn Disk>,
    /// Set it to stop the work after the current utterances.
    pub stop: Arc<AtomicBool>,
    /// If another process is writing the store, report that and wait for it instead of returning an error.
    pub wait: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            workers: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            failure_budget: 0.05,
            rejected: 0,
            shard_size: names::SHARD_SIZE,
            thorough: false,
            disk: Arc::new(OsDisk),
            stop: Arc::new(AtomicBool::new(false)),
            wait: false,
        }
    }
}

/// Result of [`prepare()`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrepareReport {
    /// Utterances given.
    pub utterances: u64,
    /// Records in the store.
    pub records: u64,
    /// Utterances computed this time.
    pub computed: u64,
    /// Records copied from old shards into rewritten ones.
    pub copied: u64,
    /// Utterances that did not become records.
    pub failed: u64,
    /// Shards of the store.
    pub shards: u64,
    /// Shards that were finished before and are still valid.
    pub shards_kept: u64,
    /// Total length of the audio in seconds.
    pub seconds: f64,
    /// Size of all array files in bytes.
    pub bytes: u64,
    /// Content hash of the store in hexadecimal.
    pub fingerprint: String,
    /// The failed utterances and why they failed.
    pub problems: Vec<Problem>,
}

/// Utterances by shard, each shard in ascending order of sort keys.
pub(super) struct Partition<'u> {
    pub(super) shards: Vec<Vec<&'u Utterance>>,
    pub(super) duplicates: Vec<Problem>,
}

impl<'u> Partition<'u> {
    /// Partitions into the number of shards that follows from the number of distinct ids.
    pub(super) fn by_size(utterances: &'u [Utterance], shard_size: u32) -> Self {
        let distinct: HashSet<&str> = utterances.iter().map(|utterance| utterance.id.as_str()).collect();
        Self::new(utterances, shard_count(distinct.len(), shard_size))
    }

    pub(super) fn new(utterances: &'u [Utterance], shards: u32) -> Self {
        let mut partition = Partition { shards: vec![Vec::new(); shards as usize], duplicates: Vec::new() };
        for utterance in utterances {
            partition.shards[shard_of(&utterance.id, shards) as usize].push(utterance);
        }
        for shard in &mut partition.shards {
            // The sort is stable: of equal ids the one declared first stays first and is used.
            shard.sort_by_cached_key(|utterance| sort_key(&utterance.id));
            shard.dedup_by(|later, first| {
                let same = later.id == first.id;
                if same {
                    partition.duplicates.push(duplicate(later, first));
                }
                same
            });
        }
        partition
    }
}

fn duplicate(later: &Utterance, first: &Utterance) -> Problem {
    Problem {
        kind: ProblemKind::DuplicateId,
        severity: Severity::Error,
        id: Some(later.id.clone()),
        origin: later.origin.clone(),
        detail: format!("the id was declared before at {}; only that declaration is used", first.origin),
    }
}

/// Makes the store in `dir`, finishes it, or brings it up to date.
///
/// Sealed shards that are still valid are kept. An old index stays usable until the new one is in place, and after an error
/// everything that was finished is kept for the next call.
///
/// A complete and current store is not locked, so any number of processes may call this at once. A process that finds it
/// incomplete or stale takes the lock and is the only writer.
pub fn prepare(
    dir: &Path,
    utterances: &[Utterance],
    featurizer: &dyn Featurizer,
    options: &PrepareOptions,
    progress: &dyn Progress,
) -> Result<PrepareReport, CacheError> {
    let work = Work {
        dir,
        total: utterances.len() as u64,
        partition: Partition::by_size(utterances, options.shard_size),
        featurizer,
        options,
        progress,
    };
    let mut waited = false;
    loop {
        let found = work.find_current()?;
        let found = match found {
            Some(CurrentStore { report, is_tidy: true }) => return Ok(report),
            untidy => untidy,
        };
        durable::create_folder(options.disk.as_ref(), dir)?;
        match (FolderLock::acquire(dir), found) {
            (Ok(lock), _) => return work.write(&lock),
            // Other files next to a complete store belong to the process that holds the lock.
            (Err(_), Some(current)) => return Ok(current.report),
            (Err(held @ LockError::Held { .. }), None) if options.wait => {
                if !waited {
                    progress.say(&held.waiting_message());
                }
                waited = true;
                // Then check again without the lock, so that all waiting processes continue at once.
                if !FolderLock::wait(dir, &options.stop)? {
                    return Err(CacheError::Stopped);
                }
            }
            (Err(error), None) => return Err(error.into()),
        }
    }
}

/// Calls [`prepare()`] and opens the resulting store.
pub fn open(
    dir: &Path,
    utterances: &[Utterance],
    featurizer: &dyn Featurizer,
    options: &PrepareOptions,
    progress: &dyn Progress,
) -> Result<(Store, PrepareReport), CacheError> {
    let report = prepare(dir, utterances, featurizer, options, progress)?;
    let store = Store::open(dir)?;
    // The lock is not held between the two calls: a process with other settings may have written.
    if hex(&store.index().content()) != report.fingerprint {
        return Err(CacheError::Replaced { dir: dir.to_owned() });
    }
    Ok((store, report))
}

/// Inputs and destination of a `prepare` or `merge`.
pub(super) struct Work<'a> {
    pub(super) dir: &'a Path,
    pub(super) total: u64,
    pub(super) partition: Partition<'a>,
    pub(super) featurizer: &'a dyn Featurizer,
    pub(super) options: &'a PrepareOptions,
    pub(super) progress: &'a dyn Progress,
}

impl<'a> Work<'a> {
    pub(super) fn job(
        &self,
        progress: &'a dyn Progress,
        lock: Option<&'a FolderLock>,
    ) -> Result<Job<'a>, CacheError> {
        let (options, featurizer) = (self.options, self.featurizer);
        let job = Job {
            dir: self.dir,
            disk: options.disk.as_ref(),
            featurizer,
            columns: featurizer.columns().iter().map(StoredColumn::from).collect(),
            recipe: fingerprint::recipe(featurizer.columns(), &featurizer.fingerprint()),
            shards: self.partition.shards.len() as u32,
            thorough: options.thorough,
            failed: AtomicU64::new(options.rejected),
            total: self.total + options.rejected,
            budget: options.failure_budget,
            stop: &options.stop,
            halt: AtomicBool::new(false),
            lock,
            progress,
        };
        job.count_failures(&self.partition.duplicates)?;
        Ok(job)
    }

    /// Returns the existing store if it is what would be built.
    fn find_current(&self) -> Result<Option<CurrentStore>, CacheError> {
        self.job(&Silent, None)?.find_current(&self.partition, self.options.workers, self.progress)
    }

    /// Builds what is missing, as the only writer.
    fn write(&'a self, lock: &'a FolderLock) -> Result<PrepareReport, CacheError> {
        let job = self.job(self.progress, Some(lock))?;
        let (report, built) = self.build(&job, 0..job.shards)?;
        self.finish(&job, report, &built)
    }

    /// Builds the missing shards of a range.
    pub(super) fn build(
        &self,
        job: &Job,
        range: Range<u32>,
    ) -> Result<(PrepareReport, Vec<Built>), CacheError> {
        let (dir, partition, progress) = (job.dir, &self.partition, self.progress);
        let listing = Listing::read(dir)?;
        for name in &listing.unfinished {
            durable::remove(job.disk, &dir.join(name))?;
        }
        let members = &partition.shards[range.start as usize..range.end as usize];
        progress.start("prepare", members.iter().map(|shard| shard.len() as u64).sum());
        let built: Mutex<Vec<Built>> = Mutex::new(Vec::with_capacity(members.len()));
        let outcome = workers::for_each(self.options.workers, members.len(), &job.halt, |at| {
            let shard = range.start + at as u32;
            let overlapping = |name: &&ShardName| name.overlaps(shard, job.shards);
            let old: Vec<ShardName> = listing.seals.iter().filter(overlapping).copied().collect();
            let done = job.build(shard, &members[at], &old)?;
            built.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(done);
            Ok(())
        });
        progress.finish();
        let built = built.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (mut report, built) = PrepareReport::from_built(partition, self.total, built);
        if let Err(mut error) = outcome {
            if let CacheError::OverBudget { problems, .. } = &mut error {
                problems.append(&mut report.problems);
            }
            return Err(error);
        }
        Ok((report, built))
    }

    /// Writes the index of shards that are all in the folder, and removes what it does not name.
    pub(super) fn finish(
        &self,
        job: &Job,
        mut report: PrepareReport,
        built: &[Built],
    ) -> Result<PrepareReport, CacheError> {
        let image = assemble(job, built, &mut report)?;
        write_index(job.disk, job.dir, &image)?;
        remove_others(job.disk, job.dir, built)?;
        report.fingerprint = hex(&image.content());
        Ok(report)
    }
}

impl PrepareReport {
    /// Summarises the built shards, which are returned in shard order. Fields that come from the index are filled in later.
    pub(super) fn from_built(partition: &Partition, total: u64, mut built: Vec<Built>) -> (Self, Vec<Built>) {
        built.sort_by_key(|shard| shard.name);
        let mut report = PrepareReport {
            utterances: total,
            shards: partition.shards.len() as u64,
            problems: partition.duplicates.clone(),
            ..PrepareReport::default()
        };
        for shard in &mut built {
            report.computed += shard.computed;
            report.copied += shard.copied;
            report.shards_kept += u64::from(shard.kept);
            report.problems.append(&mut shard.problems);
        }
        report.failed = report.problems.len() as u64;
        (report, built)
    }

    /// Adds the contents of a shard.
    pub(super) fn add(&mut self, seal: &Seal) {
        self.records += seal.records.len() as u64;
        self.seconds += seal.records.iter().map(|record| f64::from(record.seconds)).sum::<f64>();
        for (at, column) in seal.columns.iter().enumerate() {
            if let rows @ 1.. = seal.rows(at) {
                self.bytes += array_file_bytes(column, rows);
            }
        }
    }
}

/// Builds the index of all shards from their seals on disk.
pub(super) fn assemble(
    job: &Job,
    built: &[Built],
    report: &mut PrepareReport,
) -> Result<IndexImage, CacheError> {
    let path = job.dir.join(INDEX_FILE);
    let failed =
        |error: super::index::IndexError| CacheError::Internal(format!("{}: {error}", path.display()));
    let mut builder = IndexBuilder::new(job.columns.clone(), job.recipe, job.shards);
    for shard in built {
        let sealed = SealedShard::load(job.dir, shard.name)?;
        builder.seal(&sealed.seal, &shard.hash).map_err(failed)?;
        report.add(&sealed.seal);
    }
    builder.finish().map_err(failed)
}

/// Writes the index unless an identical one is in place.
fn write_index(disk: &dyn Disk, dir: &Path, image: &IndexImage) -> Result<(), CacheError> {
    let path: PathBuf = dir.join(INDEX_FILE);
    if Index::open(&path).is_ok_and(|index| image.matches(index.bytes())) {
        return Ok(());
    }
    let mut writer = Writer::create(disk, &path)?;
    for part in image.parts() {
        writer.write(part)?;
    }
    writer.finish()?.publish_durably(&path)?;
    Ok(())
}

/// Removes files that the index does not name: replaced generations of shards.
pub(super) fn remove_others(disk: &dyn Disk, dir: &Path, built: &[Built]) -> Result<(), CacheError> {
    let named: HashSet<ShardName> = built.iter().map(|shard| shard.name).collect();
    let listing = Listing::read(dir)?;
    // Seals first: a seal without its arrays would look like damage.
    let seals = listing.seals.iter().map(|shard| (*shard, shard.seal()));
    let mut others = seals.chain(listing.arrays).filter(|(shard, _)| !named.contains(shard)).peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    for (_, file) in others {
        durable::remove(disk, &dir.join(file))?;
    }
    Ok(durable::sync_folder(disk, dir)?)
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Merges the parts made by several machines into a store. It checks everything, and decodes and copies nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use myxtts_run::durable;
use myxtts_run::lock::{FolderLock, OWNER_FILE};
use myxtts_run::progress::Progress;

use super::build::{Built, Job};
use super::featurizer::Featurizer;
use super::fingerprint::Hash;
use super::index::Index;
use super::names::{INDEX_FILE, Listing, ShardName};
use super::parts::{Part, PartError, PartManifest, corpus_fingerprint};
use super::prepare::{Partition, PrepareOptions, PrepareReport, Work, assemble, hex};
use super::shard::SealedShard;
use super::{CacheError, workers};
use crate::utterance::Utterance;

/// Options of [`merge()`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeOptions {
    /// Skip the checksums of arrays, which need every byte to be read; training checks those of each record it reads. Seals,
    /// lengths and headers are always checked.
    pub quick: bool,
}

/// A shard in the folder of its part.
struct PartShard {
    part: Part,
    folder: PathBuf,
    name: ShardName,
    hash: Hash,
}

/// Makes the store in `dir` from its parts and removes them afterwards. The bytes equal those of
/// [`prepare()`](super::prepare()) on one machine.
///
/// No file is linked until everything is checked: all parts are present and have these settings and this corpus, every
/// utterance occurs once, and every checksum matches. Files are hard-linked into the store's folder, so a killed merge can
/// be run again.
pub fn merge(
    dir: &Path,
    utterances: &[Utterance],
    featurizer: &dyn Featurizer,
    (options, merge_options): (&PrepareOptions, MergeOptions),
    progress: &dyn Progress,
) -> Result<PrepareReport, CacheError> {
    let partition = Partition::by_size(utterances, options.shard_size);
    let work = Work { dir, total: utterances.len() as u64, partition, featurizer, options, progress };
    let Folders { parts, removing } = Folders::read(dir)?;
    let none = || CacheError::Part(PartError::None { dir: dir.to_owned() });
    if !dir.is_dir() {
        return Err(none());
    }
    let lock = FolderLock::acquire(dir)?;
    // A part that is being written cannot be merged.
    let held: Vec<FolderLock> =
        parts.iter().map(|part| FolderLock::acquire(&dir.join(part.folder()))).collect::<Result<_, _>>()?;
    let job = work.job(progress, Some(&lock))?;
    let disk = options.disk.as_ref();
    for name in Listing::read(dir)?.unfinished.iter().filter(|name| !name.starts_with(OWNER_FILE)) {
        durable::remove(disk, &dir.join(name))?;
    }
    for name in removing {
        durable::remove_folder(disk, &dir.join(name))?;
    }
    if parts.is_empty() {
        // Merged before: a repeated call, for example by a scheduler, gets the same report.
        return find_merged(&work, &job, &parts).ok_or_else(none);
    }
    let report = match list_shards(&work, &job, &parts) {
        Ok(part_shards) => {
            let built = check_all(&work, &job, &part_shards, merge_options)?;
            for part_shard in &part_shards {
                link_shard(&job, part_shard)?;
            }
            durable::sync_folder(disk, dir)?;
            lock.check()?;
            let (report, built) = PrepareReport::from_built(&work.partition, work.total, built);
            work.finish(&job, report, &built)?
        }
        // An earlier merge was killed while it removed the merged parts.
        Err(error @ CacheError::Part(PartError::Missing { .. })) => match find_merged(&work, &job, &parts) {
            Some(report) => report,
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    for part in &parts {
        let folder = dir.join(part.folder());
        // Renamed first: a half-removed folder must not look like a part.
        let removing = durable::unfinished_name(&folder);
        disk.rename(&folder, &removing).map_err(|source| durable::DurableError {
            action: "rename to",
            path: removing.clone(),
            source,
        })?;
        durable::remove_folder(disk, &removing)?;
    }
    durable::sync_folder(disk, dir)?;
    drop(held);
    Ok(report)
}

/// Part folders in the folder of a store.
struct Folders {
    /// Sorted.
    parts: Vec<Part>,
    /// Names of folders that an earlier merge had begun to remove.
    removing: Vec<String>,
}

impl Folders {
    fn read(dir: &Path) -> Result<Folders, CacheError> {
        let mut folders = Folders { parts: Vec::new(), removing: Vec::new() };
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(folders),
            entries => entries.map_err(CacheError::read(dir))?,
        };
        for entry in entries {
            let name = entry.map_err(CacheError::read(dir))?.file_name();
            let Some(name) = name.to_str() else { continue };
            let stem = name.split('.').next().unwrap_or_default();
            match Part::from_folder(stem) {
                Some(part) if stem == name => folders.parts.push(part),
                Some(_) if durable::is_unfinished(name) => folders.removing.push(name.to_owned()),
                _ => {}
            }
        }
        folders.parts.sort_unstable();
        Ok(folders)
    }
}

/// Lists every shard of the store in shard order with its location, from the manifests of the parts.
fn list_shards(work: &Work, job: &Job, parts: &[Part]) -> Result<Vec<PartShard>, CacheError> {
    let dir = work.dir;
    let counts: Vec<u32> = parts.iter().map(|part| part.count).collect();
    let count = counts[0];
    if let Some(&other) = counts.iter().find(|&&other| other != count) {
        let counts = (count.min(other), count.max(other));
        return Err(PartError::Mixed { dir: dir.to_owned(), counts }.into());
    }
    let (recipe, corpus) = (hex(&job.recipe), hex(&corpus_fingerprint(&work.partition)));
    let (mut part_shards, mut missing) = (Vec::new(), Vec::new());
    for number in 0..count {
        let part = Part { number, count };
        let folder = dir.join(part.folder());
        let Some(manifest) = PartManifest::read(&folder, part)? else {
            missing.push(part);
            continue;
        };
        if manifest.recipe != recipe {
            return Err(PartError::OtherSettings { folder, part }.into());
        }
        if manifest.corpus != corpus || manifest.shards != job.shards {
            let (found, wanted) = (manifest.utterances, work.total);
            return Err(PartError::OtherCorpus { folder, part, found, wanted }.into());
        }
        for (name, hash) in manifest.names(&folder, part)? {
            part_shards.push(PartShard { part, folder: folder.clone(), name, hash });
        }
    }
    if !missing.is_empty() {
        return Err(PartError::Missing { dir: dir.to_owned(), count, missing }.into());
    }
    Ok(part_shards)
}

/// Checks every shard.
fn check_all(
    work: &Work,
    job: &Job,
    part_shards: &[PartShard],
    merge_options: MergeOptions,
) -> Result<Vec<Built>, CacheError> {
    let progress = work.progress;
    progress.start("merge", part_shards.len() as u64);
    let built: Mutex<Vec<Built>> = Mutex::new(Vec::with_capacity(part_shards.len()));
    let outcome = workers::for_each(work.options.workers, part_shards.len(), &job.halt, |at| {
        if work.options.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(CacheError::Stopped);
        }
        let (part_shard, members) = (&part_shards[at], &work.partition.shards[at]);
        let shard = check_shard(job, part_shard, members, merge_options)?;
        let problems = job.problems(&shard.seal, members);
        job.count_failures(&problems)?;
        let done = Built {
            name: part_shard.name,
            hash: part_shard.hash,
            kept: true,
            computed: 0,
            copied: 0,
            problems,
        };
        built.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(done);
        progress.advance(1);
        Ok(())
    });
    progress.finish();
    outcome?;
    Ok(built.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn check_shard(
    job: &Job,
    part_shard: &PartShard,
    members: &[&Utterance],
    merge_options: MergeOptions,
) -> Result<SealedShard, CacheError> {
    let part = part_shard.part;
    let damaged = |path: PathBuf, what: String| CacheError::Part(PartError::Damaged { part, path, what });
    let path = part_shard.folder.join(part_shard.name.seal());
    let shard = SealedShard::load(&part_shard.folder, part_shard.name).map_err(|error| match error {
        CacheError::Damaged { path, what } => damaged(path, what),
        CacheError::Read { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            damaged(path, "it does not exist".into())
        }
        other => other,
    })?;
    if shard.hash != part_shard.hash {
        return Err(damaged(path, "it holds another shard".into()));
    }
    if shard.seal.recipe != job.recipe || shard.seal.columns != job.columns {
        return Err(PartError::OtherSettings { folder: part_shard.folder.clone(), part }.into());
    }
    // The shard must hold each of its utterances once and no others, with their current declarations.
    if !job.declares(&shard.seal, members) {
        return Err(damaged(path, format!("it does not hold exactly its {} utterances", members.len())));
    }
    for column in 0..shard.seal.columns.len() {
        let array = || shard.array_path(column);
        shard.check_file(column).map_err(|error| damaged(array(), error.to_string()))?;
        if merge_options.quick {
            continue;
        }
        if let Some(record) = (0..shard.seal.records.len()).find(|&at| shard.array(at, column).is_none()) {
            let id = &shard.seal.records[record].id;
            return Err(damaged(array(), format!("the checksum of {id} does not match")));
        }
    }
    Ok(shard)
}

/// Links the files of a shard into the store: arrays before the seal, in the order they were written.
fn link_shard(job: &Job, part_shard: &PartShard) -> Result<(), CacheError> {
    let link = |name: String| durable::link(job.disk, &part_shard.folder.join(&name), &job.dir.join(&name));
    let shard = SealedShard::load(&part_shard.folder, part_shard.name)?;
    for (at, column) in shard.seal.columns.iter().enumerate() {
        if shard.seal.rows(at) > 0 {
            link(part_shard.name.array(&column.name))?;
        }
    }
    Ok(link(part_shard.name.seal())?)
}

/// Returns the report of the existing store if it is current and holds everything that the remaining parts hold.
fn find_merged(work: &Work, job: &Job, parts: &[Part]) -> Option<PrepareReport> {
    let index = Index::open(&work.dir.join(INDEX_FILE)).ok()?;
    if index.recipe() != job.recipe || index.columns() != job.columns || index.shards() != job.shards {
        return None;
    }
    let mut built = Vec::new();
    let mut names: HashSet<Hash> = HashSet::new();
    for (shard, members) in work.partition.shards.iter().enumerate() {
        let found = SealedShard::load(work.dir, index.shard(shard as u32).name).ok()?;
        if !job.declares(&found.seal, members) {
            return None;
        }
        names.insert(found.hash);
        let problems = job.problems(&found.seal, members);
        built.push(Built {
            name: found.name,
            hash: found.hash,
            kept: true,
            computed: 0,
            copied: 0,
            problems,
        });
    }
    for &part in parts {
        let folder = work.dir.join(part.folder());
        let manifest = PartManifest::read(&folder, part).ok()??;
        let holds = manifest.names(&folder, part).ok()?;
        if !holds.iter().all(|(_, hash)| names.contains(hash)) {
            return None;
        }
    }
    let (mut report, built) = PrepareReport::from_built(&work.partition, work.total, built);
    let image = assemble(job, &built, &mut report).ok().filter(|image| image.matches(index.bytes()))?;
    report.fingerprint = hex(&image.content());
    Some(report)
}

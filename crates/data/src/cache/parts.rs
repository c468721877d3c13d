//! A store made by several machines: each makes some of the shards in its own folder.
//!
//! ```text
//! CACHE/part-0003of0016/
//!   shard-...                the shards of this part, as they will be in the store
//!   part.json                inputs of the part and the shards it holds; written last, it commits the part
//!   write.lock, write.owner  held by the process that writes here
//! ```
//!
//! The shards of a store are ranges of id hashes, and their bytes depend only on their utterances. So a part is a range of
//! shards, machines need no coordination, and [`merge()`](super::merge()) only checks the files and links them into the
//! store's folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use myxtts_run::durable;
use myxtts_run::lock::FolderLock;
use myxtts_run::progress::Progress;
use serde::{Deserialize, Serialize};

use super::featurizer::Featurizer;
use super::fingerprint::{Fingerprint, Hash};
use super::names::{PART_FILE, ShardName};
use super::prepare::{Partition, PrepareOptions, PrepareReport, Work, hex, remove_others};
use super::shard::SealedShard;
use super::{CacheError, FORMAT};
use crate::utterance::Utterance;

/// Maximum number of parts: the maximum number of shards.
const MAX_PARTS: u32 = 4096;

/// One of the parts a store is made in, written `3/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Zero-based.
    pub(super) number: u32,
    pub(super) count: u32,
}

impl Part {
    /// Creates part `number` of `count`; `number` is one-based.
    pub fn new(number: u32, count: u32) -> Result<Part, PartError> {
        if count == 0 || count > MAX_PARTS || number == 0 || number > count {
            return Err(PartError::Number { text: format!("{number}/{count}") });
        }
        Ok(Part { number: number - 1, count })
    }

    /// Returns the range of shards that this part makes, out of `shards`.
    pub(super) fn range(self, shards: u32) -> Range<u32> {
        let first = |number: u32| {
            let at = (u64::from(number) * u64::from(shards)).div_ceil(u64::from(self.count));
            at as u32
        };
        first(self.number)..first(self.number + 1)
    }

    /// Returns the name of the part's folder inside the store's folder.
    pub fn folder(self) -> String {
        format!("part-{:04}of{:04}", self.number + 1, self.count)
    }

    /// Parses the name of a part's folder.
    pub(super) fn from_folder(name: &str) -> Option<Part> {
        let (number, count) = name.strip_prefix("part-")?.split_once("of")?;
        let part = Part::new(number.parse().ok()?, count.parse().ok()?).ok()?;
        (part.folder() == name).then_some(part)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number + 1, self.count)
    }
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Part, PartError> {
        let invalid = || PartError::Number { text: text.to_owned() };
        let (number, count) = text.split_once('/').ok_or_else(invalid)?;
        match (number.trim().parse(), count.trim().parse()) {
            (Ok(number), Ok(count)) => Part::new(number, count).map_err(|_| invalid()),
            _ => Err(invalid()),
        }
    }
}

/// Why parts cannot be made or merged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PartError {
    /// The part number is not valid.
    #[error(
        "{text:?} is not a valid shard: write `3/16` for the third of sixteen, from 1/16 to 16/16; at most {MAX_PARTS} shards are possible"
    )]
    Number {
        /// Text given by the user.
        text: String,
    },
    /// There is no part to merge.
    #[error("no shards to merge in {}: make them with `myxtts prepare --shard 1/N` to `--shard N/N`", dir.display())]
    None {
        /// Folder of the store.
        dir: PathBuf,
    },
    /// Some parts are missing or unfinished.
    #[error(
        "of {count} shards in {} {} not finished: run `myxtts prepare --shard {}` for {}, with the same corpus and settings, \
         and merge again",
        dir.display(),
        list_parts(missing),
        missing.first().map(Part::to_string).unwrap_or_default(),
        if missing.len() == 1 { "it" } else { "each of them" }
    )]
    Missing {
        /// Folder of the store.
        dir: PathBuf,
        /// Expected number of parts.
        count: u32,
        /// Missing parts.
        missing: Vec<Part>,
    },
    /// The folder holds parts of different divisions of the corpus.
    #[error(
        "{} holds shards of {} and of {}, which overlap: remove the folders part-*of{:04} or part-*of{:04}",
        dir.display(),
        counts.0,
        counts.1,
        counts.0,
        counts.1
    )]
    Mixed {
        /// Folder of the store.
        dir: PathBuf,
        /// Two of the part counts found, smaller first.
        counts: (u32, u32),
    },
    /// A part was made with other settings.
    #[error(
        "shard {part} in {} was made with other settings, another vocabulary or another version of the program: run \
         `myxtts prepare --shard {part}` with the settings of the other shards",
        folder.display()
    )]
    OtherSettings {
        /// Folder of the part.
        folder: PathBuf,
        /// The part.
        part: Part,
    },
    /// A part was made from another corpus.
    #[error(
        "shard {part} in {} was made from another corpus: it had {found} utterances, this one has {wanted}, or some are \
         declared differently; run `myxtts prepare --shard {part}` again",
        folder.display()
    )]
    OtherCorpus {
        /// Folder of the part.
        folder: PathBuf,
        /// The part.
        part: Part,
        /// Utterances of the corpus the part was made from, all parts together.
        found: u64,
        /// Utterances of the current corpus.
        wanted: u64,
    },
    /// The folder of a part holds another part.
    #[error(
        "the folder {} holds shard {holds}, so some clips would be duplicated and others missing: remove the folder and run \
         `myxtts prepare --shard {part}` again",
        folder.display()
    )]
    Overlapping {
        /// Folder of the part.
        folder: PathBuf,
        /// Part expected by the folder name.
        part: Part,
        /// Part named in the manifest.
        holds: Part,
    },
    /// A file of a part differs from what was written.
    #[error("shard {part} is damaged: {}: {what}; run `myxtts prepare --shard {part}` to rebuild the damaged files", path.display())]
    Damaged {
        /// The part.
        part: Part,
        /// Damaged file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Formats the first few parts for a sentence: `2/16, 7/16 are`.
fn list_parts(parts: &[Part]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = parts.iter().take(NAMED).map(Part::to_string).collect();
    let more = match parts.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more} {}", named.join(", "), if parts.len() == 1 { "is" } else { "are" })
}

/// Content of [`PART_FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartManifest {
    format: u32,
    /// One-based.
    part: u32,
    parts: u32,
    /// Shards of the whole store.
    pub(super) shards: u32,
    /// Utterances of the whole corpus.
    pub(super) utterances: u64,
    /// Recipe hash in hexadecimal.
    pub(super) recipe: String,
    /// Fingerprint of the whole corpus as declared, in hexadecimal.
    pub(super) corpus: String,
    /// Seal hashes of its shards in shard order, in hexadecimal.
    pub(super) seals: Vec<String>,
}

impl PartManifest {
    /// Reads the manifest of a part; `None` if the part is not finished.
    pub(super) fn read(folder: &Path, part: Part) -> Result<Option<PartManifest>, CacheError> {
        let path = folder.join(PART_FILE);
        let bytes = match std::fs::read(&path) {
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            read => read.map_err(CacheError::read(&path))?,
        };
        let damaged = |what: String| PartError::Damaged { part, path: path.clone(), what };
        let manifest: PartManifest =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(PartError::OtherSettings { folder: folder.to_owned(), part }.into());
        }
        match Part::new(manifest.part, manifest.parts) {
            Ok(holds) if holds == part => Ok(Some(manifest)),
            Ok(holds) => Err(PartError::Overlapping { folder: folder.to_owned(), part, holds }.into()),
            Err(_) => Err(damaged(format!("it names part {}/{}", manifest.part, manifest.parts)).into()),
        }
    }

    /// Returns the name and seal hash of every shard in the part's range.
    pub(super) fn names(&self, folder: &Path, part: Part) -> Result<Vec<(ShardName, Hash)>, CacheError> {
        let damaged = |what: String| PartError::Damaged { part, path: folder.join(PART_FILE), what };
        let range = part.range(self.shards);
        if self.seals.len() != range.len() {
            return Err(damaged(format!(
                "it names {} shard files instead of {}",
                self.seals.len(),
                range.len()
            ))
            .into());
        }
        let name = |(shard, seal): (u32, &String)| {
            let hash = unhex(seal).ok_or_else(|| damaged(format!("{seal:?} is not a hash")))?;
            Ok((ShardName::new(shard, self.shards, &hash), hash))
        };
        range.zip(&self.seals).map(name).collect()
    }
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Fingerprint of a corpus as declared, without its audio: every record stores the hash of its own.
pub(super) fn corpus_fingerprint(partition: &Partition) -> Hash {
    let utterances = partition.shards.iter().flatten();
    let declared = utterances.fold(Fingerprint::new("declared corpus"), |fingerprint, utterance| {
        fingerprint
            .text("id", &utterance.id)
            .text("text", &utterance.text)
            .text("speaker", &utterance.speaker)
            .text("language", &utterance.language)
    });
    declared.finish()
}

/// Makes one part of the store in `dir`, finishes it, or brings it up to date.
///
/// It resumes like [`prepare()`](super::prepare()). Existing shards are kept if every checksum matches, so a part that
/// [`merge()`](super::merge()) rejects as damaged is repaired by running this again.
pub fn prepare_part(
    dir: &Path,
    part: Part,
    utterances: &[Utterance],
    featurizer: &dyn Featurizer,
    options: &PrepareOptions,
    progress: &dyn Progress,
) -> Result<PrepareReport, CacheError> {
    let folder = dir.join(part.folder());
    let options = &PrepareOptions { thorough: true, ..options.clone() };
    let partition = Partition::by_size(utterances, options.shard_size);
    let work =
        Work { dir: &folder, total: utterances.len() as u64, partition, featurizer, options, progress };
    durable::create_folder(options.disk.as_ref(), &folder)?;
    let lock = FolderLock::acquire(&folder)?;
    let job = work.job(progress, Some(&lock))?;
    let range = part.range(job.shards);
    let (mut report, built) = work.build(&job, range.clone())?;
    for shard in &built {
        report.add(&SealedShard::load(&folder, shard.name)?.seal);
    }
    let members = &work.partition.shards[range.start as usize..range.end as usize];
    report.utterances = members.iter().map(|shard| shard.len() as u64).sum();
    report.shards = u64::from(range.end - range.start);
    // Duplicate declarations are counted once, by the merge.
    report.problems.drain(..work.partition.duplicates.len());
    report.failed = report.problems.len() as u64;
    let manifest = PartManifest {
        format: FORMAT,
        part: part.number + 1,
        parts: part.count,
        shards: job.shards,
        utterances: utterances.len() as u64,
        recipe: hex(&job.recipe),
        corpus: hex(&corpus_fingerprint(&work.partition)),
        seals: built.iter().map(|shard| hex(&shard.hash)).collect(),
    };
    let json =
        serde_json::to_vec_pretty(&manifest).map_err(|error| CacheError::Internal(error.to_string()))?;
    lock.check()?;
    durable::write_with(job.disk, &folder.join(PART_FILE), &json)?;
    remove_others(job.disk, &folder, &built)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_is_in_one_part() {
        for shards in [1, 2, 8, 64, 4096] {
            for count in [1, 2, 3, 4, 5, 7, 16, 100, 4096] {
                let parts = (1..=count).map(|number| Part::new(number, count).unwrap());
                let all: Vec<u32> = parts.flat_map(|part| part.range(shards)).collect();
                assert_eq!(all, (0..shards).collect::<Vec<u32>>(), "{shards} shards in {count} parts");
            }
        }
    }

    #[test]
    fn parts_round_trip_and_invalid_ones_are_rejected() {
        let part: Part = "3/16".parse().unwrap();
        assert_eq!((part.to_string().as_str(), part.folder().as_str()), ("3/16", "part-0003of0016"));
        assert_eq!(Part::from_folder("part-0003of0016"), Some(part));
        for text in ["0/16", "17/16", "3", "3/0", "-1/4", "1/4097", "a/b", "", "3/16/2"] {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("3/16") && error.contains(&format!("{text:?}")), "{error}");
        }
        for name in ["part-3of16", "part-0000of0016", "part-0003of0016.9-9.tmp", "part-", "shard-0003of0016"]
        {
            assert_eq!(Part::from_folder(name), None, "{name}");
        }
    }

    #[test]
    fn hashes_round_trip() {
        let hash: Hash = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(unhex(&hex(&hash)), Some(hash));
        for text in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}

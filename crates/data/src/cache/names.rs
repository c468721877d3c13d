//! Order of records, their assignment to shards, and the file names of a store.

use std::path::Path;

use myxtts_run::durable;
use myxtts_run::lock::OWNER_FILE;

use super::CacheError;
use super::fingerprint::Hash;

/// File name of the index in the folder of a store.
pub const INDEX_FILE: &str = "index.bin";

/// File name of a part's manifest; see [`parts`](super::parts).
pub(crate) const PART_FILE: &str = "part.json";

/// Maximum average number of utterances per shard, until the number of shards reaches its limit.
pub const SHARD_SIZE: u32 = 64;

/// Maximum number of shards; above 262,144 utterances they become longer instead. With five columns that is 20,480 mapped
/// files, well below the 65,530 that Linux grants a process.
const MAX_SHARDS: u32 = 4096;

/// Returns the number of shards for a corpus: a power of two, so that growth splits shards instead of reshuffling all
/// records, and a function of the number of utterances alone.
pub fn shard_count(utterances: usize, shard_size: u32) -> u32 {
    let wanted = utterances.div_ceil(shard_size.max(1) as usize).min(MAX_SHARDS as usize);
    (wanted.max(1) as u32).next_power_of_two()
}

/// Returns the sort key of an utterance: records are numbered in ascending order of it. It depends only on the id, so the
/// order of records does not depend on the number of shards.
pub fn sort_key(id: &str) -> (u32, &str) {
    let hash = blake3::hash(id.as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    (u32::from_be_bytes([a, b, c, d]), id)
}

/// Returns the shard of an utterance; a shard is a range of sort keys. `shards` is a power of two.
pub fn shard_of(id: &str, shards: u32) -> u32 {
    ((u64::from(sort_key(id).0) * u64::from(shards)) >> 32) as u32
}

/// One generation of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardName {
    /// Number of shards in the store.
    pub shards: u32,
    /// Zero-based shard number.
    pub shard: u32,
    /// First four bytes of the seal's hash, big-endian.
    pub tag: u32,
}

impl ShardName {
    /// Returns the name of the shard whose seal has this hash.
    pub fn new(shard: u32, shards: u32, seal: &Hash) -> Self {
        ShardName { shards, shard, tag: u32::from_be_bytes([seal[0], seal[1], seal[2], seal[3]]) }
    }

    /// Returns the file name of the seal.
    pub fn seal(&self) -> String {
        format!("{self}.seal")
    }

    /// Returns the file name of a column.
    pub fn array(&self, column: &str) -> String {
        format!("{self}.{column}.npy")
    }

    /// Parses a file name: the shard, and the column if it is an array file.
    pub fn parse(file: &str) -> Option<(ShardName, Option<&str>)> {
        let (stem, kind) = file.strip_prefix("shard-")?.split_once('.')?;
        let (number, tag) = stem.split_once('-')?;
        let (shard, shards) = number.split_once("of")?;
        let name = ShardName {
            shards: shards.parse().ok()?,
            shard: shard.parse().ok()?,
            tag: u32::from_str_radix(tag, 16).ok()?,
        };
        let column = if kind == "seal" { None } else { Some(kind.strip_suffix(".npy")?) };
        // Accept only names this program writes: no signs, no other number of zeros.
        let ours = match column {
            None => name.seal() == file,
            Some(column) => is_column_name(column) && name.array(column) == file,
        };
        (ours && name.shards.is_power_of_two() && name.shard < name.shards).then_some((name, column))
    }

    /// Returns whether records of `self` can belong to shard `shard` of `shards`.
    pub(super) fn overlaps(&self, shard: u32, shards: u32) -> bool {
        let common = self.shards.min(shards);
        self.shard / (self.shards / common) == shard / (shards / common)
    }
}

impl std::fmt::Display for ShardName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard-{:04}of{:04}-{:08x}", self.shard, self.shards, self.tag)
    }
}

/// Column names become file names, so they must not contain path separators or dots.
pub(crate) fn is_column_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    !name.is_empty() && name.len() <= 40 && name.bytes().all(plain)
}

/// Files in the folder of a store. Unrelated files are not listed and never touched.
#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted.
    pub seals: Vec<ShardName>,
    /// Array files: shard and file name, sorted.
    pub arrays: Vec<(ShardName, String)>,
    /// Temporary files of a writer that did not finish, sorted.
    pub unfinished: Vec<String>,
}

impl Listing {
    /// Lists the folder.
    pub fn read(dir: &Path) -> Result<Self, CacheError> {
        let mut listing = Listing::default();
        for entry in std::fs::read_dir(dir).map_err(CacheError::read(dir))? {
            let name = entry.map_err(CacheError::read(dir))?.file_name();
            let Some(name) = name.to_str() else { continue };
            let ours = ["shard-", INDEX_FILE, OWNER_FILE, PART_FILE];
            if durable::is_unfinished(name) && ours.iter().any(|start| name.starts_with(start)) {
                listing.unfinished.push(name.to_owned());
            } else if let Some((shard, column)) = ShardName::parse(name) {
                match column {
                    None => listing.seals.push(shard),
                    Some(_) => listing.arrays.push((shard, name.to_owned())),
                }
            }
        }
        listing.seals.sort_unstable();
        listing.arrays.sort_unstable();
        listing.unfinished.sort_unstable();
        Ok(listing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_shards_is_a_power_of_two() {
        let counts: Vec<u32> = [0, 1, 64, 65, 300, 13_100, 262_144, 1_000_000, 50_000_000]
            .map(|n| shard_count(n, SHARD_SIZE))
            .into();
        assert_eq!(counts, [1, 1, 1, 2, 8, 256, 4096, 4096, 4096]);
    }

    #[test]
    fn doubling_splits_every_shard_in_two() {
        for n in 0..500 {
            let id = format!("utterance {n}");
            let (few, many) = (shard_of(&id, 8), shard_of(&id, 16));
            assert!(many == 2 * few || many == 2 * few + 1);
            let old = ShardName { shards: 8, shard: few, tag: 0 };
            assert!(old.overlaps(many, 16) && old.overlaps(many ^ 1, 16) && !old.overlaps(many ^ 2, 16));
        }
    }

    #[test]
    fn names_round_trip_and_foreign_names_are_rejected() {
        let name = ShardName { shards: 64, shard: 12, tag: 0x1f3a_9c04 };
        assert_eq!(name.array("dvae_mel"), "shard-0012of0064-1f3a9c04.dvae_mel.npy");
        assert_eq!(ShardName::parse(&name.array("dvae_mel")), Some((name, Some("dvae_mel"))));
        assert_eq!(ShardName::parse(&name.seal()), Some((name, None)));
        for other in [
            "shard-0012.seal",
            "shard-12of0064-1f3a9c04.seal",
            "shard-0064of0064-1f3a9c04.seal",
            "shard-0001of0003-1f3a9c04.seal",
            "shard-0012of0064-1F3A9C04.seal",
            "shard-0012of0064-1f3a9c04.../x.npy",
            "shard-0012of0064-1f3a9c04.Mel.npy",
            "shard-0012of0064-1f3a9c04.mel.npz",
            "index.bin",
        ] {
            assert_eq!(ShardName::parse(other), None, "{other}");
        }
    }
}

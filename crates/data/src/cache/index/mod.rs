//! The index of a store: every seal in one file that is mapped, checked as a whole when it is
//! opened, and then read in place. A million records take about 90 MB of file and little memory.
//!
//! Little-endian, every section padded to 8 bytes. Fields of a kind stand together, so that reading
//! all lengths touches 4 bytes a record:
//! ```text
//! header, 136 bytes: see `Header`
//! columns:   name [40], dtype u32, width u32                       each
//! shards:    seal hash [32], first record u32, records u32, failures u32, 0 u32, rows u64 per column   each
//! speakers:  offsets u32 [speakers + 1], their names
//! languages: offsets u32 [languages + 1], their codes
//! records:   id offsets u32 [records + 1]; speaker u32, language u32, seconds f32 [records]
//! arrays:    per column rows u32, first row u32, crc32 u32 [records]
//! ids, end to end
//! ```
//! Records stand in the order of (shard, id), so that an id is found without a table of its own.

mod builder;
mod layout;

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use myxtts_run::mmap::{MappedFile, OnReadFault};

pub use builder::{IndexBuilder, IndexEntry, IndexImage};
pub use layout::{Layout, parse};

use super::fingerprint::Hash;
use super::names::{ShardName, place, shard_of};
use super::seal::StoredColumn;
use super::{CacheError, FORMAT};
use layout::{SHARD_BYTES, array_at, parse_body, parse_header, u32_at};

/// Why some bytes are no index.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    /// They do not begin like one.
    #[error("it is not an index: the first bytes differ")]
    NotAnIndex,
    /// Another version of the program wrote it.
    #[error("it has format {found}, this program writes {FORMAT}")]
    OtherFormat {
        /// What it says.
        found: u32,
    },
    /// It has another length than it says.
    #[error("{have} bytes are there, {need} are announced")]
    CutOff {
        /// Bytes there.
        have: u64,
        /// Bytes announced.
        need: u64,
    },
    /// A checksum does not fit.
    #[error("the checksum of its {0} does not fit")]
    Checksum(&'static str),
    /// The checksums fit and the content makes no sense.
    #[error("{0}")]
    Malformed(String),
}

/// An index that is open. Record and column numbers out of range are the caller's mistake and panic.
pub struct Index {
    bytes: Backing,
    layout: Layout,
}

enum Backing {
    MappedFile(MappedFile),
    Owned(Vec<u8>),
}

impl Deref for Backing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Backing::MappedFile(map) => map,
            Backing::Owned(bytes) => bytes,
        }
    }
}

/// What the index says about a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Its file name.
    pub name: ShardName,
    /// Hash of its seal.
    pub seal: Hash,
    /// Its records.
    pub records: Range<usize>,
    /// Utterances that failed.
    pub failures: u32,
    /// Rows of every column.
    pub rows: Vec<u64>,
}

impl Index {
    /// Maps and checks an index file.
    pub fn open(path: &Path) -> Result<Index, CacheError> {
        let file = File::open(path).map_err(CacheError::read(path))?;
        let map = MappedFile::new(&file, path, OnReadFault::Exit).map_err(CacheError::read(path))?;
        let layout =
            parse(&map).map_err(|e| CacheError::Damaged { path: path.to_owned(), what: e.to_string() })?;
        // The check has touched every page; what is needed again comes back from the page cache.
        map.release();
        Ok(Index { bytes: Backing::MappedFile(map), layout })
    }

    /// An index from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Index, IndexError> {
        let layout = parse(&bytes)?;
        Ok(Index { bytes: Backing::Owned(bytes), layout })
    }

    /// [`Self::from_bytes`] without the checksums, so that a fuzzer reaches what lies behind them.
    #[doc(hidden)]
    pub fn from_unchecked(bytes: Vec<u8>) -> Result<Index, IndexError> {
        let layout = parse_body(&bytes, parse_header(&bytes)?)?;
        Ok(Index { bytes: Backing::Owned(bytes), layout })
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.layout.header.records as usize
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arrays of every record.
    pub fn columns(&self) -> &[StoredColumn] {
        &self.layout.columns
    }

    /// Speaker names by number, in ascending order.
    pub fn speakers(&self) -> &[String] {
        &self.layout.speakers
    }

    /// Language codes by number, in ascending order.
    pub fn languages(&self) -> &[String] {
        &self.layout.languages
    }

    /// Identity of the settings the store was made with.
    pub fn recipe(&self) -> Hash {
        self.layout.header.recipe
    }

    /// Identity of everything in the store.
    pub fn content(&self) -> Hash {
        self.layout.header.content
    }

    /// Utterances that failed.
    pub fn failures(&self) -> u32 {
        self.layout.header.failures
    }

    /// Length of all sound.
    pub fn total_seconds(&self) -> f64 {
        self.layout.header.seconds
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.layout.header.shards
    }

    /// What is known of a shard.
    pub fn shard(&self, shard: u32) -> ShardEntry {
        let columns = self.columns().len();
        let at = self.layout.shard_table + (SHARD_BYTES + 8 * columns) * shard as usize;
        let seal = array_at(&self.bytes, at);
        ShardEntry {
            name: ShardName::new(shard, self.shards(), &seal),
            seal,
            records: self.layout.firsts[shard as usize] as usize
                ..self.layout.firsts[shard as usize + 1] as usize,
            failures: u32_at(&self.bytes, at + 40),
            rows: (0..columns)
                .map(|c| u64::from_le_bytes(array_at(&self.bytes, at + SHARD_BYTES + 8 * c)))
                .collect(),
        }
    }

    /// The shard a record is in.
    pub fn shard_of_record(&self, record: usize) -> u32 {
        assert!(record < self.len(), "record {record} of {}", self.len());
        self.layout.firsts.partition_point(|&first| first as usize <= record) as u32 - 1
    }

    /// Rows of an array.
    pub fn rows(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].rows, record)
    }

    /// Where an array begins in its shard.
    pub fn first_row(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].first_row, record)
    }

    /// Checksum of an array.
    pub fn crc(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].crc, record)
    }

    /// The record's speaker.
    pub fn speaker(&self, record: usize) -> u32 {
        self.word(self.layout.speaker, record)
    }

    /// The record's language.
    pub fn language(&self, record: usize) -> u32 {
        self.word(self.layout.language, record)
    }

    /// Length of the record's sound.
    pub fn seconds(&self, record: usize) -> f32 {
        f32::from_bits(self.word(self.layout.seconds, record))
    }

    /// The bytes of the record's id.
    pub fn id(&self, record: usize) -> &[u8] {
        let ids = &self.bytes[self.layout.ids.clone()];
        let end = u32_at(&self.bytes, self.layout.id_offsets + 4 * (record + 1));
        &ids[self.word(self.layout.id_offsets, record) as usize..end as usize]
    }

    /// The record of an utterance.
    pub fn find(&self, id: &str) -> Option<usize> {
        let wanted = place(id);
        let shard = shard_of(id, self.shards()) as usize;
        let (mut low, mut high) =
            (self.layout.firsts[shard] as usize, self.layout.firsts[shard + 1] as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            // Ids are text; one that is not cannot have been written by us, and is nobody's.
            let there = std::str::from_utf8(self.id(middle)).unwrap_or_default();
            match place(there).cmp(&wanted) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn word(&self, section: usize, record: usize) -> u32 {
        assert!(record < self.len(), "record {record} of {}", self.len());
        u32_at(&self.bytes, section + 4 * record)
    }
}

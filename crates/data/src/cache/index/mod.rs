//! The index of a store: all seals in one file, which is mapped, checked as a whole on opening, and then read in place. A
//! million records take about 90 MB of file and little memory.
//!
//! Little-endian, every section padded to 8 bytes. Each field is a section of its own, so reading all lengths touches 4
//! bytes per record:
//! ```text
//! header, 136 bytes: see `Header`
//! columns:   name [40], dtype u32, width u32                       each
//! shards:    seal hash [32], first record u32, records u32, failures u32, 0 u32, rows u64 per column   each
//! speakers:  offsets u32 [speakers + 1], their names
//! languages: offsets u32 [languages + 1], their codes
//! records:   id offsets u32 [records + 1]; speaker u32, language u32, seconds f32 [records]
//! arrays:    per column rows u32, first row u32, crc32 u32 [records]
//! ids, concatenated
//! ```
//! Records are sorted by shard and then by sort key, so an id is found by binary search without a table of its own.

mod builder;
mod layout;

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use myxtts_run::mmap::{MappedFile, OnReadFault};

pub use builder::{IndexBuilder, IndexEntry, IndexImage};
pub use layout::{Layout, parse};

use super::fingerprint::Hash;
use super::names::{ShardName, shard_of, sort_key};
use super::seal::StoredColumn;
use super::{CacheError, FORMAT};
use layout::{SHARD_BYTES, array_at, parse_body, parse_header, u32_at};

/// Why bytes are not a valid index.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    /// The magic bytes differ.
    #[error("not an index: the magic bytes differ")]
    NotAnIndex,
    /// Written by another version of the program.
    #[error("it has format {found}, this program supports {FORMAT}")]
    OtherFormat {
        /// Format in the header.
        found: u32,
    },
    /// The length of the file differs from the header.
    #[error("it has {have} bytes instead of {need}")]
    CutOff {
        /// Actual length in bytes.
        have: u64,
        /// Length in the header, in bytes.
        need: u64,
    },
    /// A checksum does not match.
    #[error("the checksum of its {0} does not match")]
    Checksum(&'static str),
    /// The checksums match but the content is inconsistent.
    #[error("{0}")]
    Malformed(String),
}

/// An open index. Record and column numbers out of range are programmer mistakes and panic.
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

/// Entry of a shard in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Name of its files.
    pub name: ShardName,
    /// Hash of its seal.
    pub seal: Hash,
    /// Range of its records.
    pub records: Range<usize>,
    /// Number of failed utterances.
    pub failures: u32,
    /// Number of rows of every column.
    pub rows: Vec<u64>,
}

impl Index {
    /// Maps and checks an index file.
    pub fn open(path: &Path) -> Result<Index, CacheError> {
        let file = File::open(path).map_err(CacheError::read(path))?;
        let map = MappedFile::new(&file, path, OnReadFault::Exit).map_err(CacheError::read(path))?;
        let layout =
            parse(&map).map_err(|e| CacheError::Damaged { path: path.to_owned(), what: e.to_string() })?;
        // The check has touched every page; pages that are needed again come from the page cache.
        map.release();
        Ok(Index { bytes: Backing::MappedFile(map), layout })
    }

    /// Checks an index in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Index, IndexError> {
        let layout = parse(&bytes)?;
        Ok(Index { bytes: Backing::Owned(bytes), layout })
    }

    /// [`Self::from_bytes`] without the checksums, so that a fuzzer reaches the code behind them.
    #[doc(hidden)]
    pub fn from_unchecked(bytes: Vec<u8>) -> Result<Index, IndexError> {
        let layout = parse_body(&bytes, parse_header(&bytes)?)?;
        Ok(Index { bytes: Backing::Owned(bytes), layout })
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.layout.header.records as usize
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the columns of every record.
    pub fn columns(&self) -> &[StoredColumn] {
        &self.layout.columns
    }

    /// Returns the speaker names by number, in ascending order.
    pub fn speakers(&self) -> &[String] {
        &self.layout.speakers
    }

    /// Returns the language codes by number, in ascending order.
    pub fn languages(&self) -> &[String] {
        &self.layout.languages
    }

    /// Returns the hash of the settings the store was made with.
    pub fn recipe(&self) -> Hash {
        self.layout.header.recipe
    }

    /// Returns the hash of everything in the store.
    pub fn content(&self) -> Hash {
        self.layout.header.content
    }

    /// Returns the number of failed utterances.
    pub fn failures(&self) -> u32 {
        self.layout.header.failures
    }

    /// Returns the total length of the audio in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.layout.header.seconds
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.layout.header.shards
    }

    /// Returns the entry of a shard.
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

    /// Returns the shard of a record.
    pub fn shard_of_record(&self, record: usize) -> u32 {
        assert!(record < self.len(), "record {record} of {}", self.len());
        self.layout.firsts.partition_point(|&first| first as usize <= record) as u32 - 1
    }

    /// Returns the number of rows of an array.
    pub fn rows(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].rows, record)
    }

    /// Returns the first row of an array in its shard.
    pub fn first_row(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].first_row, record)
    }

    /// Returns the crc32 of an array.
    pub fn crc(&self, record: usize, column: usize) -> u32 {
        self.word(self.layout.arrays[column].crc, record)
    }

    /// Returns the number of the record's speaker.
    pub fn speaker(&self, record: usize) -> u32 {
        self.word(self.layout.speaker, record)
    }

    /// Returns the number of the record's language.
    pub fn language(&self, record: usize) -> u32 {
        self.word(self.layout.language, record)
    }

    /// Returns the length of the record's audio in seconds.
    pub fn seconds(&self, record: usize) -> f32 {
        f32::from_bits(self.word(self.layout.seconds, record))
    }

    /// Returns the bytes of the record's id.
    pub fn id(&self, record: usize) -> &[u8] {
        let ids = &self.bytes[self.layout.ids.clone()];
        let end = u32_at(&self.bytes, self.layout.id_offsets + 4 * (record + 1));
        &ids[self.word(self.layout.id_offsets, record) as usize..end as usize]
    }

    /// Returns the record of an utterance.
    pub fn find(&self, id: &str) -> Option<usize> {
        let wanted = sort_key(id);
        let shard = shard_of(id, self.shards()) as usize;
        let (mut low, mut high) =
            (self.layout.firsts[shard] as usize, self.layout.firsts[shard + 1] as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            // Ids are UTF-8; other bytes cannot have been written by this program and match no id.
            let there = std::str::from_utf8(self.id(middle)).unwrap_or_default();
            match sort_key(there).cmp(&wanted) {
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

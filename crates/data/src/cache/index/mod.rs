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

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

pub use builder::{IndexBuilder, IndexEntry, IndexImage};

use super::fingerprint::{Fingerprint, Hash};
use super::names::{ShardName, shard_of};
use super::seal::{MOST_COLUMNS, StoredColumn, stored_column};
use super::{CacheError, FORMAT};

const MAGIC: &[u8; 8] = b"MYXTINDX";
const COLUMN_BYTES: usize = 48;
const SHARD_BYTES: usize = 48;

/// Bytes of the header.
const HEADER_BYTES: usize = 136;
/// The header's checksum stands at its end and covers all of it before.
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// What stands at the beginning.
///
/// | at | field |
/// |---|---|
/// | 0 | magic `MYXTINDX` |
/// | 8 | format u32, columns u32 |
/// | 16 | layout hash [8]: of the format and the columns |
/// | 24 | records u64 |
/// | 32 | shards u32, speakers u32, languages u32, failures u32 |
/// | 48 | length of the file u64 |
/// | 56 | recipe [32] |
/// | 88 | content [32]: of the recipe and every seal |
/// | 120 | seconds f64 |
/// | 128 | crc32 of what follows the header, crc32 of the header before this |
#[derive(Clone, Debug, PartialEq)]
struct Header {
    columns: u32,
    layout: [u8; 8],
    records: u64,
    shards: u32,
    speakers: u32,
    languages: u32,
    failures: u32,
    length: u64,
    recipe: Hash,
    content: Hash,
    seconds: f64,
    body_crc: u32,
}

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

/// Where everything stands in the bytes of an index, and its small tables.
#[derive(Clone, Debug)]
pub struct Layout {
    header: Header,
    columns: Vec<StoredColumn>,
    speakers: Vec<String>,
    languages: Vec<String>,
    /// First record of every shard, and the number of records.
    firsts: Vec<u32>,
    shard_table: usize,
    id_offsets: usize,
    speaker: usize,
    language: usize,
    seconds: usize,
    arrays: Vec<ArraySections>,
    ids: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct ArraySections {
    rows: usize,
    first_row: usize,
    crc: usize,
}

/// Reads the layout of an index from the bytes of its file. Any bytes are safe to give.
pub fn parse(bytes: &[u8]) -> Result<Layout, IndexError> {
    let header = parse_header(bytes)?;
    if crc32fast::hash(&bytes[..HEADER_CRC_AT]) != u32_at(bytes, HEADER_CRC_AT) {
        return Err(IndexError::Checksum("header"));
    }
    if header.length != bytes.len() as u64 {
        return Err(IndexError::CutOff { have: bytes.len() as u64, need: header.length });
    }
    if crc32fast::hash(&bytes[HEADER_BYTES..]) != header.body_crc {
        return Err(IndexError::Checksum("content"));
    }
    parse_body(bytes, header)
}

fn parse_header(bytes: &[u8]) -> Result<Header, IndexError> {
    if bytes.get(..8) != Some(MAGIC) {
        return Err(IndexError::NotAnIndex);
    }
    if bytes.len() < HEADER_BYTES {
        return Err(IndexError::CutOff { have: bytes.len() as u64, need: HEADER_BYTES as u64 });
    }
    let found = u32_at(bytes, 8);
    if found != FORMAT {
        return Err(IndexError::OtherFormat { found });
    }
    Ok(Header {
        columns: u32_at(bytes, 12),
        layout: array_at(bytes, 16),
        records: u64::from_le_bytes(array_at(bytes, 24)),
        shards: u32_at(bytes, 32),
        speakers: u32_at(bytes, 36),
        languages: u32_at(bytes, 40),
        failures: u32_at(bytes, 44),
        length: u64::from_le_bytes(array_at(bytes, 48)),
        recipe: array_at(bytes, 56),
        content: array_at(bytes, 88),
        seconds: f64::from_le_bytes(array_at(bytes, 120)),
        body_crc: u32_at(bytes, 128),
    })
}

fn parse_body(bytes: &[u8], header: Header) -> Result<Layout, IndexError> {
    let malformed = |what: &str| IndexError::Malformed(what.to_owned());
    let column_count = header.columns as usize;
    let shards = header.shards as usize;
    if column_count == 0 || column_count > MOST_COLUMNS || !header.shards.is_power_of_two() {
        return Err(malformed("impossible numbers of columns or shards"));
    }
    let records = u32::try_from(header.records).map_err(|_| malformed("more records than can be"))? as usize;
    let mut sections = Sections { at: HEADER_BYTES, end: bytes.len() };

    let at = sections.next(column_count, COLUMN_BYTES)?;
    let columns: Result<Vec<_>, _> =
        (0..column_count).map(|i| column_at(&bytes[at + COLUMN_BYTES * i..][..COLUMN_BYTES])).collect();
    let columns = columns.map_err(IndexError::Malformed)?;
    if layout_hash(&columns) != header.layout {
        return Err(malformed("the layout hash does not fit the columns"));
    }

    let shard_table = sections.next(shards, SHARD_BYTES + 8 * column_count)?;
    let firsts = shard_firsts(bytes, shard_table, shards, column_count, &header)?;
    let speakers = string_table(bytes, &mut sections, header.speakers as usize)?;
    let languages = string_table(bytes, &mut sections, header.languages as usize)?;

    let id_offsets = sections.next(records + 1, 4)?;
    let (speaker, language) = (sections.next(records, 4)?, sections.next(records, 4)?);
    let seconds = sections.next(records, 4)?;
    let mut arrays = Vec::with_capacity(column_count);
    for _ in 0..column_count {
        let [rows, first_row, crc] =
            [sections.next(records, 4)?, sections.next(records, 4)?, sections.next(records, 4)?];
        arrays.push(ArraySections { rows, first_row, crc });
    }
    let ids = offsets(bytes, id_offsets, records)?;
    let ids_at = sections.next(ids, 1)?;
    if sections.at != bytes.len() {
        return Err(malformed("bytes follow its end"));
    }
    for (section, known, what) in
        [(speaker, speakers.len(), "speaker"), (language, languages.len(), "language")]
    {
        let largest = words(bytes, section, records).max();
        if largest.is_some_and(|largest| largest as usize >= known) {
            return Err(IndexError::Malformed(format!("a {what} without a name")));
        }
    }
    let ids = ids_at..ids_at + ids;
    Ok(Layout {
        header,
        columns,
        speakers,
        languages,
        firsts,
        shard_table,
        id_offsets,
        speaker,
        language,
        seconds,
        arrays,
        ids,
    })
}

/// Deals out the bytes of a file one section after the other.
struct Sections {
    at: usize,
    end: usize,
}

impl Sections {
    fn next(&mut self, count: usize, size: usize) -> Result<usize, IndexError> {
        let start = self.at;
        let end = count
            .checked_mul(size)
            .and_then(|bytes| start.checked_add(bytes)?.checked_next_multiple_of(8))
            .filter(|&end| end <= self.end);
        self.at = end.ok_or_else(|| IndexError::Malformed(format!("{count} entries do not fit the file")))?;
        Ok(start)
    }
}

fn column_at(bytes: &[u8]) -> Result<StoredColumn, String> {
    let name = bytes[..40].split(|&b| b == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| "a column's name is not UTF-8")?;
    stored_column(name, u32_at(bytes, 40), u32_at(bytes, 44))
}

fn shard_firsts(
    bytes: &[u8],
    table: usize,
    shards: usize,
    columns: usize,
    header: &Header,
) -> Result<Vec<u32>, IndexError> {
    let mut firsts = Vec::with_capacity(shards + 1);
    let (mut next, mut failures) = (0u64, 0u64);
    for shard in 0..shards {
        let at = table + (SHARD_BYTES + 8 * columns) * shard;
        if u64::from(u32_at(bytes, at + 32)) != next {
            return Err(IndexError::Malformed(format!("shard {shard} begins at the wrong record")));
        }
        firsts.push(next as u32);
        next += u64::from(u32_at(bytes, at + 36));
        failures += u64::from(u32_at(bytes, at + 40));
    }
    if next != header.records || failures != u64::from(header.failures) {
        return Err(IndexError::Malformed("the shards do not add up to the whole".into()));
    }
    firsts.push(next as u32);
    Ok(firsts)
}

/// Checks that offsets never go back, and answers the last.
fn offsets(bytes: &[u8], at: usize, count: usize) -> Result<usize, IndexError> {
    let mut last = 0;
    for offset in words(bytes, at, count + 1) {
        if offset < last {
            return Err(IndexError::Malformed("offsets go back".into()));
        }
        last = offset;
    }
    Ok(last as usize)
}

fn string_table(bytes: &[u8], sections: &mut Sections, count: usize) -> Result<Vec<String>, IndexError> {
    let at = sections.next(count.saturating_add(1), 4)?;
    let length = offsets(bytes, at, count)?;
    let text_at = sections.next(length, 1)?;
    let text = &bytes[text_at..text_at + length];
    let entry = |i: usize| &text[u32_at(bytes, at + 4 * i) as usize..u32_at(bytes, at + 4 * i + 4) as usize];
    let names = (0..count).map(|i| std::str::from_utf8(entry(i)).map(str::to_owned));
    names.collect::<Result<_, _>>().map_err(|_| IndexError::Malformed("a name is not UTF-8".into()))
}

fn layout_hash(columns: &[StoredColumn]) -> [u8; 8] {
    let mut print = Fingerprint::new("index layout").number("format", u64::from(FORMAT));
    for column in columns {
        print = print
            .text("name", &column.name)
            .text("dtype", column.dtype.numpy())
            .number("width", u64::from(column.width));
    }
    let [a, b, c, d, e, f, g, h, ..] = print.finish();
    [a, b, c, d, e, f, g, h]
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has this length")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn words(bytes: &[u8], at: usize, count: usize) -> impl Iterator<Item = u32> {
    bytes[at..at + 4 * count].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// An index that is open. Record and column numbers out of range are the caller's mistake and panic.
pub struct Index {
    bytes: Backing,
    layout: Layout,
}

enum Backing {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Deref for Backing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Backing::Mapped(map) => map,
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
        // SAFETY: files of a store are never changed in place, only replaced by rename.
        let map = unsafe { Mmap::map(&file) }.map_err(CacheError::read(path))?;
        let layout =
            parse(&map).map_err(|e| CacheError::Damaged { path: path.to_owned(), what: e.to_string() })?;
        // The check has touched every page; what is needed again comes back from the page cache.
        // SAFETY: the mapping is of a file and read-only, so its pages come back with the same bytes.
        #[cfg(unix)]
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        Ok(Index { bytes: Backing::Mapped(map), layout })
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
        let shard = shard_of(id, self.shards()) as usize;
        let (mut low, mut high) =
            (self.layout.firsts[shard] as usize, self.layout.firsts[shard + 1] as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.id(middle).cmp(id.as_bytes()) {
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

//! Builds an index shard by shard.

use std::collections::HashMap;

use super::IndexError;
use super::layout::{
    COLUMN_BYTES, HEADER_BYTES, HEADER_CRC_AT, Header, MAGIC, SHARD_BYTES, layout_hash, u32_at,
};
use crate::cache::FORMAT;
use crate::cache::fingerprint::{Fingerprint, Hash};
use crate::cache::seal::{Seal, StoredColumn, dtype_code};

/// Builds an index from shards in shard order and records in ascending order of sort keys.
///
/// `prepare` adds seals with [`Self::seal`]; [`Self::shard`] and [`Self::record`] build an index without any shard, for
/// benchmarks.
pub struct IndexBuilder {
    columns: Vec<StoredColumn>,
    recipe: Hash,
    shards: u32,
    shards_begun: u32,
    records: u32,
    failures: u32,
    seconds: f64,
    shard_table: Vec<u8>,
    speakers: Names,
    languages: Names,
    id_offsets: Vec<u8>,
    ids: Vec<u8>,
    durations: Vec<u8>,
    arrays: Vec<[Vec<u8>; 3]>,
    /// Rows of the current shard, per column.
    rows: Vec<u64>,
}

/// A record to add.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry<'a> {
    /// Id of the utterance.
    pub id: &'a str,
    /// Speaker name.
    pub speaker: &'a str,
    /// Language code.
    pub language: &'a str,
    /// Length of the audio.
    pub seconds: f32,
}

/// A finished index: parts to be written one after the other.
pub struct IndexImage {
    parts: Vec<Vec<u8>>,
    content: Hash,
}

impl IndexImage {
    /// Returns the parts of the file.
    pub fn parts(&self) -> &[Vec<u8>] {
        &self.parts
    }

    /// Returns the whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.parts.concat()
    }

    /// Returns whether these are the bytes of the file.
    pub fn matches(&self, mut bytes: &[u8]) -> bool {
        let fits = self.parts.iter().all(|part| match bytes.split_at_checked(part.len()) {
            Some((start, rest)) => {
                bytes = rest;
                start == part
            }
            None => false,
        });
        fits && bytes.is_empty()
    }

    /// Returns the hash of everything in the store.
    pub fn content(&self) -> Hash {
        self.content
    }
}

/// Names numbered in order of appearance. In the file they are sorted, so that numbers follow from content.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    of_record: Vec<u32>,
}

impl Names {
    fn push(&mut self, name: &str) {
        let next = self.numbers.len() as u32;
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => *self.numbers.entry(name.to_owned()).or_insert(next),
        };
        self.of_record.push(number);
    }

    /// Returns the offsets, the names and every record's number.
    fn sections(self) -> [Vec<u8>; 3] {
        let mut names: Vec<(String, u32)> = self.numbers.into_iter().collect();
        names.sort_unstable();
        let mut sorted = vec![0u32; names.len()];
        let (mut offsets, mut text) = (0u32.to_le_bytes().to_vec(), Vec::new());
        for (position, (name, number)) in names.iter().enumerate() {
            sorted[*number as usize] = position as u32;
            text.extend_from_slice(name.as_bytes());
            offsets.extend_from_slice(&(text.len() as u32).to_le_bytes());
        }
        let of_record = self.of_record.iter().flat_map(|&n| sorted[n as usize].to_le_bytes()).collect();
        [offsets, text, of_record]
    }
}

impl IndexBuilder {
    /// Creates a builder for `shards` shards, a power of two.
    pub fn new(columns: Vec<StoredColumn>, recipe: Hash, shards: u32) -> Self {
        assert!(shards.is_power_of_two(), "the number of shards must be a power of two");
        let count = columns.len();
        IndexBuilder {
            columns,
            recipe,
            shards,
            shards_begun: 0,
            records: 0,
            failures: 0,
            seconds: 0.0,
            shard_table: Vec::new(),
            speakers: Names::default(),
            languages: Names::default(),
            id_offsets: Vec::new(),
            ids: Vec::new(),
            durations: Vec::new(),
            arrays: vec![Default::default(); count],
            rows: vec![0; count],
        }
    }

    /// Adds the next shard with all its records.
    pub fn seal(&mut self, seal: &Seal, hash: &Hash) -> Result<(), IndexError> {
        if seal.columns != self.columns || seal.shard != self.shards_begun || seal.shards != self.shards {
            return Err(IndexError::Malformed(format!("unexpected seal of shard {}", seal.shard)));
        }
        self.shard(hash, seal.failures.len() as u32);
        for record in &seal.records {
            let entry = IndexEntry {
                id: &record.id,
                speaker: &record.speaker,
                language: &record.language,
                seconds: record.seconds,
            };
            self.record(entry, record.arrays.iter().map(|array| (array.rows, array.crc)))?;
        }
        Ok(())
    }

    /// Begins the next shard.
    pub fn shard(&mut self, seal: &Hash, failures: u32) {
        self.end_shard();
        self.shard_table.extend_from_slice(seal);
        // Records and rows are filled in when the shard ends.
        for word in [self.records, 0, failures, 0] {
            self.shard_table.extend_from_slice(&word.to_le_bytes());
        }
        self.shard_table.extend(std::iter::repeat_n(0, 8 * self.columns.len()));
        self.rows.fill(0);
        self.shards_begun += 1;
        self.failures += failures;
    }

    /// Adds a record to the current shard: rows and crc32 of every column. Records must come in ascending order of sort
    /// keys.
    pub fn record(
        &mut self,
        entry: IndexEntry,
        arrays: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<(), IndexError> {
        let too_much = |what: &str| IndexError::Malformed(format!("more {what} than 2^32"));
        let start = u32::try_from(self.ids.len()).map_err(|_| too_much("bytes of ids"))?;
        self.id_offsets.extend_from_slice(&start.to_le_bytes());
        self.ids.extend_from_slice(entry.id.as_bytes());
        self.speakers.push(entry.speaker);
        self.languages.push(entry.language);
        self.durations.extend_from_slice(&entry.seconds.to_le_bytes());
        self.seconds += f64::from(entry.seconds);
        let mut given = 0;
        for (column, (rows, crc)) in arrays.into_iter().enumerate() {
            let first = u32::try_from(self.rows[column]).map_err(|_| too_much("rows in a shard"))?;
            for (section, word) in self.arrays[column].iter_mut().zip([rows, first, crc]) {
                section.extend_from_slice(&word.to_le_bytes());
            }
            self.rows[column] += u64::from(rows);
            given += 1;
        }
        assert_eq!(given, self.columns.len(), "a record must have every column");
        self.records = self.records.checked_add(1).ok_or_else(|| too_much("records"))?;
        Ok(())
    }

    fn end_shard(&mut self) {
        let entry = SHARD_BYTES + 8 * self.columns.len();
        let Some(at) = self.shard_table.len().checked_sub(entry) else { return };
        let entry = &mut self.shard_table[at..];
        let first = u32_at(entry, 32);
        entry[36..40].copy_from_slice(&(self.records - first).to_le_bytes());
        for (column, rows) in self.rows.iter().enumerate() {
            entry[48 + 8 * column..][..8].copy_from_slice(&rows.to_le_bytes());
        }
    }

    /// Builds the index.
    pub fn finish(mut self) -> Result<IndexImage, IndexError> {
        if self.shards_begun != self.shards {
            return Err(IndexError::Malformed(format!(
                "{} of {} shards were given",
                self.shards_begun, self.shards
            )));
        }
        self.end_shard();
        let ids_end = u32::try_from(self.ids.len());
        let ids_end = ids_end.map_err(|_| IndexError::Malformed("more bytes of ids than 2^32".into()))?;
        self.id_offsets.extend_from_slice(&ids_end.to_le_bytes());

        let mut columns = Vec::with_capacity(COLUMN_BYTES * self.columns.len());
        for column in &self.columns {
            let mut name = [0u8; 40];
            name[..column.name.len()].copy_from_slice(column.name.as_bytes());
            columns.extend_from_slice(&name);
            columns.extend_from_slice(&u32::from(dtype_code(column.dtype)).to_le_bytes());
            columns.extend_from_slice(&column.width.to_le_bytes());
        }
        let (speaker_count, language_count) =
            (self.speakers.numbers.len() as u32, self.languages.numbers.len() as u32);
        let [speaker_offsets, speakers, speaker] = self.speakers.sections();
        let [language_offsets, languages, language] = self.languages.sections();
        // Covers everything about the records and nothing about shards: the hash does not depend on how the records are
        // divided.
        let mut content = Fingerprint::new("store").bytes("recipe", &self.recipe).bytes("columns", &columns);
        for part in [&speakers, &speaker, &languages, &language, &self.id_offsets, &self.ids, &self.durations]
        {
            content = content.bytes("records", part);
        }
        for [rows, _, crc] in &self.arrays {
            content = content.bytes("rows", rows).bytes("crc", crc);
        }
        let content = content.finish();
        let mut parts = vec![
            Vec::new(),
            columns,
            self.shard_table,
            speaker_offsets,
            speakers,
            language_offsets,
            languages,
            self.id_offsets,
            speaker,
            language,
            self.durations,
        ];
        parts.extend(self.arrays.into_iter().flatten());
        parts.push(self.ids);

        let mut crc = crc32fast::Hasher::new();
        let mut length = HEADER_BYTES;
        for part in &mut parts {
            part.resize(part.len().next_multiple_of(8), 0);
            crc.update(part);
            length += part.len();
        }
        let header = Header {
            columns: self.columns.len() as u32,
            layout: layout_hash(&self.columns),
            records: u64::from(self.records),
            shards: self.shards,
            speakers: speaker_count,
            languages: language_count,
            failures: self.failures,
            length: length as u64,
            recipe: self.recipe,
            content,
            seconds: self.seconds,
            body_crc: crc.finalize(),
        };
        parts[0] = encode(&header).to_vec();
        Ok(IndexImage { parts, content })
    }
}

fn encode(header: &Header) -> [u8; HEADER_BYTES] {
    let mut out = [0u8; HEADER_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(MAGIC);
    put(&FORMAT.to_le_bytes());
    put(&header.columns.to_le_bytes());
    put(&header.layout);
    put(&header.records.to_le_bytes());
    for count in [header.shards, header.speakers, header.languages, header.failures] {
        put(&count.to_le_bytes());
    }
    put(&header.length.to_le_bytes());
    put(&header.recipe);
    put(&header.content);
    put(&header.seconds.to_le_bytes());
    put(&header.body_crc.to_le_bytes());
    let crc = crc32fast::hash(&out[..HEADER_CRC_AT]);
    out[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out
}

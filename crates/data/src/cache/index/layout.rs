//! Offsets of the sections of an index.

use std::ops::Range;

use super::IndexError;
use crate::cache::FORMAT;
use crate::cache::fingerprint::{Fingerprint, Hash};
use crate::cache::seal::{MAX_COLUMNS, StoredColumn, stored_column};

pub(super) const MAGIC: &[u8; 8] = b"MYXTINDX";
pub(super) const COLUMN_BYTES: usize = 48;
pub(super) const SHARD_BYTES: usize = 48;

/// Size of the header.
pub(super) const HEADER_BYTES: usize = 136;
/// Offset of the header's checksum, which covers everything before it.
pub(super) const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// Header of the file.
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
/// | 88 | content [32]: of the recipe and every record, not of the shards |
/// | 120 | seconds f64 |
/// | 128 | crc32 of everything after the header, crc32 of the header before this field |
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) columns: u32,
    pub(super) layout: [u8; 8],
    pub(super) records: u64,
    pub(super) shards: u32,
    pub(super) speakers: u32,
    pub(super) languages: u32,
    pub(super) failures: u32,
    pub(super) length: u64,
    pub(super) recipe: Hash,
    pub(super) content: Hash,
    pub(super) seconds: f64,
    pub(super) body_crc: u32,
}

/// Byte offsets of the sections of an index, and its small tables.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) header: Header,
    pub(super) columns: Vec<StoredColumn>,
    pub(super) speakers: Vec<String>,
    pub(super) languages: Vec<String>,
    /// First record of every shard, followed by the number of records.
    pub(super) firsts: Vec<u32>,
    pub(super) shard_table: usize,
    pub(super) id_offsets: usize,
    pub(super) speaker: usize,
    pub(super) language: usize,
    pub(super) seconds: usize,
    pub(super) arrays: Vec<ArraySections>,
    pub(super) ids: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ArraySections {
    pub(super) rows: usize,
    pub(super) first_row: usize,
    pub(super) crc: usize,
}

/// Parses the layout of an index from the bytes of its file. Untrusted bytes are safe.
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

pub(super) fn parse_header(bytes: &[u8]) -> Result<Header, IndexError> {
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

pub(super) fn parse_body(bytes: &[u8], header: Header) -> Result<Layout, IndexError> {
    let malformed = |what: &str| IndexError::Malformed(what.to_owned());
    let column_count = header.columns as usize;
    let shards = header.shards as usize;
    if column_count == 0 || column_count > MAX_COLUMNS || !header.shards.is_power_of_two() {
        return Err(malformed("invalid number of columns or shards"));
    }
    let records = u32::try_from(header.records).map_err(|_| malformed("more than 2^32 records"))? as usize;
    let mut sections = Sections { at: HEADER_BYTES, end: bytes.len() };

    let at = sections.next(column_count, COLUMN_BYTES)?;
    let columns: Result<Vec<_>, _> =
        (0..column_count).map(|i| column_at(&bytes[at + COLUMN_BYTES * i..][..COLUMN_BYTES])).collect();
    let columns = columns.map_err(IndexError::Malformed)?;
    if layout_hash(&columns) != header.layout {
        return Err(malformed("the layout hash does not match the columns"));
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
        return Err(malformed("bytes follow the last section"));
    }
    for (section, known, what) in
        [(speaker, speakers.len(), "speaker"), (language, languages.len(), "language")]
    {
        let largest = words(bytes, section, records).max();
        if largest.is_some_and(|largest| largest as usize >= known) {
            return Err(IndexError::Malformed(format!("a record has an unknown {what}")));
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

/// Allocates the bytes of a file to consecutive sections.
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
        self.at =
            end.ok_or_else(|| IndexError::Malformed(format!("the file is too short for {count} entries")))?;
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
        return Err(IndexError::Malformed("the record or failure counts of the shards do not add up".into()));
    }
    firsts.push(next as u32);
    Ok(firsts)
}

/// Checks that offsets never decrease, and returns the last.
fn offsets(bytes: &[u8], at: usize, count: usize) -> Result<usize, IndexError> {
    let mut last = 0;
    for offset in words(bytes, at, count + 1) {
        if offset < last {
            return Err(IndexError::Malformed("offsets decrease".into()));
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

pub(super) fn layout_hash(columns: &[StoredColumn]) -> [u8; 8] {
    let mut fingerprint = Fingerprint::new("index layout").number("format", u64::from(FORMAT));
    for column in columns {
        fingerprint = fingerprint
            .text("name", &column.name)
            .text("dtype", column.dtype.numpy())
            .number("width", u64::from(column.width));
    }
    let [a, b, c, d, e, f, g, h, ..] = fingerprint.finish();
    [a, b, c, d, e, f, g, h]
}

pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has this length")
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn words(bytes: &[u8], at: usize, count: usize) -> impl Iterator<Item = u32> {
    bytes[at..at + 4 * count].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

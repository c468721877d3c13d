//! The zip container of `torch.save`: stored entries only, located by name, never unpacked.
//!
//! This is a custom reader and writer. Callers need the byte range of each entry in a memory-mapped file of gigabytes, and
//! entries aligned to 64 bytes. A general zip library streams and copies, and brings decompressors that would only enable
//! zip bombs.

use std::collections::HashMap;
use std::ops::Range;

use myxtts_run::durable::{DurableError, Writer};

/// Maximum number of entries; a trainer checkpoint of the released size has about 3,000.
const MAX_ENTRIES: u64 = 100_000;

/// Alignment of an entry's content in bytes, as torch writes it.
const ALIGNMENT: u64 = 64;

/// Error returned when a container is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArchiveError {
    #[error("not a torch.save file: it has no zip directory (is the download complete?)")]
    NotAZip,
    #[error(
        "the file is in the format of torch before 1.6; save it again with a newer torch:  \
         torch.save(torch.load(OLD, map_location=\"cpu\"), NEW)"
    )]
    Legacy,
    #[error("the zip directory is damaged: {what}")]
    Damaged { what: &'static str },
    #[error("the entry {name} is {what}; torch.save writes plain stored entries")]
    Entry { name: String, what: &'static str },
    #[error("the archive has {count} entries, more than the limit of {MAX_ENTRIES}")]
    TooMany { count: u64 },
    #[error("the archive has no entry {name}")]
    Missing { name: String },
}

/// Index of the entries of an archive.
#[derive(Debug)]
pub struct Archive {
    entries: HashMap<String, Entry>,
    folder: String,
}

/// Location and checksum of an entry's content.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Byte range in the file.
    pub range: Range<usize>,
    /// CRC-32 recorded in the directory.
    pub crc: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Magic number of the format before torch 1.6, which is a sequence of pickles.
const LEGACY: [u8; 14] = [0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

const DAMAGED: ArchiveError = ArchiveError::Damaged { what: "it is truncated" };

/// Byte range of the directory and the number of entries it lists.
fn directory(bytes: &[u8]) -> Result<(Range<usize>, u64), ArchiveError> {
    // The end record is followed by a comment of at most 65,535 bytes.
    let from = bytes.len().saturating_sub(22 + 0xffff);
    let end = bytes[from..].windows(4).rposition(|w| w == b"PK\x05\x06").ok_or(ArchiveError::NotAZip)? + from;
    let short = (|| Some((u16_at(bytes, end + 10)?, u32_at(bytes, end + 12)?, u32_at(bytes, end + 16)?)))();
    let (mut count, mut size, mut start) = short.ok_or(DAMAGED)?;
    if u16_at(bytes, end + 20).is_none_or(|comment| end + 22 + comment as usize != bytes.len()) {
        return Err(DAMAGED);
    }
    let locator = end.checked_sub(20).filter(|&at| bytes[at..].starts_with(b"PK\x06\x07"));
    if let Some(locator) = locator {
        let long = (|| {
            let at = usize::try_from(u64_at(bytes, locator + 8)?).ok()?;
            bytes.get(at..)?.starts_with(b"PK\x06\x06").then_some(())?;
            Some((u64_at(bytes, at + 32)?, u64_at(bytes, at + 40)?, u64_at(bytes, at + 48)?))
        })();
        (count, size, start) =
            long.ok_or(ArchiveError::Damaged { what: "its zip64 record is not at the stated position" })?;
    }
    let range =
        usize::try_from(start).ok().zip(start.checked_add(size).and_then(|end| usize::try_from(end).ok()));
    match range {
        Some((start, stop)) if stop <= end => Ok((start..stop, count)),
        _ => Err(ArchiveError::Damaged { what: "it extends past the end of the file" }),
    }
}

/// Directory record of one entry.
struct DirectoryRecord {
    name: String,
    header: u64,
    size: u64,
    crc: u32,
    length: usize,
}

/// Parses one directory record.
fn parse_record(bytes: &[u8]) -> Result<DirectoryRecord, ArchiveError> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return Err(ArchiveError::Damaged { what: "an entry has no valid signature" });
    }
    let field =
        |at: usize, is_wide: bool| if is_wide { u32_at(bytes, at) } else { u16_at(bytes, at) }.ok_or(DAMAGED);
    let (flags, method, crc) = (field(8, false)?, field(10, false)?, field(16, true)? as u32);
    let (mut packed, mut size, mut header) = (field(20, true)?, field(24, true)?, field(42, true)?);
    let (named, extra, comment) =
        (field(28, false)? as usize, field(30, false)? as usize, field(32, false)? as usize);
    let length = 46 + named + extra + comment;
    if bytes.len() < length {
        return Err(DAMAGED);
    }
    let name = String::from_utf8_lossy(&bytes[46..46 + named]).into_owned();
    let wrong = |what| ArchiveError::Entry { name: name.clone(), what };
    let mut extras = &bytes[46 + named..46 + named + extra];
    while let (Some(id), Some(long)) = (u16_at(extras, 0), u16_at(extras, 2)) {
        let body = extras.get(4..4 + long as usize).ok_or(DAMAGED)?;
        if id == 1 {
            // Contains only the fields that did not fit, in this order.
            let mut at = 0;
            for value in [&mut size, &mut packed, &mut header] {
                if *value == 0xffff_ffff {
                    *value = u64_at(body, at).ok_or(DAMAGED)?;
                    at += 8;
                }
            }
        }
        extras = &extras[4 + long as usize..];
    }
    if flags & 1 != 0 {
        return Err(wrong("encrypted"));
    }
    if method != 0 || packed != size {
        return Err(wrong("compressed"));
    }
    Ok(DirectoryRecord { name, header, size, crc, length })
}

impl Archive {
    /// Reads the directory of a file.
    pub fn read(bytes: &[u8]) -> Result<Archive, ArchiveError> {
        if bytes.starts_with(&LEGACY) {
            return Err(ArchiveError::Legacy);
        }
        let (directory, count) = directory(bytes)?;
        if count > MAX_ENTRIES {
            return Err(ArchiveError::TooMany { count });
        }
        let limit = directory.start;
        let mut rest = &bytes[directory];
        let mut entries = HashMap::new();
        for _ in 0..count {
            let DirectoryRecord { name, header, size, crc, length } = parse_record(rest)?;
            rest = &rest[length..];
            let range = content(bytes, header, size, limit);
            let range = range.ok_or_else(|| ArchiveError::Entry {
                name: name.clone(),
                what: "not at the stated position",
            })?;
            if entries.insert(name.clone(), Entry { range, crc }).is_some() {
                return Err(ArchiveError::Entry { name, what: "present twice" });
            }
        }
        let mut places: Vec<(&Entry, &String)> = entries.iter().map(|(name, entry)| (entry, name)).collect();
        places.sort_by_key(|(entry, _)| (entry.range.start, entry.range.end));
        if let Some([_, (_, name)]) = places.array_windows().find(|[a, b]| a.0.range.end > b.0.range.start) {
            return Err(ArchiveError::Entry { name: (*name).clone(), what: "overlapping another" });
        }
        // All entries are in one folder, named after the file when it was saved.
        let pickles = entries.keys().filter_map(|name| name.strip_suffix("/data.pkl"));
        let mut folders: Vec<String> = pickles.map(str::to_owned).collect();
        match (folders.pop(), folders.is_empty()) {
            (Some(folder), true) => Ok(Archive { entries, folder }),
            _ => Err(ArchiveError::Missing { name: "data.pkl".to_owned() }),
        }
    }

    /// Returns an entry by its name within the archive's folder: `data.pkl`, `data/0`.
    pub fn entry(&self, name: &str) -> Result<&Entry, ArchiveError> {
        let name = format!("{}/{name}", self.folder);
        self.entries.get(&name).ok_or(ArchiveError::Missing { name })
    }

    /// Names of entries whose bytes do not match their checksum.
    pub fn damaged(&self, bytes: &[u8]) -> Vec<String> {
        let sound = |entry: &Entry| crc32fast::hash(&bytes[entry.range.clone()]) == entry.crc;
        let mut names: Vec<String> =
            self.entries.iter().filter(|(_, entry)| !sound(entry)).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

/// Byte range of an entry's content, from its local header; `None` if it is not entirely before the directory.
fn content(bytes: &[u8], header: u64, size: u64, limit: usize) -> Option<Range<usize>> {
    let header = usize::try_from(header).ok()?;
    let local = bytes.get(header..limit)?;
    local.starts_with(b"PK\x03\x04").then_some(())?;
    let start = header + 30 + u16_at(local, 26)? as usize + u16_at(local, 28)? as usize;
    let stop = start.checked_add(usize::try_from(size).ok()?)?;
    (stop <= limit).then_some(start..stop)
}

/// Writes an archive, entry by entry.
pub struct ArchiveWriter<'d> {
    file: Writer<'d>,
    folder: String,
    at: u64,
    directory: Vec<u8>,
    count: u64,
    /// Values from here on are written as 64 bits: those that do not fit into 32; tests use a lower threshold.
    zip64_threshold: u64,
}

impl<'d> ArchiveWriter<'d> {
    /// Creates an archive whose entries are in `folder`.
    pub fn new(file: Writer<'d>, folder: &str) -> ArchiveWriter<'d> {
        ArchiveWriter::with_zip64_threshold(file, folder, 0xffff_ffff)
    }

    /// Creates an archive that writes values from `zip64_threshold` on as 64 bits.
    pub fn with_zip64_threshold(file: Writer<'d>, folder: &str, zip64_threshold: u64) -> ArchiveWriter<'d> {
        ArchiveWriter {
            file,
            folder: folder.to_owned(),
            at: 0,
            directory: Vec::new(),
            count: 0,
            zip64_threshold,
        }
    }

    /// Adds an entry.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<(), DurableError> {
        let name = format!("{}/{name}", self.folder);
        let (size, crc) = (content.len() as u64, crc32fast::hash(content));
        let wide_size = size >= self.zip64_threshold;
        let wide_at = self.at >= self.zip64_threshold;
        let short = |value: u64, is_wide: bool| if is_wide { u32::MAX } else { value as u32 }.to_le_bytes();
        let version: u16 = if wide_size || wide_at { 45 } else { 20 };

        let mut extra = Vec::new();
        if wide_size {
            extra.extend([1, 0, 16, 0]);
            extra.extend([size.to_le_bytes(), size.to_le_bytes()].concat());
        }
        // torch pads with "FB"; the padding field has at least four bytes.
        let unpadded = self.at + 30 + (name.len() + extra.len()) as u64 + 4;
        let padding = (unpadded.next_multiple_of(ALIGNMENT) - unpadded) as u16;
        extra.extend(b"FB");
        extra.extend(padding.to_le_bytes());
        extra.resize(extra.len() + usize::from(padding), b'Z');

        let mut local = Vec::from(*b"PK\x03\x04");
        local.extend(version.to_le_bytes());
        // Names are UTF-8 (bit 11); no compression; no timestamp, so that the same model gives the same bytes.
        let middle = [&[0u8, 8, 0, 0, 0, 0, 0x21, 0][..], &crc.to_le_bytes()].concat();
        local.extend(&middle);
        local.extend([short(size, wide_size), short(size, wide_size)].concat());
        local.extend((name.len() as u16).to_le_bytes());
        local.extend((extra.len() as u16).to_le_bytes());
        local.extend(name.as_bytes());
        local.extend(&extra);
        self.file.write(&local)?;
        self.file.write(content)?;

        let mut extra = Vec::new();
        if wide_size || wide_at {
            let values: Vec<u64> = [(wide_size, size), (wide_size, size), (wide_at, self.at)]
                .iter()
                .filter(|v| v.0)
                .map(|v| v.1)
                .collect();
            extra.extend([1, 0, values.len() as u8 * 8, 0]);
            values.iter().for_each(|value| extra.extend(value.to_le_bytes()));
        }
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend([version.to_le_bytes(), version.to_le_bytes()].concat());
        self.directory.extend(&middle);
        self.directory.extend([short(size, wide_size), short(size, wide_size)].concat());
        self.directory.extend((name.len() as u16).to_le_bytes());
        self.directory.extend((extra.len() as u16).to_le_bytes());
        self.directory.extend([0; 10]);
        self.directory.extend(short(self.at, wide_at));
        self.directory.extend(name.as_bytes());
        self.directory.extend(&extra);

        self.at += (local.len() + content.len()) as u64;
        self.count += 1;
        Ok(())
    }

    /// Writes the directory and returns the file, which the caller must finish.
    pub fn finish(mut self) -> Result<Writer<'d>, DurableError> {
        let (start, size, count) = (self.at, self.directory.len() as u64, self.count);
        let mut end = std::mem::take(&mut self.directory);
        let is_wide = start >= self.zip64_threshold || size >= self.zip64_threshold || count >= 0xffff;
        if is_wide {
            let here = start + size;
            end.extend(b"PK\x06\x06");
            end.extend(44u64.to_le_bytes());
            end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for value in [count, count, size, start] {
                end.extend(value.to_le_bytes());
            }
            end.extend(b"PK\x06\x07\0\0\0\0");
            end.extend(here.to_le_bytes());
            end.extend(1u32.to_le_bytes());
        }
        let short = |value: u64| if is_wide { u32::MAX } else { value as u32 }.to_le_bytes();
        let entries = if is_wide { u16::MAX } else { count as u16 }.to_le_bytes();
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend([entries, entries].concat());
        end.extend([short(size), short(start)].concat());
        end.extend([0, 0]);
        self.file.write(&end)?;
        Ok(self.file)
    }
}

//! The zip container of `torch.save`: stored entries only, found by name, never unpacked.
//!
//! A reader and writer of our own: what is needed is the place of each entry in a mapped file of gigabytes, and entries
//! that begin at multiples of 64 bytes; a general zip library streams and copies, and brings decompressors that would
//! only serve zip bombs.

use std::collections::HashMap;
use std::ops::Range;

use myxtts_run::durable::{DurableError, Writer};

/// Entries of an archive at most; a trainer's checkpoint of the released size has some 3,000.
const ENTRIES: u64 = 100_000;

/// Where torch begins the content of an entry.
const ALIGNMENT: u64 = 64;

/// Why a container was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArchiveError {
    #[error("it is no file of torch.save: there is no zip directory in it (was it downloaded completely?)")]
    NotAZip,
    #[error(
        "it is in torch's format from before version 1.6; save it again with a newer torch: \
         torch.save(torch.load(OLD, map_location=\"cpu\"), NEW)"
    )]
    Legacy,
    #[error("its directory is damaged: {what}")]
    Damaged { what: &'static str },
    #[error("the entry {name} is {what}; torch.save stores its entries as they are")]
    Entry { name: String, what: &'static str },
    #[error("it has {count} entries, more than {ENTRIES}")]
    TooMany { count: u64 },
    #[error("it has no entry {name}")]
    Missing { name: String },
}

/// Where the entries of an archive lie.
#[derive(Debug)]
pub struct Archive {
    entries: HashMap<String, Entry>,
    folder: String,
}

/// An entry's content.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where its bytes lie in the file.
    pub range: Range<usize>,
    /// Checksum that the directory gives.
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

/// Before version 1.6, torch wrote pickles in a row, beginning with this number.
const LEGACY: [u8; 14] = [0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

const DAMAGED: ArchiveError = ArchiveError::Damaged { what: "it ends in the middle of something" };

/// The directory: where it lies and how many entries it names.
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
            long.ok_or(ArchiveError::Damaged { what: "its 64-bit part is not where it says" })?;
    }
    let range =
        usize::try_from(start).ok().zip(start.checked_add(size).and_then(|end| usize::try_from(end).ok()));
    match range {
        Some((start, stop)) if stop <= end => Ok((start..stop, count)),
        _ => Err(ArchiveError::Damaged { what: "it lies beyond the end of the file" }),
    }
}

/// What the directory says of one entry.
struct Listed {
    name: String,
    header: u64,
    size: u64,
    crc: u32,
    length: usize,
}

/// Reads one line of the directory.
fn listed(bytes: &[u8]) -> Result<Listed, ArchiveError> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return Err(ArchiveError::Damaged { what: "an entry does not begin as one" });
    }
    let field =
        |at: usize, wide: bool| if wide { u32_at(bytes, at) } else { u16_at(bytes, at) }.ok_or(DAMAGED);
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
            // Only those that did not fit are here, in this order.
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
    Ok(Listed { name, header, size, crc, length })
}

impl Archive {
    /// Finds the entries of a file.
    pub fn read(bytes: &[u8]) -> Result<Archive, ArchiveError> {
        if bytes.starts_with(&LEGACY) {
            return Err(ArchiveError::Legacy);
        }
        let (directory, count) = directory(bytes)?;
        if count > ENTRIES {
            return Err(ArchiveError::TooMany { count });
        }
        let limit = directory.start;
        let mut rest = &bytes[directory];
        let mut entries = HashMap::new();
        for _ in 0..count {
            let Listed { name, header, size, crc, length } = listed(rest)?;
            rest = &rest[length..];
            let range = content(bytes, header, size, limit);
            let range =
                range.ok_or_else(|| ArchiveError::Entry { name: name.clone(), what: "not where it says" })?;
            if entries.insert(name.clone(), Entry { range, crc }).is_some() {
                return Err(ArchiveError::Entry { name, what: "there twice" });
            }
        }
        let mut places: Vec<(&Entry, &String)> = entries.iter().map(|(name, entry)| (entry, name)).collect();
        places.sort_by_key(|(entry, _)| (entry.range.start, entry.range.end));
        if let Some([_, (_, name)]) = places.array_windows().find(|[a, b]| a.0.range.end > b.0.range.start) {
            return Err(ArchiveError::Entry { name: (*name).clone(), what: "lying over another" });
        }
        // Everything lies in one folder, which has the name the file was saved under.
        let pickles = entries.keys().filter_map(|name| name.strip_suffix("/data.pkl"));
        let mut folders: Vec<String> = pickles.map(str::to_owned).collect();
        match (folders.pop(), folders.is_empty()) {
            (Some(folder), true) => Ok(Archive { entries, folder }),
            _ => Err(ArchiveError::Missing { name: "data.pkl".to_owned() }),
        }
    }

    /// An entry under its name within the archive's folder: `data.pkl`, `data/0`.
    pub fn entry(&self, name: &str) -> Result<&Entry, ArchiveError> {
        let name = format!("{}/{name}", self.folder);
        self.entries.get(&name).ok_or(ArchiveError::Missing { name })
    }

    /// Names of entries whose bytes are not those that were written.
    pub fn damaged(&self, bytes: &[u8]) -> Vec<String> {
        let sound = |entry: &Entry| crc32fast::hash(&bytes[entry.range.clone()]) == entry.crc;
        let mut names: Vec<String> =
            self.entries.iter().filter(|(_, entry)| !sound(entry)).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

/// Where an entry's bytes lie, by its own header; none where that is not in front of the directory.
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
    /// Numbers from here on are written with 64 bits: what does not fit into 32, and in tests less.
    wide: u64,
}

impl<'d> ArchiveWriter<'d> {
    /// An archive whose entries lie in `folder`.
    pub fn new(file: Writer<'d>, folder: &str) -> ArchiveWriter<'d> {
        ArchiveWriter::with_wide(file, folder, 0xffff_ffff)
    }

    /// An archive that already writes numbers from `wide` on with 64 bits.
    pub fn with_wide(file: Writer<'d>, folder: &str, wide: u64) -> ArchiveWriter<'d> {
        ArchiveWriter { file, folder: folder.to_owned(), at: 0, directory: Vec::new(), count: 0, wide }
    }

    /// Adds an entry of one piece.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<(), DurableError> {
        let name = format!("{}/{name}", self.folder);
        let (size, crc) = (content.len() as u64, crc32fast::hash(content));
        let wide_size = size >= self.wide;
        let wide_at = self.at >= self.wide;
        let short = |value: u64, wide: bool| if wide { u32::MAX } else { value as u32 }.to_le_bytes();
        let version: u16 = if wide_size || wide_at { 45 } else { 20 };

        let mut extra = Vec::new();
        if wide_size {
            extra.extend([1, 0, 16, 0]);
            extra.extend([size.to_le_bytes(), size.to_le_bytes()].concat());
        }
        // "FB" is what torch pads with; four bytes of it are the least.
        let unpadded = self.at + 30 + (name.len() + extra.len()) as u64 + 4;
        let padding = (unpadded.next_multiple_of(ALIGNMENT) - unpadded) as u16;
        extra.extend(b"FB");
        extra.extend(padding.to_le_bytes());
        extra.resize(extra.len() + usize::from(padding), b'Z');

        let mut local = Vec::from(*b"PK\x03\x04");
        local.extend(version.to_le_bytes());
        // Names are UTF-8 (bit 11); no compression; no time: the same model gives the same bytes.
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

    /// Writes the directory and gives the file back, to be finished.
    pub fn finish(mut self) -> Result<Writer<'d>, DurableError> {
        let (start, size, count) = (self.at, self.directory.len() as u64, self.count);
        let mut end = std::mem::take(&mut self.directory);
        let wide = start >= self.wide || size >= self.wide || count >= 0xffff;
        if wide {
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
        let short = |value: u64| if wide { u32::MAX } else { value as u32 }.to_le_bytes();
        let entries = if wide { u16::MAX } else { count as u16 }.to_le_bytes();
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend([entries, entries].concat());
        end.extend([short(size), short(start)].concat());
        end.extend([0, 0]);
        self.file.write(&end)?;
        Ok(self.file)
    }
}

//! The seal of a shard: its contents, with checksums. It is written last and commits the shard.
//!
//! Little-endian; a text is a u32 length and UTF-8:
//! ```text
//! magic "MYXTSEAL", version u32, shard u32, shards u32, recipe [32]
//! columns u32:  name text, dtype u8, width u32
//! records u32:  id, speaker, language texts, key [32], source size u64, source hash [32], seconds f32,
//!               then per column rows u32, crc32 u32
//! failures u32: id text, key [32], kind text, severity u8, detail text
//! blake3 of everything before [32]
//! ```
//! Row offsets are not stored: records follow each other in this order.

use super::FORMAT;
use super::fingerprint::Hash;
use super::names::{is_column_name, sort_key};
pub use super::source::SourceDigest;
use super::wire::{ByteReader, put_text};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::{Column, Dtype};
use crate::utterance::Origin;

const MAGIC: &[u8; 8] = b"MYXTSEAL";

/// Maximum number of columns of a record.
pub(crate) const MAX_COLUMNS: usize = 32;

/// Contents of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Seal {
    /// Zero-based shard number.
    pub shard: u32,
    /// Number of shards in the store.
    pub shards: u32,
    /// Hash of the settings it was made with.
    pub recipe: Hash,
    /// Columns of every record.
    pub columns: Vec<StoredColumn>,
    /// Records in ascending order of sort keys.
    pub records: Vec<SealedRecord>,
    /// Utterances that could not become records, in ascending order of sort keys.
    pub failures: Vec<Failure>,
}

/// A [`Column`] as read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredColumn {
    /// Name, also part of the file name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Elements per row.
    pub width: u32,
}

impl StoredColumn {
    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.dtype.size() * self.width as usize
    }
}

impl From<&Column> for StoredColumn {
    fn from(column: &Column) -> Self {
        StoredColumn { name: column.name.to_owned(), dtype: column.dtype, width: column.width }
    }
}

impl PartialEq<Column> for StoredColumn {
    fn eq(&self, other: &Column) -> bool {
        self.name == other.name && self.dtype == other.dtype && self.width == other.width
    }
}

/// One record of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedRecord {
    /// Id of the utterance.
    pub id: String,
    /// Speaker name.
    pub speaker: String,
    /// Language code.
    pub language: String,
    /// Hash of its inputs.
    pub key: Hash,
    /// Size and hash of its audio file.
    pub source: SourceDigest,
    /// Length of the audio.
    pub seconds: f32,
    /// Length and checksum of its arrays, one per column.
    pub arrays: Vec<ArrayDigest>,
}

/// Length and checksum of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayDigest {
    /// Number of rows.
    pub rows: u32,
    /// crc32 of the bytes.
    pub crc: u32,
}

/// An utterance that could not become a record. Its place of declaration is not stored: lines move without the utterance
/// changing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Id of the utterance.
    pub id: String,
    /// Hash of its inputs.
    pub key: Hash,
    /// Category of the problem.
    pub kind: ProblemKind,
    /// Severity of the problem.
    pub severity: Severity,
    /// Message for people.
    pub detail: String,
}

impl Failure {
    /// Returns the problem of an utterance declared at `origin`.
    pub fn problem(&self, origin: Origin) -> Problem {
        Problem {
            kind: self.kind,
            severity: self.severity,
            id: Some(self.id.clone()),
            origin,
            detail: self.detail.clone(),
        }
    }
}

/// Why bytes are not a valid seal.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    /// The magic bytes differ.
    #[error("not a seal: the magic bytes differ")]
    NotASeal,
    /// Written by another version of the program.
    #[error("it has format {found}, this program supports {FORMAT}")]
    OtherFormat {
        /// Format in the file.
        found: u32,
    },
    /// The checksum does not match.
    #[error("its checksum does not match its content")]
    Checksum,
    /// The checksum matches but the content is inconsistent.
    #[error("{0}")]
    Malformed(String),
}

impl Seal {
    /// Returns the number of rows of a column in the whole shard; parsing has checked that it fits a `u32`.
    pub fn rows(&self, column: usize) -> u64 {
        self.records.iter().map(|record| u64::from(record.arrays[column].rows)).sum()
    }

    /// Returns the position of an utterance's record.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.records.binary_search_by(|record| sort_key(&record.id).cmp(&sort_key(id))).ok()
    }

    /// Returns the failure of an utterance.
    pub(crate) fn find_failure(&self, id: &str) -> Option<&Failure> {
        self.failures
            .binary_search_by(|failure| sort_key(&failure.id).cmp(&sort_key(id)))
            .ok()
            .map(|at| &self.failures[at])
    }

    /// Returns the bytes of the file and their hash, which is also their end.
    pub fn encode(&self) -> (Vec<u8>, Hash) {
        let mut out = Vec::with_capacity(256 + 256 * self.records.len());
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, self.shard);
        put_u32(&mut out, self.shards);
        out.extend_from_slice(&self.recipe);
        put_u32(&mut out, self.columns.len() as u32);
        for column in &self.columns {
            put_text(&mut out, &column.name);
            out.push(dtype_code(column.dtype));
            put_u32(&mut out, column.width);
        }
        put_u32(&mut out, self.records.len() as u32);
        for record in &self.records {
            put_text(&mut out, &record.id);
            put_text(&mut out, &record.speaker);
            put_text(&mut out, &record.language);
            out.extend_from_slice(&record.key);
            out.extend_from_slice(&record.source.size.to_le_bytes());
            out.extend_from_slice(&record.source.hash);
            out.extend_from_slice(&record.seconds.to_le_bytes());
            for array in &record.arrays {
                put_u32(&mut out, array.rows);
                put_u32(&mut out, array.crc);
            }
        }
        put_u32(&mut out, self.failures.len() as u32);
        for failure in &self.failures {
            put_text(&mut out, &failure.id);
            out.extend_from_slice(&failure.key);
            put_text(&mut out, &kind_name(failure.kind));
            out.push(u8::from(failure.severity == Severity::Error));
            put_text(&mut out, &failure.detail);
        }
        let hash = *blake3::hash(&out).as_bytes();
        out.extend_from_slice(&hash);
        (out, hash)
    }
}

/// Parses a seal from the bytes of its file and returns it with its hash. Untrusted bytes are safe.
pub fn parse(bytes: &[u8]) -> Result<(Seal, Hash), SealError> {
    if bytes.get(..8) != Some(MAGIC) {
        return Err(SealError::NotASeal);
    }
    let Some((content, hash)) = bytes.split_last_chunk::<32>() else { return Err(SealError::Checksum) };
    if blake3::hash(content).as_bytes() != hash {
        return Err(SealError::Checksum);
    }
    Ok((parse_content(content)?, *hash))
}

/// [`parse()`] without the checksum, so that a fuzzer reaches the code behind it.
#[doc(hidden)]
pub fn parse_content(content: &[u8]) -> Result<Seal, SealError> {
    let mut bytes = ByteReader::new(content);
    let format = bytes.take(8).and_then(|_| bytes.u32()).map_err(SealError::Malformed)?;
    if format != FORMAT {
        return Err(SealError::OtherFormat { found: format });
    }
    fields(&mut bytes).map_err(SealError::Malformed)
}

fn fields(bytes: &mut ByteReader) -> Result<Seal, String> {
    let (shard, shards, recipe) = (bytes.u32()?, bytes.u32()?, bytes.array()?);
    if !shards.is_power_of_two() || shard >= shards {
        return Err(format!("it names shard {shard} of {shards}"));
    }

    let count = bytes.count(9)?;
    if count == 0 || count > MAX_COLUMNS {
        return Err(format!("it has {count} columns; 1 to {MAX_COLUMNS} are possible"));
    }
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(column(bytes)?);
    }

    let count = bytes.count(12 + 32 + 8 + 32 + 4 + 8 * columns.len())?;
    let mut records: Vec<SealedRecord> = Vec::with_capacity(count);
    let mut rows = vec![0u64; columns.len()];
    for _ in 0..count {
        let (id, speaker, language) = (bytes.text()?, bytes.text()?, bytes.text()?);
        let key = bytes.array()?;
        let source = SourceDigest { size: bytes.u64()?, hash: bytes.array()? };
        let seconds = bytes.f32()?;
        let mut arrays = Vec::with_capacity(columns.len());
        for total in &mut rows {
            let array = ArrayDigest { rows: bytes.u32()?, crc: bytes.u32()? };
            *total += u64::from(array.rows);
            arrays.push(array);
        }
        if records.last().is_some_and(|last| sort_key(&last.id) >= sort_key(&id)) {
            return Err(format!("record {id} is out of order"));
        }
        records.push(SealedRecord { id, speaker, language, key, source, seconds, arrays });
    }
    if rows.iter().any(|&rows| rows > u64::from(u32::MAX)) {
        return Err("a column has more than 2^32 rows".into());
    }

    let count = bytes.count(4 + 32 + 4 + 1 + 4)?;
    let mut failures: Vec<Failure> = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, key) = (bytes.text()?, bytes.array()?);
        let kind = parse_kind(&bytes.text()?)?;
        let severity = if bytes.u8()? == 0 { Severity::Warning } else { Severity::Error };
        if failures.last().is_some_and(|last| sort_key(&last.id) >= sort_key(&id)) {
            return Err(format!("failure {id} is out of order"));
        }
        failures.push(Failure { id, key, kind, severity, detail: bytes.text()? });
    }
    match bytes.left() {
        0 => Ok(Seal { shard, shards, recipe, columns, records, failures }),
        left => Err(format!("{left} bytes follow the last field")),
    }
}

fn column(bytes: &mut ByteReader) -> Result<StoredColumn, String> {
    let name = bytes.text()?;
    let (dtype, width) = (bytes.u8()?, bytes.u32()?);
    stored_column(&name, u32::from(dtype), width)
}

/// Builds a column from its stored fields if they are valid.
pub(super) fn stored_column(name: &str, dtype: u32, width: u32) -> Result<StoredColumn, String> {
    let dtype = match dtype {
        1 => Dtype::I16,
        2 => Dtype::I32,
        3 => Dtype::F32,
        other => return Err(format!("unknown element type {other}")),
    };
    // 65,536 elements a row: with 2^32 rows a file's size still fits 64 bits.
    if !is_column_name(name) || width == 0 || width > 1 << 16 {
        return Err(format!("invalid column {name:?} of width {width}"));
    }
    Ok(StoredColumn { name: name.to_owned(), dtype, width })
}

/// Returns the stored number of an element type.
pub(super) fn dtype_code(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::I16 => 1,
        Dtype::I32 => 2,
        Dtype::F32 => 3,
    }
}

/// Kinds are stored by name: numbers would shift when a kind is added.
fn kind_name(kind: ProblemKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => unreachable!("a fieldless kind is serialised as its name"),
    }
}

fn parse_kind(name: &str) -> Result<ProblemKind, String> {
    serde_json::from_value(serde_json::Value::String(name.to_owned()))
        .map_err(|_| format!("unknown problem kind {name:?}"))
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

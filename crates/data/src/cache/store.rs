//! A finished store, open for reading by any number of threads.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use myxtts_run::mmap::MappedFile;

use super::CacheError;
use super::fingerprint::Hash;
use super::index::Index;
use super::names::INDEX_FILE;
use super::seal::{Failure, SealedRecord, StoredColumn};
use super::shard::{ArrayFileError, SealedShard, array_file_bytes, map_array};
use crate::npy::HEADER_BYTES;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::{self, Column, RecordError, RecordSource};
use crate::utterance::Origin;

/// The cache as a source of records. Opening maps the index; arrays are mapped shard by shard on first use, and no file
/// stays open.
///
/// It sees the store as it was when it was opened. If `prepare` replaces a shard meanwhile, existing mappings keep their old
/// bytes; an array that was not mapped yet is an error, never other data.
pub struct Store {
    dir: PathBuf,
    index: Index,
    columns: Vec<Column>,
    /// By shard, then column.
    maps: Vec<OnceLock<MappedFile>>,
}

/// Location of an array on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayLocation {
    /// Column of the array.
    pub column: Column,
    /// The numpy file; it does not exist if the column has no rows in this shard.
    pub file: PathBuf,
    /// First row in the file.
    pub first_row: u32,
    /// Number of rows.
    pub rows: u32,
    /// crc32 of the array's bytes.
    pub crc: u32,
}

impl Store {
    /// Opens the store in a folder.
    pub fn open(dir: &Path) -> Result<Store, CacheError> {
        let index = match Index::open(&dir.join(INDEX_FILE)) {
            Err(CacheError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(CacheError::NoStore { dir: dir.to_owned() });
            }
            other => other?,
        };
        let columns: Vec<Column> = index.columns().iter().map(known_column).collect();
        let maps = (0..index.shards() as usize * columns.len()).map(|_| OnceLock::new()).collect();
        Ok(Store { dir: dir.to_owned(), index, columns, maps })
    }

    /// Returns the index of the store.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the record of an utterance.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.index.find(id)
    }

    /// Returns the location of every array of a record, in column order.
    pub fn array_locations(&self, record: usize) -> Vec<ArrayLocation> {
        let shard = self.index.shard(self.index.shard_of_record(record));
        let location = |(at, column): (usize, &Column)| ArrayLocation {
            column: *column,
            file: self.dir.join(shard.name.array(column.name)),
            first_row: self.index.first_row(record, at),
            rows: self.index.rows(record, at),
            crc: self.index.crc(record, at),
        };
        self.columns.iter().enumerate().map(location).collect()
    }

    /// Reads the record's entry in its seal, which holds more than the index: its key and its source audio file.
    pub fn provenance(&self, record: usize) -> Result<SealedRecord, CacheError> {
        let shard = self.index.shard(self.index.shard_of_record(record));
        let sealed = SealedShard::load(&self.dir, shard.name)?;
        let at = record - shard.records.start;
        sealed.seal.records.get(at).cloned().ok_or_else(|| CacheError::Damaged {
            path: self.dir.join(shard.name.seal()),
            what: "it has fewer records than the index says".into(),
        })
    }

    /// Reads from the seals the utterances that did not become records, with the reasons.
    pub fn failures(&self) -> Result<Vec<Failure>, CacheError> {
        let mut failures = Vec::new();
        for shard in (0..self.index.shards()).map(|shard| self.index.shard(shard)) {
            if shard.failures > 0 {
                failures.extend(SealedShard::load(&self.dir, shard.name)?.seal.failures);
            }
        }
        failures.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(failures)
    }

    /// Returns the size of all array files in bytes.
    pub fn array_bytes(&self) -> u64 {
        let of_shard = |shard: u32| -> u64 {
            let rows = self.index.shard(shard).rows.into_iter();
            let files = self.index.columns().iter().zip(rows).filter(|(_, rows)| *rows > 0);
            files.map(|(column, rows)| array_file_bytes(column, rows)).sum()
        };
        (0..self.index.shards()).map(of_shard).sum()
    }

    /// Copies rows of an array. Its checksum is verified before the copy, and page faults after it: the file may be
    /// truncated at any moment.
    fn rows_of(
        &self,
        record: usize,
        column: usize,
        first_row: u32,
        out: &mut [u8],
    ) -> Result<u32, RecordError> {
        let rows = self.index.rows(record, column);
        if rows == 0 {
            return Ok(0);
        }
        let shard = self.index.shard_of_record(record);
        let map = self.map(record, shard, column)?;
        let before = map.failed_pages();
        let row_bytes = self.columns[column].row_bytes();
        let start = HEADER_BYTES + self.index.first_row(record, column) as usize * row_bytes;
        // The index was checked as a whole, so only a bug leads past the end.
        let bytes = map.get(start..start + rows as usize * row_bytes);
        let bytes = bytes.filter(|bytes| crc32fast::hash(bytes) == self.index.crc(record, column));
        let copied = bytes.map(|bytes| copy_rows(bytes, row_bytes, first_row, out));
        match copied {
            Some(copied) if map.failed_pages() == before => Ok(copied),
            _ if map.failed_pages() > 0 => {
                let what = "the file was truncated or its disk failed while in use";
                Err(self.damaged(record, shard, column, what))
            }
            _ => Err(self.damaged(record, shard, column, "its checksum does not match")),
        }
    }

    fn map(&self, record: usize, shard: u32, column: usize) -> Result<&MappedFile, RecordError> {
        let slot = &self.maps[shard as usize * self.columns.len() + column];
        if let Some(map) = slot.get() {
            return Ok(map);
        }
        let entry = self.index.shard(shard);
        let stored = &self.index.columns()[column];
        let path = self.dir.join(entry.name.array(&stored.name));
        match map_array(&path, stored, entry.rows[column], true) {
            // Two threads may both have mapped it; one mapping is kept.
            Ok(map) => Ok(slot.get_or_init(|| map)),
            Err(ArrayFileError::Io(source)) => Err(RecordError::Io { id: self.id(record), source }),
            Err(error) => Err(self.damaged(record, shard, column, &error.to_string())),
        }
    }

    fn damaged(&self, record: usize, shard: u32, column: usize, what: &str) -> RecordError {
        let file = self.dir.join(self.index.shard(shard).name.array(self.columns[column].name));
        RecordError::Bad(Problem {
            kind: ProblemKind::DamagedRecord,
            severity: Severity::Error,
            id: Some(self.id(record)),
            detail: format!(
                "{} in {}: {what}; `myxtts verify --fix` rebuilds it",
                self.columns[column].name,
                file.display()
            ),
            origin: Origin { file, line: None },
        })
    }
}

impl RecordSource for Store {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.index.rows(record, column)
    }

    fn speaker(&self, record: usize) -> u32 {
        self.index.speaker(record)
    }

    fn language(&self, record: usize) -> u32 {
        self.index.language(record)
    }

    fn speakers(&self) -> &[String] {
        self.index.speakers()
    }

    fn languages(&self) -> &[String] {
        self.index.languages()
    }

    fn id(&self, record: usize) -> String {
        String::from_utf8_lossy(self.index.id(record)).into_owned()
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        self.rows_of(record, column, first_row, out)
    }

    fn fingerprint(&self) -> Hash {
        self.index.content()
    }
}

/// Copies whole rows from `first_row` on, as many as exist and fit, and returns their number.
pub(super) fn copy_rows(array: &[u8], row_bytes: usize, first_row: u32, out: &mut [u8]) -> u32 {
    let rest = array.get(first_row as usize * row_bytes..).unwrap_or_default();
    let rows = rest.len().min(out.len()) / row_bytes;
    out[..rows * row_bytes].copy_from_slice(&rest[..rows * row_bytes]);
    rows as u32
}

/// Returns the column with a `'static` name: a built-in name, or an interned one.
fn known_column(stored: &StoredColumn) -> Column {
    let built_in =
        [record::TOKENS, record::DVAE_MEL, record::CONDITIONING_MEL, record::SPEAKER_MEL, record::WAVEFORM];
    let name = match built_in.iter().find(|column| column.name == stored.name) {
        Some(column) => column.name,
        None => intern(&stored.name),
    };
    Column { name, dtype: stored.dtype, width: stored.width }
}

fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = String::leak(name.to_owned());
    names.insert(name);
    name
}

//! A shard on disk: written as a stream, one utterance at a time, and read back through mappings.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use myxtts_run::durable::{self, Disk, Writer};
use myxtts_run::mmap::{MappedFile, OnReadFault};

use super::CacheError;
use super::fingerprint::Hash;
use super::names::ShardName;
use super::seal::{self, ArrayDigest, Failure, Seal, SealedRecord, StoredColumn};
use crate::npy::{self, HEADER_BYTES};

/// Returns the numpy header of a shard's column. It is fully determined, so it is checked by comparison.
pub fn array_header(column: &StoredColumn, rows: u64) -> [u8; HEADER_BYTES] {
    let (rows, width) = (rows as usize, column.width as usize);
    if width == 1 { npy::header(column.dtype, &[rows]) } else { npy::header(column.dtype, &[rows, width]) }
}

/// Returns the size of a column's file in bytes.
pub(crate) fn array_file_bytes(column: &StoredColumn, rows: u64) -> u64 {
    HEADER_BYTES as u64 + rows * column.row_bytes() as u64
}

/// Why a column's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArrayFileError {
    /// The file does not exist.
    #[error("it does not exist; if the cache was rebuilt since it was opened, open it again")]
    Missing,
    /// The file has the wrong length.
    #[error("it has {found} bytes instead of {wanted}")]
    Length {
        /// Actual length in bytes.
        found: u64,
        /// Expected length in bytes.
        wanted: u64,
    },
    /// The header differs from the one that was written.
    #[error("its numpy header was changed")]
    Header,
    /// The operating system reported an error.
    #[error("{0}")]
    Io(io::Error),
}

/// Maps a column's file after checking its length, and its header if `check_header`.
pub(crate) fn map_array(
    path: &Path,
    column: &StoredColumn,
    rows: u64,
    check_header: bool,
) -> Result<MappedFile, ArrayFileError> {
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ArrayFileError::Missing,
        _ => ArrayFileError::Io(error),
    })?;
    let found = file.metadata().map_err(ArrayFileError::Io)?.len();
    let wanted = array_file_bytes(column, rows);
    // Reading past the end of a shorter file would be a bus error.
    if found != wanted {
        return Err(ArrayFileError::Length { found, wanted });
    }
    // Zeros on a failed page: every reader verifies what it reads.
    let map = MappedFile::new(&file, path, OnReadFault::Zeros).map_err(ArrayFileError::Io)?;
    if check_header && map[..HEADER_BYTES] != array_header(column, rows) {
        return Err(ArrayFileError::Header);
    }
    Ok(map)
}

/// A shard being written. Dropping it before [`Self::finish`] leaves nothing behind.
pub(super) struct ShardWriter<'d> {
    disk: &'d dyn Disk,
    dir: &'d Path,
    /// Created with the first row: a column without rows has no file.
    files: Vec<Option<Writer<'d>>>,
    rows: Vec<u64>,
    seal: Seal,
}

impl<'d> ShardWriter<'d> {
    pub(super) fn new(
        disk: &'d dyn Disk,
        dir: &'d Path,
        shard: u32,
        shards: u32,
        recipe: Hash,
        columns: &[StoredColumn],
    ) -> Self {
        ShardWriter {
            disk,
            dir,
            files: columns.iter().map(|_| None).collect(),
            rows: vec![0; columns.len()],
            seal: Seal {
                shard,
                shards,
                recipe,
                columns: columns.to_vec(),
                records: Vec::new(),
                failures: Vec::new(),
            },
        }
    }

    /// Adds a record; fills in `record.arrays`. Records must come in ascending order of sort keys.
    pub(super) fn push<A: AsRef<[u8]>>(
        &mut self,
        mut record: SealedRecord,
        arrays: &[A],
    ) -> Result<(), CacheError> {
        record.arrays.clear();
        for (at, array) in arrays.iter().enumerate() {
            let (array, column) = (array.as_ref(), &self.seal.columns[at]);
            let rows = array.len() / column.row_bytes();
            self.rows[at] += rows as u64;
            if self.rows[at] > u64::from(u32::MAX) {
                return Err(CacheError::ShardTooLong { shard: self.seal.shard, column: column.name.clone() });
            }
            record.arrays.push(ArrayDigest { rows: rows as u32, crc: crc32fast::hash(array) });
            if rows > 0 {
                self.file(at)?.write(array)?;
            }
        }
        self.seal.records.push(record);
        Ok(())
    }

    /// Adds a failed utterance.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.seal.failures.push(failure);
    }

    fn file(&mut self, at: usize) -> Result<&mut Writer<'d>, CacheError> {
        if self.files[at].is_none() {
            let seal = &self.seal;
            let name = format!("shard-{:04}of{:04}.{}", seal.shard, seal.shards, seal.columns[at].name);
            let mut file = Writer::create(self.disk, &self.dir.join(name))?;
            file.write(&[0; HEADER_BYTES])?;
            self.files[at] = Some(file);
        }
        Ok(self.files[at].as_mut().expect("created above"))
    }

    /// Commits the shard: every array is durable and has its final name before the seal does.
    pub(super) fn finish(mut self) -> Result<(Seal, Hash), CacheError> {
        let (bytes, hash) = self.seal.encode();
        let name = ShardName::new(self.seal.shard, self.seal.shards, &hash);
        for (at, column) in self.seal.columns.iter().enumerate() {
            if let Some(mut file) = self.files[at].take() {
                file.replace_start(&array_header(column, self.rows[at]))?;
                file.finish()?.publish(&self.dir.join(name.array(&column.name)))?;
            }
        }
        durable::sync_folder(self.disk, self.dir)?;
        durable::write_with(self.disk, &self.dir.join(name.seal()), &bytes)?;
        Ok((self.seal, hash))
    }
}

/// A sealed shard. Its files may have been damaged or removed since.
pub(super) struct SealedShard {
    pub(super) name: ShardName,
    pub(super) seal: Seal,
    pub(super) hash: Hash,
    dir: PathBuf,
    /// First row of every record, per column.
    first_rows: Vec<Vec<u64>>,
    maps: Vec<OnceCell<Option<MappedFile>>>,
}

impl SealedShard {
    /// Reads the seal of that name. Damage is reported as [`CacheError::Damaged`].
    pub(super) fn load(dir: &Path, name: ShardName) -> Result<Self, CacheError> {
        let path = dir.join(name.seal());
        let bytes = std::fs::read(&path).map_err(CacheError::read(&path))?;
        let damaged = |what: String| CacheError::Damaged { path: path.clone(), what };
        let (seal, hash) = seal::parse(&bytes).map_err(|e| damaged(e.to_string()))?;
        if ShardName::new(seal.shard, seal.shards, &hash) != name {
            return Err(damaged("it holds another shard".into()));
        }
        let first_rows = (0..seal.columns.len())
            .map(|column| {
                let rows = seal.records.iter().map(|record| u64::from(record.arrays[column].rows));
                rows.scan(0, |next, rows| Some(std::mem::replace(next, *next + rows))).collect()
            })
            .collect();
        let maps = seal.columns.iter().map(|_| OnceCell::new()).collect();
        Ok(SealedShard { name, seal, hash, dir: dir.to_owned(), first_rows, maps })
    }

    /// Returns the path of a column's file.
    pub(super) fn array_path(&self, column: usize) -> PathBuf {
        self.dir.join(self.name.array(&self.seal.columns[column].name))
    }

    /// Checks that a column's file has the length and header it was written with. A column without rows has no file and
    /// passes.
    pub(super) fn check_file(&self, column: usize) -> Result<(), ArrayFileError> {
        match self.seal.rows(column) {
            0 => Ok(()),
            rows => map_array(&self.array_path(column), &self.seal.columns[column], rows, true).map(|_| ()),
        }
    }

    /// Returns an array of a record if its checksum matches.
    pub(super) fn array(&self, record: usize, column: usize) -> Option<&[u8]> {
        let digest = self.seal.records[record].arrays[column];
        if digest.rows == 0 {
            return Some(&[]);
        }
        // The header is not checked: arrays behind a broken header can still be reused.
        let map = self.maps[column].get_or_init(|| {
            let rows = self.seal.rows(column);
            map_array(&self.array_path(column), &self.seal.columns[column], rows, false).ok()
        });
        let row_bytes = self.seal.columns[column].row_bytes();
        let start = HEADER_BYTES + self.first_rows[column][record] as usize * row_bytes;
        let bytes = map.as_ref()?.get(start..start + digest.rows as usize * row_bytes)?;
        (crc32fast::hash(bytes) == digest.crc).then_some(bytes)
    }

    /// Returns all arrays of a record if their checksums match.
    pub(super) fn arrays(&self, record: usize) -> Option<Vec<&[u8]>> {
        (0..self.seal.columns.len()).map(|column| self.array(record, column)).collect()
    }
}

//! A checkpoint being written: blobs as streams, then one commit.

use std::path::PathBuf;

use serde_json::Value;

use super::error::CheckpointError;
use super::manifest::{self, Blob, CHUNK_BYTES, Checkpoint, MANIFEST};
use super::store::CheckpointStore;
use crate::durable::{self, DurableError, Writer};

/// A checkpoint being written. If dropped before [`Self::commit`], it is removed.
pub struct CheckpointWriter<'s> {
    store: &'s mut CheckpointStore,
    folder: PathBuf,
    number: u64,
    step: u64,
    blobs: Vec<Blob>,
    committed: bool,
}

impl Drop for CheckpointWriter<'_> {
    fn drop(&mut self) {
        if !self.committed {
            // A failure here is ignored; the next save or open removes the leftovers.
            let _ = durable::remove_folder(&*self.store.disk, &self.folder);
        }
    }
}

impl<'s> CheckpointWriter<'s> {
    pub(super) fn begin(
        store: &'s mut CheckpointStore,
        number: u64,
        step: u64,
    ) -> Result<Self, CheckpointError> {
        let name = Checkpoint::new(number, step, None, Value::Null, Vec::new()).name();
        let folder = durable::unfinished_name(&store.dir().join(name));
        durable::create_folder(&*store.disk, &folder)?;
        Ok(CheckpointWriter { store, folder, number, step, blobs: Vec::new(), committed: false })
    }

    /// Writes a blob from memory.
    pub fn blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        Ok(self.blob_with(name, |out| out.write(bytes))?)
    }

    /// Writes a blob in pieces, so that gigabytes of weights need no second copy in memory.
    ///
    /// The error type is the caller's, for failures while the bytes are produced.
    pub fn blob_with<E: From<DurableError>>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut BlobWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(manifest::is_blob_name(name), "{name:?} is not a valid blob name");
        assert!(self.blobs.iter().all(|blob| blob.name != name), "{name} was written twice");
        let path = self.folder.join(file_name(name));
        let writer = Writer::create(&*self.store.disk, &path)?;
        let mut out =
            BlobWriter { writer, bytes: 0, hasher: crc32fast::Hasher::new(), checksums: Vec::new() };
        fill(&mut out)?;
        if !out.bytes.is_multiple_of(CHUNK_BYTES as u64) {
            out.checksums.push(out.hasher.finalize());
        }
        out.writer.finish()?.publish(&path)?;
        self.blobs.push(Blob { name: name.to_owned(), bytes: out.bytes, checksums: out.checksums });
        Ok(())
    }

    /// Writes the manifest and renames the checkpoint to its final name. When this returns, the checkpoint survives a
    /// power failure.
    pub fn commit(mut self, score: Option<f64>, meta: Value) -> Result<Checkpoint, CheckpointError> {
        let blobs = std::mem::take(&mut self.blobs);
        let checkpoint = Checkpoint::new(self.number, self.step, score, meta, blobs);
        let disk = &*self.store.disk;
        // This also syncs the folder, and with it the names of the blobs.
        durable::write_with(disk, &self.folder.join(MANIFEST), &checkpoint.encode())?;
        let path = self.store.dir().join(checkpoint.name());
        disk.rename(&self.folder, &path).map_err(DurableError::at("rename to", &path))?;
        // From here on it is a complete checkpoint, even if the last sync fails.
        self.committed = true;
        durable::sync_folder(disk, self.store.dir())?;
        Ok(checkpoint)
    }
}

/// Receives the bytes of one blob.
pub struct BlobWriter<'d> {
    writer: Writer<'d>,
    bytes: u64,
    hasher: crc32fast::Hasher,
    checksums: Vec<u32>,
}

impl BlobWriter<'_> {
    /// Appends bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), DurableError> {
        while !bytes.is_empty() {
            let left = CHUNK_BYTES - (self.bytes % CHUNK_BYTES as u64) as usize;
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            self.hasher.update(now);
            self.writer.write(now)?;
            self.bytes += now.len() as u64;
            if now.len() == left {
                self.checksums.push(std::mem::take(&mut self.hasher).finalize());
            }
            bytes = later;
        }
        Ok(())
    }
}

/// File name of a blob.
pub(super) fn file_name(blob: &str) -> String {
    format!("{blob}.bin")
}

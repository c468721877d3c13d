//! A checkpoint on its way: parts written as streams, then one commit.

use std::path::PathBuf;

use serde_json::Value;

use super::error::CheckpointError;
use super::manifest::{self, Blob, CHUNK_BYTES, Checkpoint, MANIFEST};
use super::store::CheckpointStore;
use crate::durable::{self, DurableError, Writer};

/// A checkpoint being written. Dropped before [`Self::commit`], it leaves nothing behind.
pub struct Saving<'s> {
    store: &'s mut CheckpointStore,
    folder: PathBuf,
    number: u64,
    step: u64,
    blobs: Vec<Blob>,
    committed: bool,
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done about a failure here; the next save or the next opening sweeps.
            let _ = durable::remove_folder(&*self.store.disk, &self.folder);
        }
    }
}

impl<'s> Saving<'s> {
    pub(super) fn begin(
        store: &'s mut CheckpointStore,
        number: u64,
        step: u64,
    ) -> Result<Self, CheckpointError> {
        let name = Checkpoint::new(number, step, None, Value::Null, Vec::new()).name();
        let folder = durable::unfinished_name(&store.dir().join(name));
        durable::create_folder(&*store.disk, &folder)?;
        Ok(Saving { store, folder, number, step, blobs: Vec::new(), committed: false })
    }

    /// Writes a part that is in memory.
    pub fn blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        Ok(self.blob_with(name, |out| out.write(bytes))?)
    }

    /// Writes a part piece by piece, so that an arena of gigabytes needs no copy of its own.
    ///
    /// The error may be the caller's own, from wherever the bytes come.
    pub fn blob_with<E: From<DurableError>>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut BlobWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(manifest::is_blob_name(name), "{name:?} is no name of a part");
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

    /// Writes the manifest and gives the checkpoint its name. When this returns, it is there, even if
    /// the power goes.
    pub fn commit(mut self, score: Option<f64>, meta: Value) -> Result<Checkpoint, CheckpointError> {
        let blobs = std::mem::take(&mut self.blobs);
        let checkpoint = Checkpoint::new(self.number, self.step, score, meta, blobs);
        let disk = &*self.store.disk;
        // Its sync of the folder makes the names of the parts durable, too.
        durable::write_with(disk, &self.folder.join(MANIFEST), &checkpoint.encode())?;
        let path = self.store.dir().join(checkpoint.name());
        disk.rename(&self.folder, &path).map_err(DurableError::at("rename to", &path))?;
        // From here on it is no leftover, whatever the last sync says.
        self.committed = true;
        durable::sync_folder(disk, self.store.dir())?;
        Ok(checkpoint)
    }
}

/// Takes the bytes of one part.
pub struct BlobWriter<'d> {
    writer: Writer<'d>,
    bytes: u64,
    hasher: crc32fast::Hasher,
    checksums: Vec<u32>,
}

impl BlobWriter<'_> {
    /// Adds bytes at the end.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), DurableError> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - (self.bytes % CHUNK_BYTES as u64) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.hasher.update(now);
            self.writer.write(now)?;
            self.bytes += now.len() as u64;
            if now.len() == room {
                self.checksums.push(std::mem::take(&mut self.hasher).finalize());
            }
            bytes = later;
        }
        Ok(())
    }
}

/// The file of a part.
pub(super) fn file_name(blob: &str) -> String {
    format!("{blob}.bin")
}

//! Reads checkpoints, also while a run is saving others.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::error::{CheckpointError, Damage, Damaged};
use super::manifest::{self, Blob, CHUNK_BYTES, Checkpoint, MANIFEST};
use super::writer::file_name;

/// Name of the file that marks a pinned checkpoint.
pub(super) const PINNED: &str = "pinned";

/// A checkpoint folder, for reading. Needs no lock.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

/// Checkpoints in the order of saving. Only the manifests were checked.
#[derive(Debug, Default)]
pub struct Listing {
    /// Checkpoints with a valid manifest.
    pub checkpoints: Vec<Checkpoint>,
    /// Checkpoints with a damaged manifest.
    pub damaged: Vec<Damaged>,
}

/// The checkpoint to resume from.
#[derive(Debug)]
pub struct Latest {
    /// The newest valid checkpoint, every byte checked; `None` if there is none.
    pub checkpoint: Option<Checkpoint>,
    /// Newer, damaged checkpoints, newest first.
    pub damaged: Vec<Damaged>,
}

impl Checkpoints {
    /// The checkpoints in a folder, which need not exist.
    pub fn at(dir: &Path) -> Self {
        Checkpoints { dir: dir.to_owned() }
    }

    /// Path of the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists all checkpoints by their manifests, oldest first.
    pub fn list(&self) -> Result<Listing, CheckpointError> {
        let mut listing = Listing::default();
        for name in self.names()? {
            match self.manifest(&name) {
                Ok(checkpoint) => listing.checkpoints.push(checkpoint),
                // Deleted by the running process since the folder was read.
                Err(_) if !self.dir.join(&name).exists() => {}
                Err(damaged) => listing.damaged.push(damaged),
            }
        }
        Ok(listing)
    }

    /// Finds the newest checkpoint in which every byte is valid.
    pub fn latest_valid(&self) -> Result<Latest, CheckpointError> {
        let mut damaged = Vec::new();
        for name in self.names()?.iter().rev() {
            match self.manifest(name).and_then(|checkpoint| self.verify(&checkpoint).map(|()| checkpoint)) {
                Ok(checkpoint) => return Ok(Latest { checkpoint: Some(checkpoint), damaged }),
                Err(_) if !self.dir.join(name).exists() => {}
                Err(found) => damaged.push(found),
            }
        }
        Ok(Latest { checkpoint: None, damaged })
    }

    /// Reads every byte of a checkpoint and compares the checksums.
    pub fn verify(&self, checkpoint: &Checkpoint) -> Result<(), Damaged> {
        let name = checkpoint.name();
        let mut buffer = Vec::new();
        for blob in &checkpoint.blobs {
            let mut stream = BlobStream::open(&self.dir.join(&name), blob)
                .map_err(|damage| self.damaged(&name, damage))?;
            while stream.next(&mut buffer).map_err(|damage| self.damaged(&name, damage))? > 0 {}
        }
        Ok(())
    }

    /// Opens a checkpoint by its name. Its blobs are checked as they are read.
    pub fn load(&self, name: &str) -> Result<OpenCheckpoint, CheckpointError> {
        let folder = self.existing(name)?;
        Ok(OpenCheckpoint { checkpoint: self.manifest(name)?, name: name.to_owned(), folder })
    }

    /// Whether it is protected from deletion.
    pub(super) fn is_pinned(&self, name: &str) -> bool {
        // If this cannot be determined, it must not be deleted.
        self.dir.join(name).join(PINNED).try_exists().unwrap_or(true)
    }

    /// Folder of a checkpoint, damaged or not; an error if there is none of that name.
    pub(super) fn existing(&self, name: &str) -> Result<PathBuf, CheckpointError> {
        if manifest::parse_name(name).is_some() && self.dir.join(name).is_dir() {
            return Ok(self.dir.join(name));
        }
        let (dir, name, names) = (self.dir.clone(), name.to_owned(), self.names()?);
        Err(CheckpointError::Unknown { dir, name, names })
    }

    /// Names of all checkpoints, oldest first, damaged or not.
    pub(super) fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let failed = |source| CheckpointError::Folder { dir: self.dir.clone(), source };
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if let Some(name) = name.to_str()
                && let Some(order) = manifest::parse_name(name)
            {
                names.push((order, name.to_owned()));
            }
        }
        names.sort();
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    fn manifest(&self, name: &str) -> Result<Checkpoint, Damaged> {
        let read = || -> Result<Checkpoint, Damage> {
            let unreadable = |source| Damage::Unreadable { file: MANIFEST.to_owned(), source };
            let file =
                File::open(self.dir.join(name).join(MANIFEST)).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => Damage::ManifestMissing,
                    _ => unreadable(error),
                })?;
            let mut bytes = Vec::new();
            file.take(manifest::MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
            Checkpoint::decode(&bytes, name)
        };
        read().map_err(|damage| self.damaged(name, damage))
    }

    fn damaged(&self, name: &str, damage: Damage) -> Damaged {
        Damaged { folder: self.dir.join(name), name: name.to_owned(), damage }
    }
}

/// A checkpoint with a valid manifest, open for reading its blobs.
#[derive(Debug)]
pub struct OpenCheckpoint {
    /// Manifest of the checkpoint, with its checksum verified.
    pub checkpoint: Checkpoint,
    name: String,
    folder: PathBuf,
}

impl OpenCheckpoint {
    /// Reads a whole blob.
    pub fn read(&self, blob: &str) -> Result<Vec<u8>, CheckpointError> {
        let mut all = Vec::new();
        self.stream(blob, |bytes| -> Result<(), CheckpointError> {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads a blob into a buffer of exactly its size.
    ///
    /// After an error the contents of the buffer are unspecified.
    pub fn read_into(&self, blob: &str, into: &mut [u8]) -> Result<(), CheckpointError> {
        let found = self.blob(blob)?.bytes;
        if found != into.len() as u64 {
            let (name, blob, wanted) = (self.name.clone(), blob.to_owned(), into.len() as u64);
            return Err(CheckpointError::Size { name, blob, found, wanted });
        }
        let mut rest = into;
        self.stream(blob, |bytes| -> Result<(), CheckpointError> {
            // The stream yields exactly as many bytes as the manifest states.
            let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            rest = later;
            Ok(())
        })
    }

    /// Reads a blob in chunks of [`CHUNK_BYTES`], the last one possibly shorter; each is checked before it is passed
    /// on.
    pub fn stream<E: From<CheckpointError>>(
        &self,
        blob: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let damaged = |damage| {
            let found = Damaged { folder: self.folder.clone(), name: self.name.clone(), damage };
            CheckpointError::Damaged(found)
        };
        let mut stream = BlobStream::open(&self.folder, self.blob(blob)?).map_err(damaged)?;
        let mut buffer = Vec::new();
        while stream.next(&mut buffer).map_err(damaged)? > 0 {
            take(&buffer)?;
        }
        Ok(())
    }

    fn blob(&self, blob: &str) -> Result<&Blob, CheckpointError> {
        let missing = || CheckpointError::NoBlob { name: self.name.clone(), blob: blob.to_owned() };
        self.checkpoint.blob(blob).ok_or_else(missing)
    }
}

/// Reads a blob chunk by chunk. The file is read rather than mapped: truncating a mapped file raises SIGBUS, and one
/// sequential pass of large reads is fastest.
struct BlobStream<'b> {
    file: File,
    blob: &'b Blob,
    chunk: usize,
}

impl<'b> BlobStream<'b> {
    fn open(folder: &Path, blob: &'b Blob) -> Result<Self, Damage> {
        let unreadable = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => Damage::BlobMissing { blob: blob.name.clone() },
            _ => Damage::Unreadable { file: file_name(&blob.name), source },
        };
        let file = File::open(folder.join(file_name(&blob.name))).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?.len();
        if found != blob.bytes {
            return Err(Damage::BlobLength { blob: blob.name.clone(), found, wanted: blob.bytes });
        }
        Ok(BlobStream { file, blob, chunk: 0 })
    }

    /// Reads and checks the next chunk; returns its length, 0 at the end.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Result<usize, Damage> {
        let from = (self.chunk * CHUNK_BYTES) as u64;
        let Some(&wanted) = self.blob.checksums.get(self.chunk) else { return Ok(0) };
        let length = (self.blob.bytes - from).min(CHUNK_BYTES as u64);
        buffer.resize(length as usize, 0);
        self.file.read_exact(buffer).map_err(|source| match source.kind() {
            // The length was correct when the file was opened.
            ErrorKind::UnexpectedEof => {
                let found = self.file.metadata().map_or(0, |now| now.len());
                Damage::BlobLength { blob: self.blob.name.clone(), found, wanted: self.blob.bytes }
            }
            _ => Damage::Unreadable { file: file_name(&self.blob.name), source },
        })?;
        if crc32fast::hash(buffer) != wanted {
            return Err(Damage::BlobChanged { blob: self.blob.name.clone(), from, to: from + length });
        }
        self.chunk += 1;
        Ok(length as usize)
    }
}

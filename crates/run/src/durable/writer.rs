//! A file written as a stream under a temporary name.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Disk, DiskFile, DurableError, parent, sync_folder, unfinished_name};

/// Buffer size in bytes; larger writes bypass the buffer.
const BUFFER: usize = 64 * 1024;

/// A file being written. If dropped before [`FinishedFile::publish`], it is removed.
pub struct Writer<'d> {
    file: Box<dyn DiskFile>,
    buffer: Vec<u8>,
    temp: Temp<'d>,
    /// Final path, which errors name.
    target: PathBuf,
}

/// A file whose content is on the device but which does not have its final name yet.
pub struct FinishedFile<'d> {
    temp: Temp<'d>,
}

/// Removes the unfinished file unless it was published.
struct Temp<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    published: bool,
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.published {
            // A failure here is ignored; the next holder of the lock removes the file.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// A unique number for every temporary file. It starts at the current time, because processes in two containers that
/// share a folder can have the same id.
pub(super) fn number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        AtomicU64::new(now.as_nanos() as u64)
    });
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<'d> Writer<'d> {
    /// Creates a temporary file next to `path`: in the same folder, so that the rename stays within one file system,
    /// and with a unique name.
    pub fn create(disk: &'d dyn Disk, path: &Path) -> Result<Self, DurableError> {
        loop {
            let temp = unfinished_name(path);
            match disk.create(&temp) {
                Ok(file) => {
                    let temp = Temp { disk, path: temp, published: false };
                    return Ok(Writer { file, buffer: Vec::new(), temp, target: path.to_owned() });
                }
                // Numbers only increase, so this loop ends.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(DurableError::at("create", path)(error)),
            }
        }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() >= BUFFER {
            return self.write_through(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Overwrites the first bytes, which must have been written before, for a header that depends on the whole content.
    /// Only [`Self::finish`] may follow.
    pub fn replace_start(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.flush()?;
        self.file.seek(0).map_err(DurableError::at("seek in", &self.target))?;
        self.write_through(bytes)
    }

    /// Flushes everything to the device.
    pub fn finish(mut self) -> Result<FinishedFile<'d>, DurableError> {
        self.flush()?;
        // A failed sync is final: the kernel may have dropped the pages, so a second attempt proves nothing.
        self.file.sync().map_err(DurableError::at("sync", &self.target))?;
        Ok(FinishedFile { temp: self.temp })
    }

    fn flush(&mut self) -> Result<(), DurableError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_through(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_through(&mut self, mut bytes: &[u8]) -> Result<(), DurableError> {
        while !bytes.is_empty() {
            let failed = match self.file.write(bytes) {
                Ok(0) => io::Error::from(ErrorKind::WriteZero),
                Ok(written) => {
                    bytes = &bytes[written.min(bytes.len())..];
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(DurableError::at("write", &self.target)(failed));
        }
        Ok(())
    }
}

impl FinishedFile<'_> {
    /// Renames the file to its final name in the same folder. The name is durable after the next [`sync_folder`], which
    /// several files can share.
    pub fn publish(mut self, path: &Path) -> Result<(), DurableError> {
        self.temp.disk.rename(&self.temp.path, path).map_err(DurableError::at("rename to", path))?;
        self.temp.published = true;
        Ok(())
    }

    /// [`Self::publish`], then syncs the folder.
    pub fn publish_durably(self, path: &Path) -> Result<(), DurableError> {
        let disk = self.temp.disk;
        self.publish(path)?;
        sync_folder(disk, parent(path))
    }
}

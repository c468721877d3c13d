//! A file written as a stream beside its final name.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Disk, DiskFile, DurableError, parent, sync_folder, unfinished_name};

/// Small writes are gathered up to this size; larger ones pass straight through.
const BUFFER: usize = 64 * 1024;

/// A file on its way. Dropped before [`Finished::publish`], it leaves nothing behind.
pub struct Writer<'d> {
    file: Box<dyn DiskFile>,
    buffer: Vec<u8>,
    temp: Temp<'d>,
}

/// A file whose bytes are on the device but which has not got its name yet.
pub struct Finished<'d> {
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
            // Nothing can be done about a failure here; the next holder of the lock sweeps.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// A number of its own for every file. It begins at the time of day: in two containers that share a
/// folder, two processes can have the same id.
pub(super) fn number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        AtomicU64::new(now.as_nanos() as u64)
    });
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<'d> Writer<'d> {
    /// Begins a file beside `path`: the same folder, so that the rename cannot cross file systems,
    /// and a name that no other writer uses.
    pub fn create(disk: &'d dyn Disk, path: &Path) -> Result<Self, DurableError> {
        loop {
            let temp = unfinished_name(path);
            match disk.create(&temp) {
                Ok(file) => {
                    let temp = Temp { disk, path: temp, published: false };
                    return Ok(Writer { file, buffer: Vec::new(), temp });
                }
                // Numbers only grow, so this comes to an end.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(DurableError::at("create", &temp)(error)),
            }
        }
    }

    /// Adds bytes at the end.
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

    /// Overwrites the first bytes, which must have been written before; then only [`Self::finish`]
    /// may follow. This is how a header that depends on the whole is put right.
    pub fn replace_start(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.flush()?;
        self.file.seek(0).map_err(DurableError::at("seek in", &self.temp.path))?;
        self.write_through(bytes)
    }

    /// Brings everything to the device.
    pub fn finish(mut self) -> Result<Finished<'d>, DurableError> {
        self.flush()?;
        // A failed sync is final: the kernel may have dropped the pages, so a second one proves nothing.
        self.file.sync().map_err(DurableError::at("sync", &self.temp.path))?;
        Ok(Finished { temp: self.temp })
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
            return Err(DurableError::at("write", &self.temp.path)(failed));
        }
        Ok(())
    }
}

impl Finished<'_> {
    /// Gives the file its name, in the folder it was begun in. The name itself is durable after the
    /// next [`sync_folder`]: several files can share one.
    pub fn publish(mut self, path: &Path) -> Result<(), DurableError> {
        self.temp.disk.rename(&self.temp.path, path).map_err(DurableError::at("rename to", path))?;
        self.temp.published = true;
        Ok(())
    }

    /// [`Self::publish`] and the folder synced.
    pub fn publish_durably(self, path: &Path) -> Result<(), DurableError> {
        let disk = self.temp.disk;
        self.publish(path)?;
        sync_folder(disk, parent(path))
    }
}

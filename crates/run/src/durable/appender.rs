//! A log file that grows while a run lasts.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile, DurableError, parent, sync_folder};

/// Appends whole records to a file. An appended record survives a crash of the process and, after [`Self::sync`], of the
/// machine. A failed append leaves no partial record before the next one.
pub struct Appender {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    length: u64,
}

impl Appender {
    /// Opens a file, creating it if needed, and truncates it to its first `length` bytes, which are valid.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, length: u64) -> Result<Self, DurableError> {
        let mut appender = Appender { disk, path: path.to_owned(), file: None, length };
        appender.file()?;
        sync_folder(&*appender.disk, parent(path))?;
        Ok(appender)
    }

    /// Opens a text file, creating it if needed. A last line without a newline was left by a dead process and is
    /// removed; the second value is its length in bytes.
    pub fn open_lines(disk: Arc<dyn Disk>, path: &Path) -> Result<(Self, u64), DurableError> {
        let (valid, length) = match File::open(path) {
            Ok(mut file) => end_of_lines(&mut file).map_err(DurableError::at("read", path))?,
            Err(error) if error.kind() == ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(DurableError::at("read", path)(error)),
        };
        Ok((Self::open(disk, path, valid)?, length - valid))
    }

    /// Appends bytes, all or none.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let failed = match self.file()?.write(rest) {
                Ok(0) => io::Error::from(ErrorKind::WriteZero),
                Ok(written) => {
                    rest = &rest[written.min(rest.len())..];
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            // Reopening truncates the partial write; if it fails now, the next append retries it.
            self.file = None;
            self.file = self.disk.extend(&self.path, self.length).ok();
            return Err(DurableError::at("write", &self.path)(failed));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Flushes everything to the device.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        let synced = self.file()?.sync();
        synced.map_err(DurableError::at("sync", &self.path))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&mut self) -> Result<&mut dyn DiskFile, DurableError> {
        if self.file.is_none() {
            let opened = self.disk.extend(&self.path, self.length);
            self.file = Some(opened.map_err(DurableError::at("open", &self.path))?);
        }
        Ok(&mut **self.file.as_mut().expect("just opened"))
    }
}

/// End of the last complete line, and length of the file.
fn end_of_lines(file: &mut File) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    let mut end = length;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(64 * 1024);
        Seek::seek(file, SeekFrom::Start(start))?;
        block.resize((end - start) as usize, 0);
        file.read_exact(&mut block)?;
        if let Some(last) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok((start + last as u64 + 1, length));
        }
        end = start;
    }
    Ok((0, length))
}

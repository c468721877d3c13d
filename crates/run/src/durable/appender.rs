//! A file that grows for as long as a run lasts.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile, DurableError, parent, sync_folder};

/// Adds whole pieces at the end of a file. A piece that has been taken survives the death of the
/// process, and after [`Self::sync`] that of the machine. One that failed leaves no part of itself in
/// front of the next.
pub struct Appender {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    length: u64,
}

impl Appender {
    /// Opens a file, made if need be, of which the first `length` bytes are whole; the rest is cut off.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, length: u64) -> Result<Self, DurableError> {
        let mut appender = Appender { disk, path: path.to_owned(), file: None, length };
        appender.file()?;
        sync_folder(&*appender.disk, parent(path))?;
        Ok(appender)
    }

    /// Opens a file of lines, made if need be. A last line without an end is what a dead process did not
    /// finish, and is cut off; the second number says how long it was.
    pub fn open_lines(disk: Arc<dyn Disk>, path: &Path) -> Result<(Self, u64), DurableError> {
        let (whole, length) = match File::open(path) {
            Ok(mut file) => end_of_lines(&mut file).map_err(DurableError::at("read", path))?,
            Err(error) if error.kind() == ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(DurableError::at("read", path)(error)),
        };
        Ok((Self::open(disk, path, whole)?, length - whole))
    }

    /// Adds bytes, all of them or none.
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
            // Opened anew, which cuts off what came of this one; by the next one, if it cannot be done now.
            self.file = None;
            self.file = self.disk.extend(&self.path, self.length).ok();
            return Err(DurableError::at("write", &self.path)(failed));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Brings everything to the device.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        let synced = self.file()?.sync();
        synced.map_err(DurableError::at("sync", &self.path))
    }

    /// The file.
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

/// Where the last whole line ends, and where the file does.
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

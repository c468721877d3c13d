//! Files that survive `kill -9`: written to a temporary file in the same folder, synced, renamed, folder synced.
//!
//! A path contains either the old bytes or the new ones, never a part. All writes go through a [`Disk`], so that
//! [`fault`] can simulate a full or failing disk.

mod appender;
pub mod fault;
mod writer;

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use appender::Appender;
pub use writer::{FinishedFile, Writer};

/// The file system operations that durable files need.
pub trait Disk: Send + Sync {
    /// Creates a new file for writing; it must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for appending, creating it if needed, and truncates it to `length` if it is longer: the caller knows
    /// how much of it is valid.
    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file or folder; an existing file at `to` is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a hard link at `to`, replacing an existing file; copies the file if the file system has no hard links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder and its parents; it may exist.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Flushes the folder's directory entries to the device.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file being written.
pub trait DiskFile: Send {
    /// Writes a prefix of `bytes` and returns its length.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Sets the position of the next write.
    fn seek(&mut self, position: u64) -> io::Result<()>;
    /// Flushes the content to the device.
    fn sync(&mut self) -> io::Result<()>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::options().write(true).create_new(true).open(path)?))
    }

    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        Seek::seek(&mut file, SeekFrom::End(0))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let temp = unfinished_name(to);
        if std::fs::hard_link(from, &temp).is_err() {
            let copied = std::fs::copy(from, &temp).and_then(|_| File::open(&temp)?.sync_all());
            copied.inspect_err(|_| drop(std::fs::remove_file(&temp)))?;
        }
        // Renaming a hard link onto another link of the same file does nothing and leaves both.
        let renamed = std::fs::rename(&temp, to);
        let _ = std::fs::remove_file(&temp);
        renamed
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        std::fs::create_dir_all(path)?;
        self.sync_folder(parent(path))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // On other systems a folder cannot be opened as a file, and the rename has to suffice.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn seek(&mut self, position: u64) -> io::Result<()> {
        Seek::seek(self, SeekFrom::Start(position)).map(|_| ())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A disk operation failed; `source` is the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}{}", path.display(), advice(action, source))]
pub struct DurableError {
    /// The failed action, as a verb: "write", "rename".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

impl DurableError {
    /// Converts a system error: `map_err(DurableError::at("write", path))`.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DurableError + use<> {
        let path = path.to_owned();
        move |source| DurableError { action, path, source }
    }
}

/// Advice for the user.
fn advice(action: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            " (no space left: free some there; finished work is kept)"
        }
        ErrorKind::PermissionDenied => " (get write permission there, or choose another folder)",
        ErrorKind::ReadOnlyFilesystem => " (it is mounted read-only: choose another folder)",
        // The first action on a file: nothing was written that could be kept.
        _ if ["create", "create the folder", "open"].contains(&action) => "",
        _ => " (finished work is kept)",
    }
}

/// Creates a folder and its parents durably.
pub fn create_folder(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    disk.create_folder(path).map_err(DurableError::at("create the folder", path))
}

/// Flushes the directory entries of a folder to the device.
pub fn sync_folder(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    disk.sync_folder(path).map_err(DurableError::at("sync the folder", path))
}

/// Creates a hard link, replacing an existing file at `to`.
pub fn link(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), DurableError> {
    disk.link(from, to).map_err(DurableError::at("link", to))
}

/// Removes a file; a missing file is not an error.
pub fn remove(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    match disk.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DurableError::at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a folder and its contents; a missing folder is not an error. This is not atomic: rename the folder to an
/// [`unfinished_name`] first, so that no reader sees a part of it.
pub fn remove_folder(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(DurableError::at("read the folder", path))?,
    };
    for entry in entries {
        let entry = entry.map_err(DurableError::at("read the folder", path))?;
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if folder { remove_folder(disk, &entry.path())? } else { remove(disk, &entry.path())? }
    }
    match disk.remove_folder(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DurableError::at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes unfinished files that dead processes left in a folder. The caller must hold the folder's lock: unfinished
/// files of a running process look the same.
pub(crate) fn remove_unfinished(disk: &dyn Disk, folder: &Path) -> Result<(), DurableError> {
    let entries = std::fs::read_dir(folder).map_err(DurableError::at("read the folder", folder))?;
    for entry in entries {
        let entry = entry.map_err(DurableError::at("read the folder", folder))?;
        if !entry.file_name().to_str().is_some_and(is_unfinished) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder { remove_folder(disk, &entry.path())? } else { remove(disk, &entry.path())? }
    }
    Ok(())
}

/// Writes a whole file atomically: when this returns, `path` contains `bytes` even after a power failure.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    write_with(&OsDisk, path, bytes)
}

/// [`write()`] on the given disk.
pub fn write_with(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    let mut writer = Writer::create(disk, path)?;
    writer.write(bytes)?;
    writer.finish()?.publish(path)?;
    sync_folder(disk, parent(path))
}

/// Temporary name next to `path`, for a file that is not complete yet or about to be deleted. Unique to this process.
pub fn unfinished_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}.tmp", std::process::id(), writer::number()));
    path.with_file_name(name)
}

/// Whether [`unfinished_name`] created this name, as for every file of a [`Writer`] until it is published. The holder of
/// the folder's lock may remove such files of dead processes.
pub fn is_unfinished(name: &str) -> bool {
    // stem.PID-NUMBER.tmp
    let mark = name.strip_suffix(".tmp").and_then(|rest| rest.rsplit_once('.')).map(|(_, mark)| mark);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    mark.and_then(|mark| mark.split_once('-')).is_some_and(|(pid, number)| digits(pid) && digits(number))
}

/// The folder that contains a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_unfinished_files_are_recognised() {
        assert!(is_unfinished("index.bin.4711-0.tmp"));
        for name in ["index.bin", "notes.tmp", "a.12-.tmp", "a.-3.tmp", "a.1-2", ".tmp", "a.1-2.tmp.bak"] {
            assert!(!is_unfinished(name), "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_created_is_named_without_its_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/speech.wav");
        let error = write(&path, b"x").unwrap_err();
        assert_eq!(error.to_string(), format!("cannot create {}", path.display()));
    }

    #[test]
    fn the_parent_of_a_bare_name_is_the_working_directory() {
        assert_eq!(parent(Path::new("a")), Path::new("."));
        assert_eq!(parent(Path::new("b/a")), Path::new("b"));
    }
}

//! Files that survive `kill -9`: written beside, synced, renamed, folder synced.
//!
//! A name either holds the old bytes or the new ones, never a part. All writing goes through a
//! [`Disk`], so that [`fault`] can stand in for one that is full, failing or gone.

mod appender;
pub mod fault;
mod writer;

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use appender::Appender;
pub use writer::{Finished, Writer};

/// What the durable files need of a file system, and nothing more.
pub trait Disk: Send + Sync {
    /// Makes a new file for writing; it must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file to add at its end, made if need be, cut to `length` if it is longer: whoever adds
    /// knows how much of it is whole.
    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file or folder its final name; a file that has that name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which is replaced where it exists; a copy where the file system has no second names.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder and those above it; it may exist.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Returns when the names in the folder are on the device.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file being written.
pub trait DiskFile: Send {
    /// Writes a first part of `bytes` and says how long it was.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Moves the place of the next write.
    fn seek(&mut self, position: u64) -> io::Result<()>;
    /// Returns when the content is on the device.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl Disk for Os {
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
        // Renaming one name of a file to another of its names does nothing, and leaves both.
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
        // Elsewhere a folder cannot be opened as a file; there the rename has to be enough.
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

/// A step on the disk failed. The cause is the `source`.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}{}", path.display(), advice(source))]
pub struct DurableError {
    /// What was being done, as a verb: "write", "rename".
    pub action: &'static str,
    /// The file or folder it was done to.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl DurableError {
    /// What an error of the system becomes: `map_err(DurableError::at("write", path))`.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DurableError + use<> {
        let path = path.to_owned();
        move |source| DurableError { action, path, source }
    }
}

/// What a person can do about it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            " (no space is left: free some there; what was finished is kept)"
        }
        ErrorKind::PermissionDenied => " (give this user the right to write there, or choose another folder)",
        ErrorKind::ReadOnlyFilesystem => " (it is mounted read-only: choose another folder)",
        _ => " (what was finished is kept)",
    }
}

/// Makes a folder, and those above it, durably.
pub fn create_folder(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    disk.create_folder(path).map_err(DurableError::at("make the folder", path))
}

/// Waits until the names in a folder are on the device.
pub fn sync_folder(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    disk.sync_folder(path).map_err(DurableError::at("sync the folder", path))
}

/// Gives a file a second name; a file that has that name is replaced.
pub fn link(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), DurableError> {
    disk.link(from, to).map_err(DurableError::at("link", to))
}

/// Removes a file; one that is not there is no error.
pub fn remove(disk: &dyn Disk, path: &Path) -> Result<(), DurableError> {
    match disk.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DurableError::at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a folder with the files in it; one that is not there is no error. Not at once: a reader may
/// meet a part of it, so it should have got a name of [`unfinished_name`] before.
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

/// Removes from a folder what processes left unfinished. Only for whoever holds its lock: another's
/// unfinished work looks the same.
pub fn sweep(disk: &dyn Disk, folder: &Path) -> Result<(), DurableError> {
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

/// Writes a whole file: when this returns, `path` holds `bytes` even if the power goes.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    write_with(&Os, path, bytes)
}

/// [`write()`] on a disk of the caller's choice.
pub fn write_with(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    let mut writer = Writer::create(disk, path)?;
    writer.write(bytes)?;
    writer.finish()?.publish(path)?;
    sync_folder(disk, parent(path))
}

/// The name beside `path` of what is not finished yet, or not any more; no other process uses it.
pub fn unfinished_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}.tmp", std::process::id(), writer::number()));
    path.with_file_name(name)
}

/// Was this name given by [`unfinished_name`], as to every file of a [`Writer`] until it is published? Those of a dead process stay
/// behind; whoever holds the folder's lock may remove them.
pub fn is_unfinished(name: &str) -> bool {
    // stem.PID-NUMBER.tmp
    let mark = name.strip_suffix(".tmp").and_then(|rest| rest.rsplit_once('.')).map(|(_, mark)| mark);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    mark.and_then(|mark| mark.split_once('-')).is_some_and(|(pid, number)| digits(pid) && digits(number))
}

/// The folder a path stands in.
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
    fn only_our_own_unfinished_names_are_recognised() {
        assert!(is_unfinished("index.bin.4711-0.tmp"));
        for name in ["index.bin", "notes.tmp", "a.12-.tmp", "a.-3.tmp", "a.1-2", ".tmp", "a.1-2.tmp.bak"] {
            assert!(!is_unfinished(name), "{name}");
        }
    }

    #[test]
    fn a_bare_name_stands_in_the_working_folder() {
        assert_eq!(parent(Path::new("a")), Path::new("."));
        assert_eq!(parent(Path::new("b/a")), Path::new("b"));
    }
}

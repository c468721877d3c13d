//! Opens regular files only. Opening a named pipe would block until something writes to it, a device has no end, and
//! reading a folder fails with an unclear message.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file, or a symbolic link to one.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening a named pipe blocks.
    check(path)?;
    File::open(path)
}

/// Reads a whole regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    check(path)?;
    std::fs::read(path)
}

fn check(path: &Path) -> io::Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() { "a folder" } else { special(kind) };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file")))
}

#[cfg(unix)]
fn special(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn special(_: std::fs::FileType) -> &'static str {
    "a special file"
}

/// Whether two paths refer to the same existing file, directly or through links.
pub fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        identity(one).is_some() && identity(one) == identity(other)
    }
    #[cfg(not(unix))]
    {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    }
}

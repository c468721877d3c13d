//! Files that are read whole: regular ones only. A named pipe would be waited for until somebody writes, a device has no
//! end, and a folder fails with a word nobody understands.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file; a link to one counts.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked before opening: opening a named pipe would wait for its writer.
    check(path)?;
    File::open(path)
}

/// The bytes of a regular file.
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
    "something special"
}

/// Whether two paths lead to the same file, by links or otherwise; `false` where one of them leads nowhere.
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

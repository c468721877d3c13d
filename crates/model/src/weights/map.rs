//! Memory-mapped files: bytes are read only when they are needed.

use std::path::Path;

use myxtts_run::mmap::{MappedFile, OnReadFault};
use myxtts_run::regular_file;

use super::WeightsError;

/// Maps a file, also an empty one, which the system call rejects. If the file is truncated while mapped, the program exits
/// with an error that names it: the price of not copying gigabytes.
pub fn map(path: &Path) -> Result<MappedFile, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = regular_file::open(path).map_err(at)?;
    MappedFile::new(&file, path, OnReadFault::Exit).map_err(at)
}

//! A file in memory, without its bytes being read before they are needed.

use std::path::Path;

use myxtts_run::mmap::{MappedFile, OnReadFault};
use myxtts_run::regular_file;

use super::WeightsError;

/// Maps a file; an empty one too, which the system alone would not. One that is cut short while it is read ends the program
/// with its name: that is the price of not copying gigabytes.
pub fn map(path: &Path) -> Result<MappedFile, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = regular_file::open(path).map_err(at)?;
    MappedFile::new(&file, path, OnReadFault::Exit).map_err(at)
}

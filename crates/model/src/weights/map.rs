//! A file in memory, without its bytes being read before they are needed.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::WeightsError;

/// Maps a file; an empty one too, which the system alone would not.
pub fn map(path: &Path) -> Result<Mmap, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(at)?;
    // A folder opens like a file and then fails with a word nobody understands.
    if file.metadata().map_err(at)?.is_dir() {
        return Err(at(std::io::Error::other("it is a folder, not a file")));
    }
    // SAFETY: the map is only read. Whoever cuts the file short meanwhile ends the program with SIGBUS; that is the price of
    // not copying gigabytes, as everywhere in this project.
    unsafe { Mmap::map(&file) }.map_err(at)
}

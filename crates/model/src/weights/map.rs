//! A file in memory, without its bytes being read before they are needed.

use std::path::Path;

use myxtts_run::mapped::{Lost, Mapped};
use myxtts_run::regular;

use super::WeightsError;

/// Maps a file; an empty one too, which the system alone would not. One that is cut short while it is read ends the program
/// with its name: that is the price of not copying gigabytes.
pub fn map(path: &Path) -> Result<Mapped, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = regular::open(path).map_err(at)?;
    Mapped::new(&file, path, Lost::Exit).map_err(at)
}

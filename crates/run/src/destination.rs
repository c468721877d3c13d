//! A file that a user asks a command to write: refused before the work where it cannot be, and written as what it is.
//!
//! | the path names | what is done |
//! |---|---|
//! | nothing, in a folder that is there | a new file, whole or not at all |
//! | a regular file | it is replaced, whole or not at all |
//! | a link to a file | the file it leads to is replaced, the link stays |
//! | a device, a named pipe, a socket | the bytes are written to it |
//! | a folder, an input of the command, a place in a folder that is not there | an error |

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::durable::{self, DurableError, Os, Writer};
use crate::regular;

/// A path that can be written to.
#[derive(Clone, Debug)]
pub struct Destination {
    path: PathBuf,
    /// The regular file that is made or replaced; none where bytes are written to what is there.
    file: Option<PathBuf>,
}

/// Why a path is no place to write to.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// The folder is missing.
    #[error("{argument} {}: there is no folder {}; make it first, or name another", path.display(), folder.display())]
    NoFolder {
        /// Who names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
        /// What is not there, or is no folder.
        folder: PathBuf,
    },
    /// A folder is there.
    #[error("{argument} {} is a folder: name a file in it", path.display())]
    IsFolder {
        /// Who names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// It would overwrite what is read.
    #[error("{argument} {} is {what}, and would be overwritten: name another file", path.display())]
    IsInput {
        /// Who names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
        /// Which input.
        what: String,
    },
}

impl Destination {
    /// Looks at a path that `argument` names, before any work is done for it.
    pub fn of(argument: &'static str, path: &Path) -> Result<Destination, DestinationError> {
        let path = path.to_owned();
        let Ok(found) = std::fs::metadata(&path) else {
            // A link that leads nowhere is written through; anything else is a new name in a folder.
            if path.symlink_metadata().is_ok() {
                return Ok(Destination { path, file: None });
            }
            let folder = durable::parent(&path);
            if !folder.is_dir() {
                return Err(DestinationError::NoFolder { argument, folder: folder.to_owned(), path });
            }
            return Ok(Destination { file: Some(path.clone()), path });
        };
        if found.is_dir() {
            return Err(DestinationError::IsFolder { argument, path });
        }
        let is_link = path.symlink_metadata().is_ok_and(|own| own.file_type().is_symlink());
        let file = match (found.is_file(), is_link) {
            (true, false) => Some(path.clone()),
            (true, true) => path.canonicalize().ok(),
            (false, _) => None,
        };
        Ok(Destination { path, file })
    }

    /// Refuses to overwrite what is read: paths, and what each of them is, such as `the reference`.
    pub fn unlike<'p>(
        self,
        argument: &'static str,
        inputs: impl IntoIterator<Item = (&'p Path, &'p str)>,
    ) -> Result<Destination, DestinationError> {
        if self.path.exists() {
            for (input, what) in inputs {
                if regular::is_same(&self.path, input) {
                    let what = what.to_owned();
                    return Err(DestinationError::IsInput { argument, path: self.path, what });
                }
            }
        }
        Ok(self)
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is, or will be, a regular file.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Begins a file that is written in pieces and gets its name when it is finished, or writes to what is no file.
    pub fn begin(&self) -> Result<DestinationWriter, DurableError> {
        match &self.file {
            Some(file) => {
                let writer = Writer::create(&Os, file)?;
                Ok(DestinationWriter::File { writer, path: file.clone() })
            }
            None => {
                let opened = File::options().write(true).create(true).truncate(true).open(&self.path);
                let file = opened.map_err(DurableError::at("open", &self.path))?;
                Ok(DestinationWriter::Other { file, path: self.path.clone() })
            }
        }
    }

    /// Writes a whole file, or to what is no file.
    pub fn write(&self, bytes: &[u8]) -> Result<(), DurableError> {
        match &self.file {
            Some(file) => durable::write(file, bytes),
            None => File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&self.path)
                .and_then(|mut file| file.write_all(bytes).and_then(|()| file.flush()))
                .map_err(DurableError::at("write", &self.path)),
        }
    }
}

/// A destination that is being written to.
pub enum DestinationWriter {
    /// A file that has not got its name yet.
    File {
        /// What is written beside it.
        writer: Writer<'static>,
        /// Its name.
        path: PathBuf,
    },
    /// A device, a named pipe.
    Other {
        /// It.
        file: File,
        /// Its name.
        path: PathBuf,
    },
}

impl DestinationWriter {
    /// Whether it is a file, whose first bytes can be replaced.
    pub fn is_file(&self) -> bool {
        matches!(self, DestinationWriter::File { .. })
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        match self {
            DestinationWriter::File { writer, .. } => writer.write(bytes),
            DestinationWriter::Other { file, path } => {
                file.write_all(bytes).map_err(DurableError::at("write", path))
            }
        }
    }

    /// Overwrites the first bytes of a file; then only [`Self::finish`] may follow.
    pub fn replace_start(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        match self {
            DestinationWriter::File { writer, .. } => writer.replace_start(bytes),
            DestinationWriter::Other { .. } => Ok(()),
        }
    }

    /// Gives a file its name; what is no file has its bytes already.
    pub fn finish(self) -> Result<(), DurableError> {
        match self {
            DestinationWriter::File { writer, path } => writer.finish()?.publish_durably(&path),
            DestinationWriter::Other { mut file, path } => {
                file.flush().map_err(DurableError::at("write", &path))
            }
        }
    }
}

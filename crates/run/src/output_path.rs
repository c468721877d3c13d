//! Output paths given by the user: checked before any work is done, then written to in a way that suits what they name.
//!
//! | the path names | what happens |
//! |---|---|
//! | nothing, in an existing folder | a new file is created atomically |
//! | a regular file | it is replaced atomically |
//! | a link to a file | the target is replaced, the link stays |
//! | a device, a named pipe, a socket | the bytes are written to it |
//! | a folder, an input of the command, a file in a missing folder | an error |

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::durable::{self, DurableError, OsDisk, Writer};
use crate::regular_file;

/// A path that can be written to.
#[derive(Clone, Debug)]
pub struct OutputPath {
    path: PathBuf,
    /// The regular file that is created or replaced; `None` where bytes are written directly to the path.
    file: Option<PathBuf>,
}

/// Why a path cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum OutputPathError {
    /// The folder is missing.
    #[error("{argument} {}: the folder {} does not exist; create it, or choose another", path.display(), folder.display())]
    NoFolder {
        /// The flag that names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
        /// The missing folder.
        folder: PathBuf,
    },
    /// The path goes through a file as if it were a folder.
    #[error("{argument} {}: {} is a file, not a folder; choose another path", path.display(), file.display())]
    ParentIsFile {
        /// The flag that names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// The path is a folder.
    #[error("{argument} {} is a folder: give a file name", path.display())]
    IsFolder {
        /// The flag that names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// The path is an input of the command.
    #[error("{argument} {} is {what} and would be overwritten: choose another file", path.display())]
    IsInput {
        /// The flag that names the path.
        argument: &'static str,
        /// The path.
        path: PathBuf,
        /// Description of the input.
        what: String,
    },
}

impl OutputPath {
    /// Checks a path given by the flag `argument`, before any work is done.
    pub fn check(argument: &'static str, path: &Path) -> Result<OutputPath, OutputPathError> {
        let path = path.to_owned();
        let Ok(found) = std::fs::metadata(&path) else {
            // A dangling link is written through; anything else is a new file.
            if path.symlink_metadata().is_ok() {
                return Ok(OutputPath { path, file: None });
            }
            let folder = durable::parent(&path);
            if let Some(file) = folder.ancestors().find(|above| above.is_file()) {
                return Err(OutputPathError::ParentIsFile { argument, file: file.to_owned(), path });
            }
            if !folder.is_dir() {
                return Err(OutputPathError::NoFolder { argument, folder: folder.to_owned(), path });
            }
            return Ok(OutputPath { file: Some(path.clone()), path });
        };
        if found.is_dir() {
            return Err(OutputPathError::IsFolder { argument, path });
        }
        let is_link = path.symlink_metadata().is_ok_and(|own| own.file_type().is_symlink());
        let file = match (found.is_file(), is_link) {
            (true, false) => Some(path.clone()),
            (true, true) => path.canonicalize().ok(),
            (false, _) => None,
        };
        Ok(OutputPath { path, file })
    }

    /// Returns an error if the path is one of the inputs, given as paths with descriptions such as `the reference`.
    pub fn reject_inputs<'p>(
        self,
        argument: &'static str,
        inputs: impl IntoIterator<Item = (&'p Path, &'p str)>,
    ) -> Result<OutputPath, OutputPathError> {
        if self.path.exists() {
            for (input, what) in inputs {
                if regular_file::is_same(&self.path, input) {
                    let what = what.to_owned();
                    return Err(OutputPathError::IsInput { argument, path: self.path, what });
                }
            }
        }
        Ok(self)
    }

    /// The path as given by the user.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is, or will be, a regular file.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Opens the path for writing in pieces. A regular file appears under its name when it is finished.
    pub fn create(&self) -> Result<OutputWriter, DurableError> {
        match &self.file {
            Some(file) => {
                let writer = Writer::create(&OsDisk, file)?;
                Ok(OutputWriter::File { writer, path: file.clone() })
            }
            None => {
                let opened = File::options().write(true).create(true).truncate(true).open(&self.path);
                let file = opened.map_err(DurableError::at("open", &self.path))?;
                Ok(OutputWriter::Other { file, path: self.path.clone() })
            }
        }
    }

    /// Writes all bytes at once.
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

/// An output that is being written.
pub enum OutputWriter {
    /// A regular file that does not have its final name yet.
    File {
        /// Temporary file next to it.
        writer: Writer<'static>,
        /// Final path.
        path: PathBuf,
    },
    /// A device or named pipe, written directly.
    Other {
        /// The open file.
        file: File,
        /// Final path.
        path: PathBuf,
    },
}

impl OutputWriter {
    /// Whether it is a regular file, whose first bytes can be replaced.
    pub fn is_file(&self) -> bool {
        matches!(self, OutputWriter::File { .. })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        match self {
            OutputWriter::File { writer, .. } => writer.write(bytes),
            OutputWriter::Other { file, path } => {
                file.write_all(bytes).map_err(DurableError::at("write", path))
            }
        }
    }

    /// Overwrites the first bytes of a regular file, and does nothing otherwise. Only [`Self::finish`] may follow.
    pub fn replace_start(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        match self {
            OutputWriter::File { writer, .. } => writer.replace_start(bytes),
            OutputWriter::Other { .. } => Ok(()),
        }
    }

    /// Moves a regular file to its final name, or flushes the device.
    pub fn finish(self) -> Result<(), DurableError> {
        match self {
            OutputWriter::File { writer, path } => writer.finish()?.publish_durably(&path),
            OutputWriter::Other { mut file, path } => file.flush().map_err(DurableError::at("write", &path)),
        }
    }
}

//! Journal of a book: one line per spoken piece, stored next to the audio until the book is finished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use myxtts_run::durable::{Appender, DurableError, OsDisk};
use serde::{Deserialize, Serialize};

use super::Timing;

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Version of the layout.
    pub journal: u32,
    /// Format of the `.part` file.
    pub format: String,
    pub rate: u32,
    /// Hash of everything that affects the audio.
    pub settings: String,
}

/// A spoken piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub piece: u64,
    /// Hash of its text and its pause.
    pub hash: String,
    /// Number of samples up to its end.
    pub samples: u64,
    /// Position in the audio; `None` if it was skipped.
    pub timing: Option<Timing>,
}

/// The intact lines of an existing journal.
pub(super) struct Found {
    pub header: Header,
    pub lines: Vec<Line>,
    /// Length in bytes of the header and of each line.
    pub lengths: Vec<u64>,
}

/// A journal open for writing.
pub(super) struct Journal {
    appender: Appender,
    path: PathBuf,
    /// Length in bytes of the header and of each line.
    lengths: Vec<u64>,
    pub lines: Vec<Line>,
}

impl Journal {
    pub fn begin(path: &Path, header: &Header) -> Result<Journal, DurableError> {
        let mut journal = Journal::open(path, Vec::new(), Vec::new())?;
        journal.append(&as_line(header))?;
        Ok(journal)
    }

    /// Reads the intact lines of a journal; `None` without an intact header.
    pub fn read(path: &Path) -> std::io::Result<Option<Found>> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let mut texts = bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let Some(header) =
            texts.next().and_then(|line| Some((serde_json::from_slice(line).ok()?, line.len())))
        else {
            return Ok(None);
        };
        let (mut lines, mut lengths) = (Vec::<Line>::new(), vec![header.1 as u64]);
        for text in texts {
            // A killed process may leave anything behind: from the first line that is not the next piece on, pieces are spoken again.
            match serde_json::from_slice::<Line>(text) {
                Ok(line)
                    if line.piece == lines.len() as u64
                        && lines.last().is_none_or(|last| last.samples <= line.samples) =>
                {
                    lengths.push(text.len() as u64);
                    lines.push(line);
                }
                _ => break,
            }
        }
        Ok(Some(Found { header: header.0, lines, lengths }))
    }

    /// Opens the journal after the given lines; the rest is truncated.
    pub fn open(path: &Path, lines: Vec<Line>, lengths: Vec<u64>) -> Result<Journal, DurableError> {
        let appender = Appender::open(Arc::new(OsDisk), path, lengths.iter().sum())?;
        Ok(Journal { appender, path: path.to_owned(), lengths, lines })
    }

    pub fn add(&mut self, line: Line) -> Result<(), DurableError> {
        self.append(&as_line(&line))?;
        self.lines.push(line);
        Ok(())
    }

    /// Removes all pieces from a number on.
    pub fn truncate(&mut self, pieces: usize) -> Result<(), DurableError> {
        self.lines.truncate(pieces);
        self.lengths.truncate(pieces + 1);
        self.appender = Appender::open(Arc::new(OsDisk), &self.path, self.lengths.iter().sum())?;
        self.appender.sync()
    }

    fn append(&mut self, line: &[u8]) -> Result<(), DurableError> {
        self.appender.append(line)?;
        self.appender.sync()?;
        self.lengths.push(line.len() as u64);
        Ok(())
    }
}

fn as_line(value: &impl Serialize) -> Vec<u8> {
    // Strings and integers: serialisation cannot fail.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

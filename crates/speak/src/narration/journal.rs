//! Which pieces of a book are spoken: one line for each, kept beside the sound until it is finished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use myxtts_run::durable::{Appender, DurableError, Os};
use serde::{Deserialize, Serialize};

use super::Timing;

/// What a journal begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Of this layout.
    pub journal: u32,
    /// How the part's samples are stored.
    pub format: String,
    pub rate: u32,
    /// Hash of everything that decides how the text is spoken.
    pub settings: String,
}

/// A piece that is spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub piece: u64,
    /// Hash of its text and what follows it.
    pub hash: String,
    /// Samples of the sound with it.
    pub samples: u64,
    /// When it is heard; none where there was nothing to say.
    pub timing: Option<Timing>,
}

/// What is whole of a journal that was found.
pub(super) struct Found {
    pub header: Header,
    pub lines: Vec<Line>,
    /// Bytes of the header and of each line.
    pub lengths: Vec<u64>,
}

/// A journal that is written to.
pub(super) struct Journal {
    appender: Appender,
    path: PathBuf,
    /// Bytes of the header and of each line.
    lengths: Vec<u64>,
    pub lines: Vec<Line>,
}

impl Journal {
    pub fn begin(path: &Path, header: &Header) -> Result<Journal, DurableError> {
        let mut journal = Journal::open(path, Vec::new(), Vec::new())?;
        journal.append(&as_line(header))?;
        Ok(journal)
    }

    /// Reads what is whole of a journal; none where there is not even a header.
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
            // What a dead process left behind may be anything: what is not the next piece is spoken again.
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

    /// Goes on behind the first lines; the rest is cut off.
    pub fn open(path: &Path, lines: Vec<Line>, lengths: Vec<u64>) -> Result<Journal, DurableError> {
        let appender = Appender::open(Arc::new(Os), path, lengths.iter().sum())?;
        Ok(Journal { appender, path: path.to_owned(), lengths, lines })
    }

    pub fn add(&mut self, line: Line) -> Result<(), DurableError> {
        self.append(&as_line(&line))?;
        self.lines.push(line);
        Ok(())
    }

    /// Cuts off all pieces from a number on.
    pub fn cut(&mut self, pieces: usize) -> Result<(), DurableError> {
        self.lines.truncate(pieces);
        self.lengths.truncate(pieces + 1);
        self.appender = Appender::open(Arc::new(Os), &self.path, self.lengths.iter().sum())?;
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
    // Strings and whole numbers: nothing that JSON cannot say.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

//! Speaks a long text into a file; can be resumed after any interruption.
//!
//! | next to `book.mp3` | contents |
//! |---|---|
//! | `book.mp3.part` | the audio so far: the output itself for WAV and PCM, else a WAV file of floats that is encoded at the end |
//! | `book.mp3.journal` | one line for each piece whose audio is on the disk |
//!
//! Both are removed when the book is finished. A piece is written and synced before its line. Audio without a line is removed and
//! spoken again, so a resumed book is byte for byte the same as one that was never interrupted.

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use myxtts_run::durable::{self, DurableError, OsDisk};
use myxtts_run::output_path::{OutputPath, OutputPathError};

use super::journal::{Found, Header, Journal, Line};
use super::{FinishedPiece, NarrationError, NarrationSettings, Narrator, Speaker, Timings, numbered};
use crate::audio_file::{AudioFileError, AudioWriter, Depth, Format, appendable_length};
use crate::long_text::{LongTextError, Piece};

/// Version of the journal's layout.
const VERSION: u32 = 1;

/// Number of samples encoded at a time.
const CHUNK: usize = 1 << 16;

/// Error of the files of a book.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// The output path cannot be written.
    #[error(transparent)]
    OutputPath(#[from] OutputPathError),
    /// A file of the book failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another process writes the same file.
    #[error("{} is being written by another process: wait for it, or name another output", path.display())]
    Busy {
        /// The `.part` file.
        path: PathBuf,
    },
    /// The journal was written with other settings.
    #[error(
        "{} was begun with other settings (model, voice, language, seed, speed, sampling or format): resume with those, or start over \
         without --resume", path.display()
    )]
    OtherSettings {
        /// The journal.
        path: PathBuf,
    },
    /// The output is a device or a pipe.
    #[error("{} is not a regular file, which a resumable book needs; use --stream for pipes", path.display())]
    NoFile {
        /// The output.
        path: PathBuf,
    },
}

/// Result of speaking a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is complete. There is no file if every piece was skipped.
    Finished(Timings),
    /// It was stopped and can be resumed.
    Stopped {
        /// Number of spoken pieces.
        pieces: u64,
        /// Number of samples.
        samples: u64,
    },
}

/// A book in progress.
pub struct Book {
    output: PathBuf,
    part: PathBuf,
    journal_path: PathBuf,
    format: Format,
    rate: u32,
    settings: NarrationSettings,
    journal: Journal,
    writer: AudioWriter<File>,
    /// Locked while the book is in progress.
    _lock: File,
}

impl Book {
    /// Path of the journal of an output.
    pub fn journal_path(output: &Path) -> PathBuf {
        with_suffix(output, "journal")
    }

    /// Starts a new book, or resumes an existing one if `resume` is set and there is one.
    ///
    /// `identity` describes everything besides `settings` that affects the audio: model, voice, language, sampling.
    pub fn open(
        output: &Path,
        format: Format,
        rate: u32,
        settings: NarrationSettings,
        identity: &str,
        resume: bool,
    ) -> Result<Book, BookError> {
        let destination = OutputPath::check("-o", output)?;
        if !destination.is_file() {
            return Err(BookError::NoFile { path: output.to_owned() });
        }
        let (part, journal_path) = (with_suffix(output, "part"), Book::journal_path(output));
        let header = Header {
            journal: VERSION,
            format: part_format(format).name().to_owned(),
            rate,
            settings: settings_hash(&settings, identity),
        };
        let at = |action: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| BookError::Io { action, path, source }
        };
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&part);
        let lock = opened.map_err(at("open", &part))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(BookError::Busy { path: part }),
            Err(TryLockError::Error(source)) if source.kind() != io::ErrorKind::Unsupported => {
                return Err(at("lock", &part)(source));
            }
            // Some file systems have no locks.
            _ => {}
        }
        let found =
            if resume { Journal::read(&journal_path).map_err(at("read", &journal_path))? } else { None };
        if found.as_ref().is_some_and(|found| found.header != header) {
            return Err(BookError::OtherSettings { path: journal_path });
        }
        let there = lock.metadata().map_err(at("look at", &part))?.len();
        let length = |samples| appendable_length(part_format(format), samples).unwrap_or(0);
        let mut file = lock.try_clone().map_err(at("open", &part))?;
        let (journal, writer) = match found {
            Some(Found { mut lines, mut lengths, .. }) if length(0) <= there => {
                // The journal is ahead of the audio only if the disk lost synced data.
                while lines.last().is_some_and(|last| length(last.samples) > there) {
                    lines.pop();
                    lengths.pop();
                }
                let samples = lines.last().map_or(0, |last| last.samples);
                file.set_len(length(samples)).map_err(at("shorten", &part))?;
                file.seek(SeekFrom::End(0)).map_err(at("seek in", &part))?;
                let writer = AudioWriter::resume(file, part_format(format), rate, samples);
                (Journal::open(&journal_path, lines, lengths)?, writer)
            }
            _ => {
                durable::remove(&OsDisk, &journal_path)?;
                file.set_len(0).map_err(at("shorten", &part))?;
                file.seek(SeekFrom::Start(0)).map_err(at("seek in", &part))?;
                let writer = AudioWriter::begin(file, part_format(format), rate);
                let writer = writer.map_err(|error| at("write", &part)(io::Error::other(error)))?;
                (Journal::begin(&journal_path, &header)?, Some(writer))
            }
        };
        // `.part` files have appendable formats, which can all be resumed.
        let writer = writer.ok_or_else(|| at("resume", &part)(io::ErrorKind::Unsupported.into()))?;
        let output = output.to_owned();
        Ok(Book { output, part, journal_path, format, rate, settings, journal, writer, _lock: lock })
    }

    /// Number of pieces spoken before.
    pub fn pieces(&self) -> u64 {
        self.journal.lines.len() as u64
    }

    /// Speaks the remaining pieces. Stops when `watch`, called after each piece, returns false.
    pub fn speak<S: Speaker>(
        mut self,
        pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
        speaker: &mut S,
        watch: &mut dyn FnMut(&FinishedPiece) -> bool,
    ) -> Result<Outcome, NarrationError<S::Error>> {
        let mut pieces = numbered(pieces);
        let (mut count, mut next) = (0, None);
        for piece in pieces.by_ref() {
            let (number, piece) = piece?;
            let line = self.journal.lines.get(number as usize).filter(|line| line.hash == piece_hash(&piece));
            let Some(line) = line else {
                next = Some((number, piece));
                break;
            };
            count = number + 1;
            let (timing, samples) = (line.timing.clone(), line.samples);
            watch(&FinishedPiece { number, piece: &piece, timing, note: None, samples, was_resumed: true });
        }
        // From here on the text may have changed, or it may be shorter.
        self.truncate(count as usize)?;
        let mut narrator = Narrator::new(self.settings, self.rate, self.samples());
        let mut pieces = next.into_iter().map(Ok).chain(pieces).peekable();
        while pieces.peek().is_some() {
            let group: Vec<(u64, Piece)> =
                pieces.by_ref().take(speaker.batch_size()).collect::<Result<_, _>>()?;
            let (journal, part) = (&mut self.journal, &self.part);
            let writer = RefCell::new(&mut self.writer);
            let mut keep = |done: &FinishedPiece| -> Result<bool, NarrationError<S::Error>> {
                let synced = writer.borrow_mut().sink().sync_data();
                let failed = |source| BookError::Io { action: "sync", path: part.clone(), source };
                synced.map_err(failed)?;
                let (hash, timing) = (piece_hash(done.piece), done.timing.clone());
                let line = Line { piece: done.number, hash, samples: done.samples, timing };
                journal.add(line).map_err(BookError::from)?;
                count = done.number + 1;
                Ok(watch(done))
            };
            let mut write = |samples: &[f32]| writer.borrow_mut().write(samples);
            if !narrator.speak_group(speaker, &group, &mut write, &mut keep)? {
                return Ok(Outcome::Stopped { pieces: count, samples: narrator.position() });
            }
        }
        Ok(Outcome::Finished(self.finish()?))
    }

    fn samples(&self) -> u64 {
        self.journal.lines.last().map_or(0, |last| last.samples)
    }

    /// Removes all pieces from a number on.
    fn truncate(&mut self, pieces: usize) -> Result<(), BookError> {
        if pieces >= self.journal.lines.len() {
            return Ok(());
        }
        self.journal.truncate(pieces)?;
        let (format, samples) = (part_format(self.format), self.samples());
        let part = self.part.clone();
        let failed = |source| BookError::Io { action: "shorten", path: part.clone(), source };
        let mut file = self.writer.sink().try_clone().map_err(failed)?;
        file.set_len(appendable_length(format, samples).unwrap_or(0)).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        if let Some(writer) = AudioWriter::resume(file, format, self.rate, samples) {
            self.writer = writer;
        }
        Ok(())
    }

    /// Turns the `.part` file into the output.
    fn finish(self) -> Result<Timings, FinishError> {
        let Book { output, part, journal_path, format, rate, journal, writer, .. } = self;
        let samples = journal.lines.last().map_or(0, |last| last.samples);
        if journal.lines.iter().all(|line| line.timing.is_none()) {
            // Every piece was skipped: there is no audio.
            for path in [&part, &journal_path] {
                durable::remove(&OsDisk, path).map_err(BookError::from)?;
            }
            return Ok(Timings { rate, samples, pieces: Vec::new() });
        }
        let failed = |action| {
            let path = part.clone();
            move |source| BookError::Io { action, path, source }
        };
        let mut file = writer.finish()?;
        file.sync_all().map_err(failed("sync"))?;
        let destination = OutputPath::check("-o", &output).map_err(BookError::from)?;
        if format == part_format(format) {
            // Follows symbolic links.
            let target = output.canonicalize().unwrap_or_else(|_| output.clone());
            std::fs::rename(&part, &target).map_err(failed("rename"))?;
            let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
            durable::sync_folder(&OsDisk, folder.unwrap_or(Path::new("."))).map_err(BookError::from)?;
        } else {
            let mut encoded =
                AudioWriter::begin(destination.create().map_err(BookError::from)?, format, rate)?;
            let header = appendable_length(part_format(format), 0).unwrap_or(0);
            file.seek(SeekFrom::Start(header)).map_err(failed("seek in"))?;
            let mut bytes = vec![0; 4 * CHUNK];
            let mut left = samples;
            while left > 0 {
                let count = left.min(CHUNK as u64) as usize;
                file.read_exact(&mut bytes[..4 * count]).map_err(failed("read"))?;
                let values = bytes[..4 * count].chunks_exact(4);
                let values: Vec<f32> = values
                    .map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]))
                    .collect();
                encoded.write(&values)?;
                left -= count as u64;
            }
            encoded.finish()?.finish().map_err(BookError::from)?;
            durable::remove(&OsDisk, &part).map_err(BookError::from)?;
        }
        durable::remove(&OsDisk, &journal_path).map_err(BookError::from)?;
        Ok(Timings {
            rate,
            samples,
            pieces: journal.lines.into_iter().filter_map(|line| line.timing).collect(),
        })
    }
}

/// Error of finishing a book.
#[derive(Debug, thiserror::Error)]
enum FinishError {
    #[error(transparent)]
    Book(#[from] BookError),
    #[error(transparent)]
    AudioFile(#[from] AudioFileError),
}

impl<E> From<FinishError> for NarrationError<E> {
    fn from(error: FinishError) -> Self {
        match error {
            FinishError::Book(error) => NarrationError::Book(error),
            FinishError::AudioFile(error) => NarrationError::AudioFile(error),
        }
    }
}

/// Format of the `.part` file.
fn part_format(format: Format) -> Format {
    if format.is_appendable() { format } else { Format::Wav(Depth::Float) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn settings_hash(settings: &NarrationSettings, identity: &str) -> String {
    // `Debug` writes floats with enough digits to distinguish them.
    short_hash(format!("{settings:?}\n{identity}").as_bytes())
}

fn piece_hash(piece: &Piece) -> String {
    short_hash(format!("{:?}\n{}", piece.pause, piece.text).as_bytes())
}

fn short_hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

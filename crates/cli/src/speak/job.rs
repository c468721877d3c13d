//! Speaks a text to its output: a file that can be resumed, or a stream or player.

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use myxtts_run::exit::Exit;
use myxtts_run::output_path::{OutputPath, OutputWriter};
use myxtts_run::progress::Progress;
use myxtts_speak::SpeakError;
use myxtts_speak::audio_file::{AudioFileError, AudioWriter, Format, Sink, Stream};
use myxtts_speak::long_text::{LongTextError, Pause, Piece, Pieces};
use myxtts_speak::narration::{
    Book, FinishedPiece, NarrationError, NarrationSettings, Outcome, Speaker, Timings, narrate,
};

use super::player::Player;
use super::speaker::ModelSpeaker;
use crate::failure::UsageError;
use crate::output::errln;
use crate::progress::Terminal;
use crate::signal;

/// Where the audio goes.
pub enum Output {
    /// A file that appears whole at the end, or a device.
    Whole(OutputPath),
    /// A file or a device, written while the text is spoken.
    Streamed(OutputPath),
    Stdout,
    /// Nowhere: the audio is only played.
    Nowhere,
}

/// A text to speak, with its output.
pub struct Job {
    pub output: Output,
    pub format: Format,
    pub settings: NarrationSettings,
    pub resume: bool,
    pub play: bool,
    /// Size of the text; `None` if unknown.
    pub bytes: Option<u64>,
    /// Describes model, voice, language and sampling.
    pub identity: String,
}

/// A text that was spoken.
pub struct SpokenText {
    pub timings: Timings,
    /// Number of pieces spoken before this text was resumed, and of their samples.
    pub resumed: u64,
    pub resumed_samples: u64,
}

impl Job {
    /// Speaks the text. Returns `None` if it was stopped and can be resumed.
    pub fn speak(
        &self,
        mut pieces: Pieces<'_, impl Read>,
        speaker: &mut ModelSpeaker<'_>,
    ) -> anyhow::Result<Option<SpokenText>> {
        let first: Vec<Piece> = pieces.by_ref().take(2).collect::<Result<_, LongTextError>>()?;
        let is_long = first.len() > 1;
        let text = first.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ");
        let pieces = first.into_iter().map(Ok).chain(pieces);
        let progress = Terminal::new();
        if is_long && let Some(bytes) = self.bytes {
            progress.start("speaking", bytes);
        }
        let spoken = match &self.output {
            Output::Whole(output) if output.is_file() && (is_long || self.resume) && !self.play => {
                self.book(output.path(), pieces, speaker, &progress)?
            }
            _ => {
                signal::leave_at_once()?;
                let timings = self.narrate(pieces, speaker, &progress)?;
                Some(SpokenText { timings, resumed: 0, resumed_samples: 0 })
            }
        };
        progress.finish();
        let Some(spoken) = spoken else { return Ok(None) };
        if spoken.timings.pieces.is_empty() {
            let refused = speaker.totals.refused.take();
            return Err(refused.unwrap_or(SpeakError::NothingToSay { text }).into());
        }
        Ok(Some(spoken))
    }

    /// Speaks a long text into a resumable file.
    fn book(
        &self,
        output: &Path,
        pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
        speaker: &mut ModelSpeaker<'_>,
        progress: &Terminal,
    ) -> anyhow::Result<Option<SpokenText>> {
        let journal = Book::journal_path(output);
        if journal.exists() && !self.resume {
            return Err(UsageError(format!(
                "{} is unfinished: --resume continues it; to start over, remove {}",
                output.display(),
                journal.display()
            ))
            .into());
        }
        if self.resume && !journal.exists() {
            errln!("note: there is nothing to resume for {}: starting from the beginning", output.display());
        }
        let rate = speaker.rate();
        let book = Book::open(output, self.format, rate, self.settings, &self.identity, self.resume)?;
        let stop = signal::stop_requested()?;
        let (mut resumed, mut resumed_samples) = (0, 0);
        let outcome = book.speak(pieces, speaker, &mut |done| {
            if done.was_resumed {
                (resumed, resumed_samples) = (resumed + 1, done.samples);
            }
            report_piece(done, progress, &stop)
        });
        match outcome.map_err(failure)? {
            Outcome::Finished(timings) => Ok(Some(SpokenText { timings, resumed, resumed_samples })),
            Outcome::Stopped { pieces, samples } => {
                progress.finish();
                errln!(
                    "stopped after {pieces} pieces, {:.1} s of audio: the same command with --resume continues",
                    samples as f64 / f64::from(rate)
                );
                Ok(None)
            }
        }
    }

    /// Speaks a text to its output without a journal.
    fn narrate(
        &self,
        pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
        speaker: &mut ModelSpeaker<'_>,
        progress: &Terminal,
    ) -> anyhow::Result<Timings> {
        let rate = speaker.rate();
        let mut player = if self.play { Some(Player::start(rate)?) } else { None };
        let never = AtomicBool::new(false);
        let mut is_closed = false;
        // Opened with the first audio: if nothing can be spoken, no file is written.
        let writer: RefCell<Option<OutputStream>> = RefCell::new(None);
        let mut write = |samples: &[f32]| -> Result<(), AudioFileError> {
            if let Some(player) = &mut player
                && !is_closed
            {
                is_closed = !player.write(samples)?;
            }
            let mut writer = writer.borrow_mut();
            if writer.is_none() && !samples.is_empty() {
                *writer = Some(OutputStream::begin(&self.output, self.format, rate)?);
            }
            match &mut *writer {
                Some(writer) => writer.write(samples),
                None => Ok(()),
            }
        };
        let timings = narrate(pieces, speaker, self.settings, &mut write, &mut |done| {
            report_piece(done, progress, &never)
        });
        let timings = timings.map_err(failure)?;
        if timings.pieces.is_empty() {
            return Ok(timings);
        }
        if let Some(writer) = writer.into_inner() {
            writer.finish()?;
        }
        if let Some(player) = player {
            player.finish()?;
        }
        Ok(timings)
    }
}

/// Audio that is being written.
enum OutputStream {
    Whole(Box<AudioWriter<OutputWriter>>),
    Streamed(Box<AudioWriter<std::fs::File>>),
    Stdout(Box<AudioWriter<Stream<io::Stdout>>>),
    Nothing,
}

impl OutputStream {
    fn begin(output: &Output, format: Format, rate: u32) -> Result<OutputStream, AudioFileError> {
        fn on<S: Sink>(sink: S, format: Format, rate: u32) -> Result<Box<AudioWriter<S>>, AudioFileError> {
            AudioWriter::begin(sink, format, rate).map(Box::new)
        }
        Ok(match output {
            Output::Whole(destination) => {
                let sink =
                    destination.create().map_err(|error| io::Error::new(error.source.kind(), error))?;
                OutputStream::Whole(on(sink, format, rate)?)
            }
            Output::Streamed(destination) => {
                let path = destination.path();
                let file = std::fs::File::options().write(true).create(true).truncate(true).open(path)?;
                OutputStream::Streamed(on(file, format, rate)?)
            }
            Output::Stdout => OutputStream::Stdout(on(Stream(io::stdout()), format, rate)?),
            Output::Nowhere => OutputStream::Nothing,
        })
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), AudioFileError> {
        match self {
            OutputStream::Whole(writer) => writer.write(samples),
            OutputStream::Streamed(writer) => writer.write(samples),
            OutputStream::Stdout(writer) => match writer.write(samples) {
                // The reader has closed the pipe.
                Err(AudioFileError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    std::process::exit(Exit::Done.code().into())
                }
                written => written,
            },
            OutputStream::Nothing => Ok(()),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            OutputStream::Whole(writer) => writer.finish()?.finish()?,
            OutputStream::Streamed(writer) => {
                writer.finish()?.sync_all().context("cannot sync the audio file")?
            }
            OutputStream::Stdout(writer) => {
                writer.finish()?;
            }
            OutputStream::Nothing => {}
        }
        Ok(())
    }
}

impl Output {
    /// The output file; `-` for standard output.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Output::Whole(destination) | Output::Streamed(destination) => Some(destination.path().to_owned()),
            Output::Stdout => Some(PathBuf::from("-")),
            Output::Nowhere => None,
        }
    }
}

/// Reports a finished piece. Returns whether to continue.
fn report_piece(done: &FinishedPiece, progress: &Terminal, stop: &AtomicBool) -> bool {
    progress.advance(done.piece.text.len() as u64 + 1);
    // The note of a single piece is in the report.
    let is_only = done.number == 0 && done.piece.pause == Pause::End;
    if let Some(note) = done.note.as_ref().filter(|_| !is_only) {
        let beginning: String = done.piece.text.chars().take(40).collect();
        progress.say(&format!("note: piece {} ({beginning:?}): {note}", done.number + 1));
    }
    done.was_resumed || !stop.load(Ordering::Relaxed)
}

/// Unwraps an error to the type that determines its exit code.
fn failure(error: NarrationError<SpeakError>) -> anyhow::Error {
    match error {
        NarrationError::Speaker(error) => error.into(),
        NarrationError::Text(error) => error.into(),
        NarrationError::AudioFile(error) => error.into(),
        NarrationError::Book(error) => error.into(),
    }
}

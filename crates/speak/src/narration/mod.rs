//! Speaks a long text piece by piece and joins the pieces.
//!
//! ```text
//! Piece ──> Speaker ──> TimeStretch ──> Joiner ──> audio file, player, Book (with a journal, to be resumed)
//!           samples     --speed         fades and pauses
//! ```
//!
//! Every piece has its own seed, derived from the seed and its number, and is spoken independently of the others. The result
//! depends neither on their order nor on how many are spoken at a time.

mod book;
mod joiner;
mod journal;
mod time_stretch;
mod timings;

pub use book::{Book, BookError, Outcome};
pub use joiner::{Joiner, Joins};
pub use time_stretch::{SPEEDS, TimeStretch};
pub use timings::{Timing, Timings};

use crate::audio_file::AudioFileError;
use crate::long_text::{LongTextError, Piece};
use myxtts_run::seed::Seed;

/// Speaks the pieces of a text.
pub trait Speaker {
    /// Error of speaking.
    type Error;

    /// Sample rate in Hz.
    fn rate(&self) -> u32;

    /// Speaks a text. Samples go to `out` as they are made; speaking stops when it returns false.
    fn speak(
        &mut self,
        text: &str,
        seed: u64,
        out: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Spoken, Self::Error>;

    /// Number of texts to pass to [`Speaker::speak_many`]; 1 to speak one after the other.
    fn batch_size(&self) -> usize {
        1
    }

    /// Speaks several texts, each with its seed and as [`Speaker::speak`] speaks it.
    fn speak_many(&mut self, texts: &[(&str, u64)]) -> Result<Vec<(Vec<f32>, Spoken)>, Self::Error> {
        let one = |&(text, seed): &(&str, u64)| {
            let mut all = Vec::new();
            let spoken = self.speak(text, seed, &mut |samples| {
                all.extend_from_slice(samples);
                true
            })?;
            Ok((all, spoken))
        };
        texts.iter().map(one).collect()
    }
}

/// Result of speaking a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// It was spoken; with a note about a remaining flaw.
    Said(Option<String>),
    /// It was skipped, with the reason.
    Nothing(String),
}

/// Error of speaking a long text.
#[derive(Debug, thiserror::Error)]
pub enum NarrationError<E> {
    /// The speaker failed.
    #[error(transparent)]
    Speaker(E),
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] LongTextError),
    /// The audio cannot be written.
    #[error(transparent)]
    AudioFile(#[from] AudioFileError),
    /// The files of a book cannot be written.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// Result of speaking with a speaker.
pub type Narrated<T, S> = Result<T, NarrationError<<S as Speaker>::Error>>;

/// Settings for speaking a long text. Journals hold a hash of the `Debug` text, so names of fields stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrationSettings {
    /// Pauses and fades.
    pub joins: Joins,
    /// Speed factor: 1 for the model's own, 2 for half the duration; see [`SPEEDS`].
    pub speed: f64,
    /// Seed of the text; equal seeds give equal audio.
    pub seed: u64,
}

impl Default for NarrationSettings {
    fn default() -> Self {
        NarrationSettings { joins: Joins::default(), speed: 1.0, seed: 0 }
    }
}

/// Seed of a piece. The first piece has the seed itself, so that a text of one piece equals a single utterance.
pub fn piece_seed(seed: u64, number: u64) -> u64 {
    match number {
        0 => seed,
        number => Seed::new(seed).derive("piece").with(number).value(),
    }
}

/// A finished piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedPiece<'p> {
    /// Number of the piece, from 0.
    pub number: u64,
    /// The piece.
    pub piece: &'p Piece,
    /// Position in the audio; `None` if it was skipped.
    pub timing: Option<Timing>,
    /// Note about a flaw, or the reason it was skipped.
    pub note: Option<String>,
    /// Number of samples so far, including pauses.
    pub samples: u64,
    /// Whether it was spoken before the book was resumed.
    pub was_resumed: bool,
}

/// Speaks pieces in order.
pub struct Narrator {
    settings: NarrationSettings,
    joiner: Joiner,
    stretch: TimeStretch,
    position: u64,
    stretched: Vec<f32>,
    joined: Vec<f32>,
}

impl Narrator {
    /// Starts at sample `position` of the audio; 0 for a new one.
    pub fn new(settings: NarrationSettings, rate: u32, position: u64) -> Narrator {
        Narrator {
            settings,
            joiner: Joiner::new(settings.joins, rate, position > 0),
            stretch: TimeStretch::new(settings.speed, rate),
            position,
            stretched: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Number of samples so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Speaks a piece and the pause after it; samples are written as they are made.
    pub fn speak_piece<'p, S: Speaker>(
        &mut self,
        speaker: &mut S,
        number: u64,
        piece: &'p Piece,
        write: Write<'_>,
    ) -> Result<FinishedPiece<'p>, NarrationError<S::Error>> {
        let start = self.position;
        let mut failed = None;
        let mut spoken = Spoken::Said(None);
        if piece.is_spoken() {
            let seed = piece_seed(self.settings.seed, number);
            let result = speaker.speak(&piece.text, seed, &mut |samples| {
                failed = self.add(samples, write).err();
                failed.is_none()
            });
            spoken = result.map_err(NarrationError::Speaker)?;
        }
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(self.end(start, number, piece, spoken, write)?),
        }
    }

    /// Adds a piece that was already spoken.
    pub fn add_piece<'p>(
        &mut self,
        number: u64,
        piece: &'p Piece,
        (samples, spoken): (Vec<f32>, Spoken),
        write: Write<'_>,
    ) -> Result<FinishedPiece<'p>, AudioFileError> {
        let start = self.position;
        self.add(&samples, write)?;
        self.end(start, number, piece, spoken, write)
    }

    /// Adds samples of the current piece.
    pub fn add(&mut self, samples: &[f32], write: Write<'_>) -> Result<(), AudioFileError> {
        self.stretched.clear();
        self.stretch.add(samples, &mut self.stretched);
        self.joiner.add(&self.stretched, &mut self.joined);
        self.flush(write)
    }

    /// Ends a piece that began at sample `start`, and adds the pause after it.
    pub fn end<'p>(
        &mut self,
        start: u64,
        number: u64,
        piece: &'p Piece,
        spoken: Spoken,
        write: Write<'_>,
    ) -> Result<FinishedPiece<'p>, AudioFileError> {
        self.stretched.clear();
        self.stretch.end(&mut self.stretched);
        self.joiner.add(&self.stretched, &mut self.joined);
        self.joiner.end(piece.pause, &mut self.joined);
        self.flush(write)?;
        let end = self.position - self.joiner.silence(piece.pause) as u64;
        let (was_spoken, note) = match spoken {
            Spoken::Said(note) => (piece.is_spoken(), note),
            Spoken::Nothing(reason) => (false, Some(reason)),
        };
        let timing = was_spoken.then(|| Timing { start, end, text: piece.text.clone() });
        Ok(FinishedPiece { number, piece, timing, note, samples: self.position, was_resumed: false })
    }

    /// Writes the joined samples.
    fn flush(&mut self, write: Write<'_>) -> Result<(), AudioFileError> {
        write(&self.joined)?;
        self.position += self.joined.len() as u64;
        self.joined.clear();
        Ok(())
    }

    /// Speaks a group of numbered pieces and writes them in order. Stops when `done` returns false.
    pub fn speak_group<S: Speaker>(
        &mut self,
        speaker: &mut S,
        group: &[(u64, Piece)],
        write: Write<'_>,
        done: &mut dyn FnMut(&FinishedPiece) -> Narrated<bool, S>,
    ) -> Result<bool, NarrationError<S::Error>> {
        if let [(number, piece)] = group {
            let finished = self.speak_piece(speaker, *number, piece, write)?;
            return done(&finished);
        }
        let spoken = group.iter().filter(|(_, piece)| piece.is_spoken());
        let texts: Vec<(&str, u64)> = spoken
            .map(|(number, piece)| (piece.text.as_str(), piece_seed(self.settings.seed, *number)))
            .collect();
        let mut results = speaker.speak_many(&texts).map_err(NarrationError::Speaker)?.into_iter();
        for (number, piece) in group {
            let nothing = (Vec::new(), Spoken::Said(None));
            let result = if piece.is_spoken() { results.next().unwrap_or(nothing) } else { nothing };
            let one = self.add_piece(*number, piece, result, write)?;
            if !done(&one)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Receives samples.
pub type Write<'w> = &'w mut dyn FnMut(&[f32]) -> Result<(), AudioFileError>;

/// Speaks pieces and writes samples as they are made. Stops when `watch`, called after each piece, returns false.
pub fn narrate<S: Speaker>(
    pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
    speaker: &mut S,
    settings: NarrationSettings,
    write: Write<'_>,
    watch: &mut dyn FnMut(&FinishedPiece) -> bool,
) -> Result<Timings, NarrationError<S::Error>> {
    let rate = speaker.rate();
    let mut narrator = Narrator::new(settings, rate, 0);
    let mut timings = Timings { rate, ..Timings::default() };
    let mut pieces = numbered(pieces).peekable();
    while pieces.peek().is_some() {
        let group: Vec<(u64, Piece)> =
            pieces.by_ref().take(speaker.batch_size()).collect::<Result<_, _>>()?;
        let continues = narrator.speak_group(speaker, &group, write, &mut |done| {
            timings.samples = done.samples;
            timings.pieces.extend(done.timing.clone());
            Ok(watch(done))
        })?;
        if !continues {
            break;
        }
    }
    Ok(timings)
}

fn numbered(
    pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
) -> impl Iterator<Item = Result<(u64, Piece), LongTextError>> {
    (0..).zip(pieces).map(|(number, piece)| piece.map(|piece| (number, piece)))
}

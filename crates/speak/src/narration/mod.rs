//! A long text spoken piece by piece, and joined to one sound.
//!
//! ```text
//! Piece ──> Speaker ──> Stretch ──> Joiner ──> sound file, player, Book (with a journal, to be resumed)
//!           samples     --speed     fades and pauses
//! ```
//!
//! Every piece has a seed of its own, made of the seed and its number, and becomes sound without regard to the others. So
//! neither their order nor how many are spoken at a time changes what is said.

mod book;
mod joiner;
mod journal;
mod stretch;
mod timings;

pub use book::{Book, BookError, Outcome};
pub use joiner::{Joiner, Joins};
pub use stretch::{SPEEDS, Stretch};
pub use timings::{Timing, Timings};

use crate::long_text::{LongTextError, Piece};
use crate::sound_file::SoundFileError;
use myxtts_run::seed::Seed;

/// Whoever says a piece.
pub trait Speaker {
    /// Why it could not.
    type Error;

    /// Samples per second.
    fn rate(&self) -> u32;

    /// Says a text. Samples go to `out` as they come; where it says no, nothing more is wanted.
    fn speak(
        &mut self,
        text: &str,
        seed: u64,
        out: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Spoken, Self::Error>;

    /// How many texts it is given at a time; 1 where it says one after the other.
    fn at_once(&self) -> usize {
        1
    }

    /// Says several texts, each with its seed and as [`Speaker::speak`] says it.
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

/// What came of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// It was said; with a note where something is to be known of it.
    Said(Option<String>),
    /// There was nothing that can be said, and why.
    Nothing(String),
}

/// Why a text was not spoken to its end.
#[derive(Debug, thiserror::Error)]
pub enum NarrationError<E> {
    /// The speaker failed.
    #[error(transparent)]
    Speaker(E),
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] LongTextError),
    /// The sound cannot be written.
    #[error(transparent)]
    Sound(#[from] SoundFileError),
    /// The files of a book cannot be kept.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// What comes of speaking with a speaker.
pub type Narrated<T, S> = Result<T, NarrationError<<S as Speaker>::Error>>;

/// How a text is spoken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrationSettings {
    /// Pauses and fades.
    pub joins: Joins,
    /// 1 as the model speaks, 2 in half the time; see [`SPEEDS`].
    pub speed: f64,
    /// The same seed says it the same way.
    pub seed: u64,
}

impl Default for NarrationSettings {
    fn default() -> Self {
        NarrationSettings { joins: Joins::default(), speed: 1.0, seed: 0 }
    }
}

/// The seed of a piece. That of the first is the seed itself: a text of one piece is what the model says with it.
pub fn piece_seed(seed: u64, number: u64) -> u64 {
    match number {
        0 => seed,
        number => Seed::new(seed).derive("piece").with(number).value(),
    }
}

/// A piece that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<'p> {
    /// Which, from 0.
    pub number: u64,
    /// What was to be said.
    pub piece: &'p Piece,
    /// When it is heard; none where there was nothing to say.
    pub timing: Option<Timing>,
    /// What is to be known of it.
    pub note: Option<String>,
    /// Samples of the sound so far, pauses included.
    pub samples: u64,
    /// Whether it was spoken before this book was resumed.
    pub was_resumed: bool,
}

/// Speaks pieces in their order.
pub struct Narrator {
    settings: NarrationSettings,
    joiner: Joiner,
    stretch: Stretch,
    position: u64,
    stretched: Vec<f32>,
    joined: Vec<f32>,
}

impl Narrator {
    /// Begins at sample `position` of a sound: 0 for a new one.
    pub fn new(settings: NarrationSettings, rate: u32, position: u64) -> Narrator {
        Narrator {
            settings,
            joiner: Joiner::new(settings.joins, rate, position > 0),
            stretch: Stretch::new(settings.speed, rate),
            position,
            stretched: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Samples so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Says a piece, and the pause behind it, as it comes.
    pub fn say<'p, S: Speaker>(
        &mut self,
        speaker: &mut S,
        number: u64,
        piece: &'p Piece,
        write: Write<'_>,
    ) -> Result<Done<'p>, NarrationError<S::Error>> {
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

    /// Takes a piece that was said.
    pub fn take<'p>(
        &mut self,
        number: u64,
        piece: &'p Piece,
        (samples, spoken): (Vec<f32>, Spoken),
        write: Write<'_>,
    ) -> Result<Done<'p>, SoundFileError> {
        let start = self.position;
        self.add(&samples, write)?;
        self.end(start, number, piece, spoken, write)
    }

    /// Adds samples of the piece that is being said.
    pub fn add(&mut self, samples: &[f32], write: Write<'_>) -> Result<(), SoundFileError> {
        self.stretched.clear();
        self.stretch.add(samples, &mut self.stretched);
        self.joiner.add(&self.stretched, &mut self.joined);
        self.pass(write)
    }

    /// Ends a piece that began at sample `start`, and adds the pause behind it.
    pub fn end<'p>(
        &mut self,
        start: u64,
        number: u64,
        piece: &'p Piece,
        spoken: Spoken,
        write: Write<'_>,
    ) -> Result<Done<'p>, SoundFileError> {
        self.stretched.clear();
        self.stretch.end(&mut self.stretched);
        self.joiner.add(&self.stretched, &mut self.joined);
        self.joiner.end(piece.pause, &mut self.joined);
        self.pass(write)?;
        let end = self.position - self.joiner.silence(piece.pause) as u64;
        let (was_said, note) = match spoken {
            Spoken::Said(note) => (piece.is_spoken(), note),
            Spoken::Nothing(reason) => (false, Some(reason)),
        };
        let timing = was_said.then(|| Timing { start, end, text: piece.text.clone() });
        Ok(Done { number, piece, timing, note, samples: self.position, was_resumed: false })
    }

    /// Hands on what is joined.
    fn pass(&mut self, write: Write<'_>) -> Result<(), SoundFileError> {
        write(&self.joined)?;
        self.position += self.joined.len() as u64;
        self.joined.clear();
        Ok(())
    }

    /// Says a group of pieces, each with its number, and hands them on one after the other. `done` says whether to go on.
    pub fn say_group<S: Speaker>(
        &mut self,
        speaker: &mut S,
        group: &[(u64, Piece)],
        write: Write<'_>,
        done: &mut dyn FnMut(&Done) -> Narrated<bool, S>,
    ) -> Result<bool, NarrationError<S::Error>> {
        if let [(number, piece)] = group {
            let said = self.say(speaker, *number, piece, write)?;
            return done(&said);
        }
        let spoken = group.iter().filter(|(_, piece)| piece.is_spoken());
        let texts: Vec<(&str, u64)> = spoken
            .map(|(number, piece)| (piece.text.as_str(), piece_seed(self.settings.seed, *number)))
            .collect();
        let mut said = speaker.speak_many(&texts).map_err(NarrationError::Speaker)?.into_iter();
        for (number, piece) in group {
            let nothing = (Vec::new(), Spoken::Said(None));
            let sound = if piece.is_spoken() { said.next().unwrap_or(nothing) } else { nothing };
            let one = self.take(*number, piece, sound, write)?;
            if !done(&one)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Where samples go.
pub type Write<'w> = &'w mut dyn FnMut(&[f32]) -> Result<(), SoundFileError>;

/// Speaks pieces and hands the sound on as it comes. After each, `watch` says whether to go on.
pub fn narrate<S: Speaker>(
    pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
    speaker: &mut S,
    settings: NarrationSettings,
    write: Write<'_>,
    watch: &mut dyn FnMut(&Done) -> bool,
) -> Result<Timings, NarrationError<S::Error>> {
    let rate = speaker.rate();
    let mut narrator = Narrator::new(settings, rate, 0);
    let mut timings = Timings { rate, ..Timings::default() };
    let mut pieces = numbered(pieces).peekable();
    while pieces.peek().is_some() {
        let group: Vec<(u64, Piece)> = pieces.by_ref().take(speaker.at_once()).collect::<Result<_, _>>()?;
        let goes_on = narrator.say_group(speaker, &group, write, &mut |done| {
            timings.samples = done.samples;
            timings.pieces.extend(done.timing.clone());
            Ok(watch(done))
        })?;
        if !goes_on {
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

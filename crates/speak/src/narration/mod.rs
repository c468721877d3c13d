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

    /// Says a piece, and the pause behind it.
    pub fn say<'p, S: Speaker>(
        &mut self,
        speaker: &mut S,
        number: u64,
        piece: &'p Piece,
        write: &mut dyn FnMut(&[f32]) -> Result<(), SoundFileError>,
    ) -> Result<Done<'p>, NarrationError<S::Error>> {
        let Narrator { settings, joiner, stretch, position, stretched, joined } = self;
        let start = *position;
        let mut failed = None;
        let mut pass = |joined: &mut Vec<f32>| match write(joined) {
            Ok(()) => {
                *position += joined.len() as u64;
                joined.clear();
                true
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        let mut spoken = Spoken::Said(None);
        if piece.is_spoken() {
            let seed = piece_seed(settings.seed, number);
            let result = speaker.speak(&piece.text, seed, &mut |samples| {
                stretched.clear();
                stretch.add(samples, stretched);
                joiner.add(stretched, joined);
                pass(joined)
            });
            spoken = result.map_err(NarrationError::Speaker)?;
        }
        stretched.clear();
        stretch.end(stretched);
        joiner.add(stretched, joined);
        joiner.end(piece.pause, joined);
        pass(joined);
        if let Some(error) = failed {
            return Err(error.into());
        }
        let end = *position - joiner.silence(piece.pause) as u64;
        let (was_said, note) = match spoken {
            Spoken::Said(note) => (piece.is_spoken(), note),
            Spoken::Nothing(reason) => (false, Some(reason)),
        };
        let timing = was_said.then(|| Timing { start, end, text: piece.text.clone() });
        Ok(Done { number, piece, timing, note, samples: *position, was_resumed: false })
    }
}

/// Speaks pieces and hands the sound on as it comes. After each, `watch` says whether to go on.
pub fn narrate<S: Speaker>(
    pieces: impl Iterator<Item = Result<Piece, LongTextError>>,
    speaker: &mut S,
    settings: NarrationSettings,
    write: &mut dyn FnMut(&[f32]) -> Result<(), SoundFileError>,
    watch: &mut dyn FnMut(&Done) -> bool,
) -> Result<Timings, NarrationError<S::Error>> {
    let rate = speaker.rate();
    let mut narrator = Narrator::new(settings, rate, 0);
    let mut timings = Timings { rate, ..Timings::default() };
    for (number, piece) in pieces.enumerate() {
        let piece = piece?;
        let done = narrator.say(speaker, number as u64, &piece, write)?;
        timings.samples = done.samples;
        let goes_on = watch(&done);
        timings.pieces.extend(done.timing);
        if !goes_on {
            break;
        }
    }
    Ok(timings)
}

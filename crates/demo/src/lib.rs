//! The built-in demo corpus: a formant synthesiser that reads short English and Persian sentences
//! aloud, so that everything can be tried without a recording, a network or another program.
//!
//! ```text
//! sentences -> phrase (english, persian: letters to sounds) -> prosody -> tracks -> synth -> corpus
//! Sentence     Phrase, Word, Phone                             Score      Frame     samples   files
//! ```
//!
//! The sound follows the text: a model can learn it, and where it errs, an ear can tell. The same
//! seed gives the same bytes on every machine (see `portable`).

mod channel;
mod corpus;
mod draw;
mod english;
mod english_words;
mod folder;
mod function_words;
mod number;
mod persian;
mod persian_words;
mod phoneme;
mod phrase;
mod portable;
mod pretraining;
mod pretraining_texts;
mod prosody;
#[cfg(test)]
mod recognition;
mod sentences;
mod synth;
mod tracks;
mod voice;

use myxtts_run::seed::Seed;

pub use corpus::{DemoOptions, ensure, write};
use draw::Draw;
pub use folder::{DemoError, DemoReport};
pub use phoneme::Phoneme;
pub use phrase::{Ending, Phone, Phrase, Word};
pub use pretraining::{PretrainingOptions, read_texts, write_pretraining};
pub use sentences::{Sentence, held_out};
pub use voice::{Channel, MAX_SPEAKERS, VOICES, Voice};

/// Samples of a second of what [`speak`] returns and [`write()`] writes.
pub const SAMPLE_RATE: u32 = tracks::SAMPLE_RATE;

/// A language the demo speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// `en`
    English,
    /// `fa`
    Persian,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 2] = [Language::English, Language::Persian];

    /// Its code: `en`, `fa`.
    pub fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Persian => "fa",
        }
    }

    /// The language of that code.
    pub fn from_code(code: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.code() == code)
    }
}

/// Why a text cannot be read aloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A character of another script.
    #[error(
        "the demo voices cannot say {character:?} in language `{language}`: write it in letters of that language"
    )]
    UnknownCharacter {
        /// The first such character.
        character: char,
        /// The language the text was read in.
        language: &'static str,
    },
    /// Only spaces and punctuation.
    #[error("there is nothing to say in {text:?}: it has no letter and no digit")]
    NothingToSay {
        /// The text.
        text: String,
    },
}

/// The sounds of a text, phrase by phrase.
pub fn phonemes(text: &str, language: Language) -> Result<Vec<Phrase>, ReadError> {
    match phrase::read(text, language) {
        (_, Some(character)) => Err(ReadError::UnknownCharacter { character, language: language.code() }),
        (phrases, None) if phrases.is_empty() => Err(ReadError::NothingToSay { text: text.to_owned() }),
        (phrases, None) => Ok(phrases),
    }
}

/// Reads a text aloud: mono samples at [`SAMPLE_RATE`], the same for the same arguments.
///
/// Characters without a sound in the language are passed over, and a text without any other gives
/// silence; ask [`phonemes`] first where that matters.
pub fn speak(text: &str, language: Language, voice: &Voice) -> Vec<f32> {
    spoken(text, language, voice, Seed::new(0).derive(text)).0
}

/// [`speak`] with the small variations of `seed`, and when each word begins and ends (seconds).
fn spoken(text: &str, language: Language, voice: &Voice, seed: Seed) -> (Vec<f32>, Vec<(f64, f64)>) {
    let (phrases, _) = phrase::read(text, language);
    let score = prosody::score(&phrases, voice, &mut Draw::new(seed.derive("prosody")));
    let frames = tracks::frames(&score, voice);
    (synth::render(&frames, voice, seed.derive("sound")), score.words)
}

/// How long [`spoken`] would speak, without speaking.
fn seconds(sentence: &Sentence, voice: &Voice, seed: Seed) -> f64 {
    let (phrases, _) = phrase::read(&sentence.normalised, sentence.language);
    let score = prosody::score(&phrases, voice, &mut Draw::new(seed.derive("prosody")));
    (tracks::count_frames(&score) * tracks::FRAME) as f64 / f64::from(SAMPLE_RATE)
}

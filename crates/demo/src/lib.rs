//! The built-in demo corpus: a formant synthesiser that speaks short English and Persian sentences, so that everything can
//! be tried without recordings, a network or another program.
//!
//! ```text
//! sentences -> phrase (english, persian: letters to phonemes) -> prosody  -> tracks -> synth -> corpus
//! Sentence     Phrase, Word, Phone                               Timeline    Frame     samples   files
//! ```
//!
//! The audio depends on the text, so a model can learn it and a listener can hear its errors. The same seed gives the same
//! bytes on every machine (see `portable`).

mod channel;
mod corpus;
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
mod random;
#[cfg(test)]
mod recognition;
mod sentences;
mod synth;
mod tracks;
mod voice;

use myxtts_run::seed::Seed;

pub use corpus::{DemoOptions, ensure, write};
pub use folder::{DemoError, DemoReport};
pub use phoneme::Phoneme;
pub use phrase::{Ending, Phone, Phrase, Word};
pub use pretraining::{PretrainingOptions, read_texts, write_pretraining};
use random::RandomStream;
pub use sentences::{Sentence, held_out};
pub use voice::{Channel, MAX_SPEAKERS, VOICES, Voice};

/// Sample rate in Hz of [`speak`] and [`write()`].
pub const SAMPLE_RATE: u32 = tracks::SAMPLE_RATE;

/// A language of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// `en`
    English,
    /// `fa`
    Persian,
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 2] = [Language::English, Language::Persian];

    /// The language code: `en`, `fa`.
    pub fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Persian => "fa",
        }
    }

    /// The language with a code.
    pub fn from_code(code: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.code() == code)
    }
}

/// Errors of reading a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A character of another script.
    #[error(
        "the demo voices cannot pronounce {character:?} in language `{language}`: use letters of that language"
    )]
    UnknownCharacter {
        /// The first such character.
        character: char,
        /// Code of the language of the text.
        language: &'static str,
    },
    /// Only spaces and punctuation.
    #[error("nothing to say in {text:?}: it has no letter or digit")]
    NothingToSay {
        /// The text.
        text: String,
    },
}

/// The phonemes of a text, phrase by phrase.
pub fn phonemes(text: &str, language: Language) -> Result<Vec<Phrase>, ReadError> {
    match phrase::read(text, language) {
        (_, Some(character)) => Err(ReadError::UnknownCharacter { character, language: language.code() }),
        (phrases, None) if phrases.is_empty() => Err(ReadError::NothingToSay { text: text.to_owned() }),
        (phrases, None) => Ok(phrases),
    }
}

/// Speaks a text: mono samples at [`SAMPLE_RATE`], the same for the same arguments.
///
/// Characters without a pronunciation in the language are skipped, and a text without any other gives silence; call
/// [`phonemes`] first to detect this.
pub fn speak(text: &str, language: Language, voice: &Voice) -> Vec<f32> {
    synthesise(text, language, voice, Seed::new(0).derive(text)).0
}

/// Like [`speak`] with the small variations of `seed`; also returns start and end of each word in seconds.
fn synthesise(text: &str, language: Language, voice: &Voice, seed: Seed) -> (Vec<f32>, Vec<(f64, f64)>) {
    let (phrases, _) = phrase::read(text, language);
    let timeline = prosody::timeline(&phrases, voice, &mut RandomStream::new(seed.derive("prosody")));
    let frames = tracks::frames(&timeline, voice);
    (synth::render(&frames, voice, seed.derive("sound")), timeline.words)
}

/// The length of what [`synthesise`] would return, in seconds, without synthesis.
fn seconds(sentence: &Sentence, voice: &Voice, seed: Seed) -> f64 {
    let (phrases, _) = phrase::read(&sentence.normalised, sentence.language);
    let timeline = prosody::timeline(&phrases, voice, &mut RandomStream::new(seed.derive("prosody")));
    (tracks::count_frames(&timeline) * tracks::FRAME) as f64 / f64::from(SAMPLE_RATE)
}

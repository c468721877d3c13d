//! Text into what is spoken: phrases that end at punctuation, of words, of sounds.

use myxtts_text::english::pronunciation::to_letters;

use super::number::spell_out;
use super::phoneme::Phoneme;
use super::{Language, english, persian};

/// A sound in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phone {
    /// Which sound.
    pub phoneme: Phoneme,
    /// True on the vowel that carries the word's stress.
    pub stressed: bool,
}

/// A word and its sounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As read: lower case, numbers in words.
    pub text: String,
    /// Its sounds in order; without a stressed one where it leans on its neighbours.
    pub phones: Vec<Phone>,
}

/// What the punctuation after a phrase asks of the voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Goes on after a breath.
    Comma,
    /// Falls.
    Statement,
    /// Rises.
    Question,
    /// Falls from high.
    Exclamation,
}

/// Words said in one breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words; never none.
    pub words: Vec<Word>,
    /// How it ends.
    pub ending: Ending,
}

/// The text as phrases, and the first character in it that has no sound in this language.
pub(crate) fn read(text: &str, language: Language) -> (Vec<Phrase>, Option<char>) {
    let text = spell_out(text, language);
    let mut unknown = None;
    let mut phrases = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for character in text.chars().chain(['.']) {
        let ending = match kind(character, language) {
            Kind::Letter(letters) => {
                word.extend(letters.iter().filter(|&&letter| letter != '\0'));
                continue;
            }
            Kind::Unknown => {
                unknown.get_or_insert(character);
                continue;
            }
            Kind::Space => None,
            Kind::End(ending) => Some(ending),
        };
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        let Some(ending) = ending else { continue };
        let mut spoken: Vec<Word> = match language {
            Language::English => words.iter().map(|word| english::pronounce(word)).collect(),
            Language::Persian => persian::pronounce(&words),
        };
        words.clear();
        spoken.retain(|word| !word.phones.is_empty()); // a lone joiner or apostrophe
        if !spoken.is_empty() {
            phrases.push(Phrase { words: spoken, ending });
        }
    }
    (phrases, unknown)
}

enum Kind {
    /// One or two letters of the language's own alphabet; unused places are NUL.
    Letter([char; 2]),
    Space,
    End(Ending),
    Unknown,
}

fn kind(character: char, language: Language) -> Kind {
    let ending = match character {
        ',' | ';' | ':' | '،' | '؛' => Some(Ending::Comma),
        '.' | '…' => Some(Ending::Statement),
        '?' | '؟' => Some(Ending::Question),
        '!' => Some(Ending::Exclamation),
        _ => None,
    };
    if let Some(ending) = ending {
        return Kind::End(ending);
    }
    if character.is_whitespace() || "-–—\"“”«»()[]/".contains(character) {
        return Kind::Space;
    }
    let letter = match language {
        Language::English => to_letters(character),
        Language::Persian => persian::letter(character),
    };
    letter.map_or(Kind::Unknown, Kind::Letter)
}

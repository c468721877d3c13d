//! Splits a text into phrases that end at punctuation, words and phones.

use myxtts_text::english::pronunciation::to_letters;

use super::number::spell_out;
use super::phoneme::Phoneme;
use super::{Language, english, persian};

/// A phoneme in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phone {
    /// The phoneme.
    pub phoneme: Phoneme,
    /// Whether this vowel carries the word's stress.
    pub stressed: bool,
}

/// A word and its phones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Lower-case text, with numbers in words.
    pub text: String,
    /// Phones in order; unstressed words have no stressed one.
    pub phones: Vec<Phone>,
}

/// Intonation required by the punctuation after a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Continuation after a short pause.
    Comma,
    /// Falling pitch.
    Statement,
    /// Rising pitch.
    Question,
    /// Falling from a high pitch.
    Exclamation,
}

/// Words between two pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words; never empty.
    pub words: Vec<Word>,
    /// Intonation at the end.
    pub ending: Ending,
}

/// Splits a text into phrases; also returns its first character without a pronunciation in this language.
pub(crate) fn read(text: &str, language: Language) -> (Vec<Phrase>, Option<char>) {
    let text = spell_out(text, language);
    let mut unknown = None;
    let mut phrases = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for character in text.chars().chain(['.']) {
        let ending = match classify(character, language) {
            CharacterKind::Letter(letters) => {
                word.extend(letters.iter().filter(|&&letter| letter != '\0'));
                continue;
            }
            CharacterKind::Unknown => {
                unknown.get_or_insert(character);
                continue;
            }
            CharacterKind::Space => None,
            CharacterKind::End(ending) => Some(ending),
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

enum CharacterKind {
    /// One or two letters of the language's alphabet; unused elements are NUL.
    Letter([char; 2]),
    Space,
    End(Ending),
    Unknown,
}

fn classify(character: char, language: Language) -> CharacterKind {
    let ending = match character {
        ',' | ';' | ':' | '،' | '؛' => Some(Ending::Comma),
        '.' | '…' => Some(Ending::Statement),
        '?' | '؟' => Some(Ending::Question),
        '!' => Some(Ending::Exclamation),
        _ => None,
    };
    if let Some(ending) = ending {
        return CharacterKind::End(ending);
    }
    if character.is_whitespace() || "-–—\"“”«»()[]/".contains(character) {
        return CharacterKind::Space;
    }
    let letter = match language {
        Language::English => to_letters(character),
        Language::Persian => persian::letter(character),
    };
    letter.map_or(CharacterKind::Unknown, CharacterKind::Letter)
}

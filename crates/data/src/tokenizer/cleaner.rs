//! Chooses the cleaner of a corpus if none is configured.

use myxtts_text::{self as text, Cleaner};

use super::{CHARACTERS, Tokenizer, default_vocab_size};

/// A cleaner, and the reason if it was chosen automatically and is not the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenCleaner {
    /// The cleaner.
    pub cleaner: Cleaner,
    /// Reason for an automatic choice; `None` for the default or a configured cleaner.
    pub why: Option<&'static str>,
}

impl ChosenCleaner {
    /// The choice as one line for display; `None` if there is nothing to explain.
    pub fn line(&self) -> Option<String> {
        self.why.map(|why| format!("data.cleaner = {}: {why}", self.cleaner))
    }
}

/// Returns the cleaner for `texts` (language and transcript): the `written` one, else the one the given `vocabulary` was
/// made for, else phonemes if there is little text and at least half of it is English. Depends on nothing else, so that
/// every command decides the same for the same corpus.
pub fn choose_cleaner(
    written: Option<Cleaner>,
    vocabulary: Option<&Tokenizer>,
    texts: &[(&str, &str)],
) -> ChosenCleaner {
    let usual = |cleaner| ChosenCleaner { cleaner, why: None };
    let phonemes = |why| ChosenCleaner { cleaner: Cleaner::Phonemes, why: Some(why) };
    if let Some(cleaner) = written {
        return usual(cleaner);
    }
    match vocabulary {
        Some(vocabulary) if has_phonemes(vocabulary) => return phonemes("the vocabulary was made with it"),
        Some(_) => return usual(Cleaner::Default),
        None => {}
    }
    let english = texts.iter().filter(|(language, _)| text::canonical(language) == "en").count();
    let characters = texts.iter().map(|(_, text)| text.chars().count()).sum();
    if default_vocab_size(characters) == CHARACTERS && english > 0 && 2 * english >= texts.len() {
        return phonemes("chosen because the corpus is small and English; --cleaner default keeps letters");
    }
    usual(Cleaner::Default)
}

/// Whether a vocabulary has a token for every English phoneme; vocabularies of letters never do.
pub(super) fn has_phonemes(vocabulary: &Tokenizer) -> bool {
    let phonemes = text::alphabet("en", Cleaner::Phonemes).unwrap_or_default();
    phonemes.chars().filter(|c| c.is_alphabetic()).all(|c| vocabulary.knows(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{TrainOptions, train};

    const ENGLISH: (&str, &str) = ("en", "A quiet morning.");
    const BRITISH: (&str, &str) = ("en-GB", "The colour of the sea.");
    const PERSIAN: (&str, &str) = ("fa", "سلام");

    fn cleaner(texts: &[(&str, &str)]) -> Cleaner {
        choose_cleaner(None, None, texts).cleaner
    }

    #[test]
    fn little_english_uses_phonemes() {
        assert_eq!(cleaner(&[ENGLISH, BRITISH]), Cleaner::Phonemes);
        assert_eq!(cleaner(&[PERSIAN]), Cleaner::Default);
        assert_eq!(cleaner(&[]), Cleaner::Default);
        // Half is enough, less is not.
        assert_eq!(cleaner(&[ENGLISH, PERSIAN]), Cleaner::Phonemes);
        assert_eq!(cleaner(&[ENGLISH, PERSIAN, PERSIAN]), Cleaner::Default);
        let line = choose_cleaner(None, None, &[ENGLISH]).line().unwrap();
        assert!(line.starts_with("data.cleaner = phonemes: chosen because the corpus is small"), "{line}");
        assert_eq!(choose_cleaner(None, None, &[PERSIAN]).line(), None);
    }

    #[test]
    fn much_text_uses_letters() {
        let text = "a".repeat(999_999);
        assert_eq!(cleaner(&[("en", &text)]), Cleaner::Phonemes);
        assert_eq!(cleaner(&[("en", &text), ("en", "b")]), Cleaner::Default);
    }

    #[test]
    fn the_setting_and_the_vocabulary_take_precedence() {
        let trained = |cleaner| {
            let options = TrainOptions { vocab_size: CHARACTERS, cleaner, ..TrainOptions::default() };
            train([ENGLISH, PERSIAN], &options).unwrap()
        };
        let (letters, phonemes) = (trained(Cleaner::Default), trained(Cleaner::Phonemes));
        assert_eq!(choose_cleaner(None, Some(&letters), &[ENGLISH]).cleaner, Cleaner::Default);
        assert_eq!(choose_cleaner(None, Some(&phonemes), &[PERSIAN]).cleaner, Cleaner::Phonemes);
        for written in [Cleaner::Default, Cleaner::Coqui, Cleaner::Phonemes] {
            let chosen = choose_cleaner(Some(written), Some(&phonemes), &[ENGLISH]);
            assert_eq!((chosen.cleaner, chosen.line()), (written, None));
        }
    }
}

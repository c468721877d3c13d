//! Converts written text to spoken text: one cleaner per language.
//!
//! There are three families of cleaners:
//!
//! - [`Cleaner::Default`]: our own, linguistically correct rules.
//! - [`Cleaner::Coqui`]: reproduces the cleaner the released XTTS models were trained with, including its mistakes, so that
//!   released weights see the text they know.
//! - [`Cleaner::Phonemes`]: the default cleaner, followed by English words written as phonemes.
//!
//! ```
//! use myxtts_text::{Cleaner, clean};
//!
//! let spoken = clean("Dr. Lee paid $20.50 on May 3rd.", "en", Cleaner::Default)?;
//! assert_eq!(spoken, "doctor lee paid twenty dollars and fifty cents on may third.");
//! assert_eq!(clean("Das kostet 21 €.", "de", Cleaner::Default)?, "das kostet einundzwanzig euro.");
//! # Ok::<(), myxtts_text::TextError>(())
//! ```
//!
//! To add a language, put its number words in `numbers`, its cleaner next to the others in [`languages`] and its letters in
//! `alphabet`.

mod alphabet;
pub mod compare;
mod control;
pub mod coqui;
pub mod english;
pub mod languages;
mod normalize;
mod numbers;
mod persian;
mod punctuation;
mod rewrite;
pub mod script;
mod web;

use std::fmt;
use std::str::FromStr;

use normalize::{Joiner, normalize};
use unicode_normalization::UnicodeNormalization;

pub use alphabet::alphabet;
use control::strip_escape_sequences;

/// Family of cleaners that prepares a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cleaner {
    /// Our own: reads numbers, dates, units and abbreviations correctly in each language.
    #[default]
    Default,
    /// Matches Coqui's XTTS token by token, for its released models and vocabularies.
    Coqui,
    /// The default cleaner, followed by English words as phonemes, one character each, so that a model need not learn
    /// English spelling. Texts in other languages are cleaned as by the default.
    Phonemes,
}

impl fmt::Display for Cleaner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cleaner::Default => "default",
            Cleaner::Coqui => "coqui",
            Cleaner::Phonemes => "phonemes",
        })
    }
}

impl FromStr for Cleaner {
    type Err = TextError;

    fn from_str(name: &str) -> Result<Self, TextError> {
        match name {
            "default" => Ok(Cleaner::Default),
            "coqui" => Ok(Cleaner::Coqui),
            "phonemes" => Ok(Cleaner::Phonemes),
            _ => Err(TextError::UnknownCleaner(name.to_owned())),
        }
    }
}

/// Error returned when a text cannot be cleaned.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// No cleaner has this name.
    #[error("unknown cleaner {0:?}; use \"default\", \"coqui\" or \"phonemes\"")]
    UnknownCleaner(String),
    /// The language code is malformed.
    #[error("{0:?} is not a language code; use two or three letters such as \"en\", \"fa\", \"zh-cn\"")]
    BadLanguage(String),
    /// Coqui's cleaner cannot read the text.
    #[error(transparent)]
    Coqui(#[from] coqui::CoquiError),
    /// The text contains digits, but the language has no rules for reading numbers.
    #[error(
        "cannot read the number {number:?}: there are no number rules for language {language:?}; \
         write it out in words"
    )]
    NoNumbers {
        /// Canonical code of the requested language.
        language: String,
        /// First run of digits in the text.
        number: String,
    },
}

/// Returns the canonical code of a language: lower case, without region (`fa-IR` becomes `fa`), except Chinese, which XTTS
/// calls `zh-cn`.
pub fn canonical(language: &str) -> String {
    let lower = language.trim().to_ascii_lowercase().replace('_', "-");
    match lower.split('-').next() {
        Some("zh" | "cmn") => "zh-cn".to_owned(),
        Some("per" | "fas" | "prs") => "fa".to_owned(),
        Some(base) => base.to_owned(),
        None => lower,
    }
}

/// Cleans `text` for `language`. With the default and phoneme cleaners the result is a fixed point: cleaning it again
/// changes nothing.
pub fn clean(text: &str, language: &str, cleaner: Cleaner) -> Result<String, TextError> {
    let code = canonical(language);
    let letters = code.split('-').next().unwrap_or("");
    if !(2..=3).contains(&letters.len()) || !letters.bytes().all(|b| b.is_ascii_lowercase()) {
        return Err(TextError::BadLanguage(language.to_owned()));
    }
    let text = &*strip_escape_sequences(text);
    match cleaner {
        Cleaner::Coqui => Ok(coqui::clean(text, &code)?),
        Cleaner::Phonemes if code == "en" => Ok(english::phonemes::clean(text)),
        Cleaner::Default | Cleaner::Phonemes => match code.as_str() {
            "en" => Ok(english::clean(text)),
            "fa" => Ok(persian::clean(text)),
            _ if languages::clean("", &code).is_some() => Ok(rewrite::until_stable(text, |text| {
                // The guard above has checked that the language has rules.
                finish(&languages::clean(text, &code).unwrap_or_default(), &code)
            })),
            _ => without_rules(text, &code),
        },
    }
}

/// Last step of every default cleaner: one spelling, lower case, no unspeakable signs.
fn finish(text: &str, language: &str) -> String {
    let marks = if language == "ar" { &punctuation::ARABIC } else { &punctuation::LATIN };
    let swept = punctuation::drop_unspeakable(&normalize(text, Joiner::Drop), marks);
    let lower: String = swept.to_lowercase().nfc().collect();
    punctuation::tidy(&lower, marks)
}

/// Cleans a language that has no rules: letters and pauses are kept; digits are an error, because a model would read them
/// arbitrarily.
fn without_rules(text: &str, language: &str) -> Result<String, TextError> {
    let text = normalize(text, Joiner::Drop);
    let number: String =
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    if !number.is_empty() {
        return Err(TextError::NoNumbers { language: language.to_owned(), number });
    }
    Ok(rewrite::until_stable(&text, |text| finish(text, language)))
}

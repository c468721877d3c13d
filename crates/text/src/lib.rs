//! Text as written to text as spoken: a cleaner per language.
//!
//! Three families of cleaners: [`Cleaner::Default`] is ours and correct; [`Cleaner::Coqui`] repeats what the
//! XTTS models were trained with, mistakes included, so that released weights see the text they know;
//! [`Cleaner::Phonemes`] is the default one, with English words written as they sound.
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
//! A new language has its numbers in `numbers`, its cleaner next to the others in [`languages`] and its letters in
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
mod web;

use std::fmt;
use std::str::FromStr;

use normalize::{Joiner, normalize};
use unicode_normalization::UnicodeNormalization;

pub use alphabet::alphabet;
use control::without_sequences;

/// Which family of cleaners prepares a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cleaner {
    /// Ours: numbers, dates, units, abbreviations read correctly in each language.
    #[default]
    Default,
    /// What Coqui's XTTS does, id by id, for its released models and vocabularies.
    Coqui,
    /// The default, and then English words as their phonemes, one character each, so that a model need not learn English
    /// spelling. Texts in other languages are cleaned as by the default.
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

/// Why a text could not be cleaned.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A cleaner of that name does not exist.
    #[error("there is no cleaner {0:?}; use \"default\", \"coqui\" or \"phonemes\"")]
    UnknownCleaner(String),
    /// The language code is none.
    #[error("{0:?} is no language code; use two or three letters like \"en\", \"fa\", \"zh-cn\"")]
    BadLanguage(String),
    /// Coqui's cleaner cannot read this.
    #[error(transparent)]
    Coqui(#[from] coqui::CoquiError),
    /// The language has no rules for numbers, and the text has digits.
    #[error(
        "no rules are known for reading numbers in {language:?}, and the text has {number:?}; \
         write it out in words"
    )]
    NoNumbers {
        /// The language asked for.
        language: String,
        /// The first number in the text.
        number: String,
    },
}

/// The code a language is known by here: lower case, without region (`fa-IR` is `fa`), except Chinese,
/// which XTTS calls `zh-cn`.
pub fn canonical(language: &str) -> String {
    let lower = language.trim().to_ascii_lowercase().replace('_', "-");
    match lower.split('-').next() {
        Some("zh" | "cmn") => "zh-cn".to_owned(),
        Some("per" | "fas" | "prs") => "fa".to_owned(),
        Some(base) => base.to_owned(),
        None => lower,
    }
}

/// Cleans `text` as `language` speaks it. With the default cleaner and with phonemes the result is a fixed
/// point: cleaning it again changes nothing.
pub fn clean(text: &str, language: &str, cleaner: Cleaner) -> Result<String, TextError> {
    let code = canonical(language);
    let letters = code.split('-').next().unwrap_or("");
    if !(2..=3).contains(&letters.len()) || !letters.bytes().all(|b| b.is_ascii_lowercase()) {
        return Err(TextError::BadLanguage(language.to_owned()));
    }
    let text = &*without_sequences(text);
    match cleaner {
        Cleaner::Coqui => Ok(coqui::clean(text, &code)?),
        Cleaner::Phonemes if code == "en" => Ok(english::phonemes::clean(text)),
        Cleaner::Default | Cleaner::Phonemes => match code.as_str() {
            "en" => Ok(english::clean(text)),
            "fa" => Ok(persian::clean(text)),
            _ if languages::clean("", &code).is_some() => Ok(rewrite::settle(text, |text| {
                // It has just been asked whether there is one.
                finish(&languages::clean(text, &code).unwrap_or_default(), &code)
            })),
            _ => without_rules(text, &code),
        },
    }
}

/// What every default cleaner ends with: one spelling, lower case, no sign that cannot be said.
fn finish(text: &str, language: &str) -> String {
    let marks = if language == "ar" { &punctuation::ARABIC } else { &punctuation::LATIN };
    let swept = punctuation::sweep(&normalize(text, Joiner::Drop), marks);
    let lower: String = swept.to_lowercase().nfc().collect();
    punctuation::tidy(&lower, marks)
}

/// A language nobody has written rules for: letters and pauses are kept, digits are refused rather than
/// passed on to a model that would make something up.
fn without_rules(text: &str, language: &str) -> Result<String, TextError> {
    let text = normalize(text, Joiner::Drop);
    let number: String =
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    if !number.is_empty() {
        return Err(TextError::NoNumbers { language: language.to_owned(), number });
    }
    Ok(rewrite::settle(&text, |text| finish(text, language)))
}

//! The cleaner of coqui-tts 0.28, including its faults, for voices that were trained with it.
//!
//! Reimplemented from its observed behaviour, so that a model trained on "zwanzig Dollar" or "misess" gets the same input
//! again. Everything else should use the default cleaners, which read these correctly.

mod abbreviations;
mod expand;
mod float;
mod money;
mod python;
mod symbols;
mod words;

use thiserror::Error;

/// Error returned where the reference produces no text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CoquiError {
    /// The reference has no cleaner for this language.
    #[error(
        "coqui-tts has no cleaner for language {language:?}; use the default cleaner, or train without the coqui cleaner"
    )]
    UnknownLanguage {
        /// Requested language code.
        language: String,
    },
    /// The reference supports this language, but it needs a dictionary that is not included here.
    #[error(
        "the coqui cleaner does not support {language:?} here yet (it needs a romanisation dictionary); \
         romanise the transcripts beforehand or use the default cleaner"
    )]
    NotSupportedYet {
        /// Requested language code.
        language: String,
    },
    /// The reference raises on this number and drops the sample in training, or the number has more digits than are
    /// supported here (38; the reference reads some hundreds in English, French, German and Dutch).
    #[error(
        "coqui-tts cannot read {found:?} as {kind} in {language:?}; write it in words or use the default cleaner"
    )]
    Unreadable {
        /// The text that could not be read.
        found: String,
        /// What it was read as: a number, an ordinal, an amount.
        kind: &'static str,
        /// Language code.
        language: String,
    },
}

/// Languages of the reference that are reimplemented here.
const LANGUAGES: [&str; 14] =
    ["ar", "cs", "de", "en", "es", "fr", "hi", "hu", "it", "nl", "pl", "pt", "ru", "tr"];

/// Returns `text` exactly as the multilingual cleaners of coqui-tts 0.28 do. A region is ignored (`pt-br` is `pt`).
pub fn clean(text: &str, language: &str) -> Result<String, CoquiError> {
    let base = language.split('-').next().unwrap_or(language);
    let Some(&base) = LANGUAGES.iter().find(|known| **known == base) else {
        let language = language.to_owned();
        return Err(match base {
            "zh" | "ja" | "ko" => CoquiError::NotSupportedYet { language },
            _ => CoquiError::UnknownLanguage { language },
        });
    };
    let mut text = text.replace('"', "");
    if base == "tr" {
        text = text.replace('İ', "i").replace('Ö', "ö").replace('Ü', "ü");
    }
    // Before the numbers are read: number words keep their capitals.
    let text = text.to_lowercase();
    let text = expand::numbers(text, base)?;
    let text = abbreviations::expand(text, base);
    let text = symbols::expand(text, base);
    Ok(python::collapse_whitespace(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_unsupported_language() {
        for code in ["zh", "zh-cn", "ja", "ko"] {
            let error = clean("a", code).unwrap_err();
            assert!(matches!(error, CoquiError::NotSupportedYet { .. }) && error.to_string().contains(code));
        }
        assert_eq!(clean("a", "fa"), Err(CoquiError::UnknownLanguage { language: "fa".into() }));
        assert_eq!(clean("A 2", "pt-br").as_deref(), Ok("a dois"));
    }

    #[test]
    fn overlong_numbers_are_errors() {
        assert!(matches!(clean(&"9".repeat(400), "en"), Err(CoquiError::Unreadable { .. })));
        assert!(clean(&format!("0.{}", "9".repeat(400)), "en").is_ok());
    }
}

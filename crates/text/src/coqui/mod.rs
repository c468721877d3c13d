//! The cleaner of coqui-tts 0.28, faults included, for voices that were trained with it.
//!
//! Re-made from what it does, so that a model that has heard "zwanzig Dollar" or "misess" hears it again.
//! Everything else should use the default cleaners, which say these things correctly.

mod abbreviations;
mod expand;
mod float;
mod money;
mod python;
mod symbols;
mod words;

use thiserror::Error;

/// Why the reference gives no text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CoquiError {
    /// The reference has no cleaner for this language.
    #[error(
        "coqui-tts has no cleaner for language {language:?}; use the default cleaner, or train without the coqui cleaner"
    )]
    UnknownLanguage {
        /// As it was asked for.
        language: String,
    },
    /// The reference has one, we do not: it needs a dictionary.
    #[error(
        "the coqui cleaner does not support {language:?} here yet (it needs a romanisation dictionary); \
         romanise the transcripts beforehand or use the default cleaner"
    )]
    NotSupportedYet {
        /// As it was asked for.
        language: String,
    },
    /// The reference raises on this number, and the sample is lost in its training; or the number has more digits
    /// than we read (38, of which the reference reads some hundreds in English, French, German and Dutch).
    #[error(
        "coqui-tts cannot read {found:?} as {kind} in {language:?}; write it in words or use the default cleaner"
    )]
    Unreadable {
        /// What stood in the text.
        found: String,
        /// What it was taken for.
        kind: &'static str,
        /// The language's code.
        language: String,
    },
}

/// The languages of the reference that are re-made here.
const LANGUAGES: [&str; 14] =
    ["ar", "cs", "de", "en", "es", "fr", "hi", "hu", "it", "nl", "pl", "pt", "ru", "tr"];

/// `text` exactly as the multilingual cleaners of coqui-tts 0.28 return it. A region is ignored (`pt-br` is `pt`).
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
    // Before the numbers: words that come from them keep their capitals.
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
    fn languages_it_cannot_clean_are_named() {
        for code in ["zh", "zh-cn", "ja", "ko"] {
            let error = clean("a", code).unwrap_err();
            assert!(matches!(error, CoquiError::NotSupportedYet { .. }) && error.to_string().contains(code));
        }
        assert_eq!(clean("a", "fa"), Err(CoquiError::UnknownLanguage { language: "fa".into() }));
        assert_eq!(clean("A 2", "pt-br").as_deref(), Ok("a dois"));
    }

    #[test]
    fn numbers_without_an_end_are_errors() {
        assert!(matches!(clean(&"9".repeat(400), "en"), Err(CoquiError::Unreadable { .. })));
        assert!(clean(&format!("0.{}", "9".repeat(400)), "en").is_ok());
    }
}

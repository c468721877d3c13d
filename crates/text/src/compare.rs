//! Normalises a transcript and the output of a speech recogniser, so that they can be compared.
//!
//! 1. The language's default cleaner writes out numbers, dates, units and abbreviations, so that "12 kg" and "twelve
//!    kilograms" are equal. If the language has no rules, digits are left unchanged.
//! 2. Compatibility forms are unified (NFKC) and letters lower-cased; in Persian, Arabic ي and ك become ی and ک.
//! 3. Combining marks that are not part of a letter are dropped (Arabic vowel signs).
//! 4. Apostrophes are removed ("don't" becomes "dont"); every other character that is neither letter nor digit
//!    separates words.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::{Cleaner, canonical, clean};

/// How numerals are read before the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumeralReading {
    /// As numbers: "42" is "forty-two".
    #[default]
    Numbers,
    /// Digit by digit: "42" is "four two". For corpora of digit strings, which recognisers often write as numerals.
    Digits,
}

/// Returns the words of `text` in comparable form, separated by single spaces.
pub fn comparable(text: &str, language: &str, numerals: NumeralReading) -> String {
    let apart: String = match numerals {
        NumeralReading::Numbers => text.to_owned(),
        NumeralReading::Digits => {
            text.nfkc().flat_map(|c| if c.is_numeric() { vec![' ', c, ' '] } else { vec![c] }).collect()
        }
    };
    let spoken = clean(&apart, language, Cleaner::Default).unwrap_or(apart);
    let persian = canonical(language) == "fa";
    let mut out = String::with_capacity(spoken.len());
    for c in spoken.nfkc().flat_map(char::to_lowercase).nfc() {
        match c {
            'ي' | 'ى' if persian => out.push('ی'),
            'ك' if persian => out.push('ک'),
            '\'' | '\u{2019}' => {}
            c if is_combining_mark(c) => {}
            c if c.is_alphanumeric() => out.push(c),
            _ if out.is_empty() || out.ends_with(' ') => {}
            _ => out.push(' '),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comparison_ignores_case_punctuation_and_numerals() {
        let same = |a: &str, b: &str, language: &str| {
            let [a, b] = [a, b].map(|text| comparable(text, language, NumeralReading::Numbers));
            assert_eq!(a, b);
        };
        same("What's the TIME, Mr. Brown?", "whats the time mister brown", "en");
        same("It costs 55 dollars.", "it costs fifty five dollars", "en");
        same("“Hello” — world…", "hello world", "en");
        same("می‌روم ۵ بار", "می روم پنج بار", "fa");
        same("كتاب عربي", "کتاب عربی", "fa");
        assert_eq!(comparable("Ça va, Zoé?", "fr", NumeralReading::Numbers), "ça va zoé");
        assert_eq!(comparable("tlh 42", "tlh", NumeralReading::Numbers), "tlh 42", "no rules: as it is");
        assert_eq!(comparable("...", "en", NumeralReading::Numbers), "");
    }

    #[test]
    fn digit_strings_are_read_one_by_one() {
        for heard in ["42359", "4 2 3 5 9", "4-2-3-5-9", "Four two three five nine."] {
            assert_eq!(
                comparable(heard, "en", NumeralReading::Digits),
                "four two three five nine",
                "{heard}"
            );
        }
        assert_ne!(comparable("42359", "en", NumeralReading::Numbers), "four two three five nine");
    }

    proptest! {
        #[test]
        fn comparable_text_is_words_and_single_spaces(text in any::<String>(), digits: bool) {
            let numerals = if digits { NumeralReading::Digits } else { NumeralReading::Numbers };
            for language in ["en", "fa", "de", "xx", ""] {
                let found = comparable(&text, language, numerals);
                prop_assert!(found.chars().all(|c| c == ' ' || c.is_alphanumeric()), "{found:?}");
                prop_assert!(!found.contains("  ") && found == found.trim(), "{found:?}");
            }
        }
    }
}

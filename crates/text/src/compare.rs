//! What two texts are compared by: what was to be said, and what a recogniser heard.
//!
//! 1. Numbers, dates, units and abbreviations are written out by the language's default cleaner, so that "12 kg" and
//!    "twelve kilograms" are the same. Where the language has no rules, digits stay as they are.
//! 2. Compatibility forms are unified (NFKC), letters lower-cased; Arabic ي and ك become Persian ی and ک in Persian.
//! 3. Marks above and below letters that are not part of them are dropped (Arabic vowel signs).
//! 4. Apostrophes vanish ("don't" is "dont"), everything else that is neither letter nor digit separates words.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::{Cleaner, canonical, clean};

/// How numerals are read before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numerals {
    /// As numbers: "42" is "forty-two".
    #[default]
    Numbers,
    /// Digit by digit: "42" is "four two". For corpora of digit strings, which a recogniser likes to write as numerals.
    Digits,
}

/// The words of a text, separated by single spaces, as they are compared.
pub fn comparable(text: &str, language: &str, numerals: Numerals) -> String {
    let apart: String = match numerals {
        Numerals::Numbers => text.to_owned(),
        Numerals::Digits => {
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
    fn case_punctuation_and_digits_do_not_count() {
        let same = |a: &str, b: &str, language: &str| {
            let [a, b] = [a, b].map(|text| comparable(text, language, Numerals::Numbers));
            assert_eq!(a, b);
        };
        same("What's the TIME, Mr. Brown?", "whats the time mister brown", "en");
        same("It costs 55 dollars.", "it costs fifty five dollars", "en");
        same("“Hello” — world…", "hello world", "en");
        same("می‌روم ۵ بار", "می روم پنج بار", "fa");
        same("كتاب عربي", "کتاب عربی", "fa");
        assert_eq!(comparable("Ça va, Zoé?", "fr", Numerals::Numbers), "ça va zoé");
        assert_eq!(comparable("tlh 42", "tlh", Numerals::Numbers), "tlh 42", "no rules: as it is");
        assert_eq!(comparable("...", "en", Numerals::Numbers), "");
    }

    #[test]
    fn digit_strings_are_read_one_by_one() {
        for heard in ["42359", "4 2 3 5 9", "4-2-3-5-9", "Four two three five nine."] {
            assert_eq!(comparable(heard, "en", Numerals::Digits), "four two three five nine", "{heard}");
        }
        assert_ne!(comparable("42359", "en", Numerals::Numbers), "four two three five nine");
    }

    proptest! {
        #[test]
        fn what_is_compared_is_words_and_single_spaces(text in any::<String>(), digits: bool) {
            let numerals = if digits { Numerals::Digits } else { Numerals::Numbers };
            for language in ["en", "fa", "de", "xx", ""] {
                let found = comparable(&text, language, numerals);
                prop_assert!(found.chars().all(|c| c == ' ' || c.is_alphanumeric()), "{found:?}");
                prop_assert!(!found.contains("  ") && found == found.trim(), "{found:?}");
            }
        }
    }
}

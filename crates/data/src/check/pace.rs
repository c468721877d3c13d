//! How fast people speak: the least time a text needs, whatever scripts it mixes.

use crate::dataset::script::Script;

/// Letters of a script that the fastest readers say in a second. Ordinary reading is at about 40 % of
/// these figures; syllable and word signs carry more sound per sign than letters do.
fn fastest(script: Script) -> f64 {
    match script {
        Script::Latin | Script::Cyrillic => 33.0,
        Script::Arabic | Script::Devanagari => 28.0,
        Script::Kana => 18.0,
        Script::Hangul => 14.0,
        Script::Han => 12.0,
    }
}

/// A digit is said as a word.
const DIGITS_A_SECOND: f64 = 15.0;

/// What a text amounts to when it is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Letters and digits.
    pub letters: usize,
    /// Seconds that the fastest reader needs.
    pub least_seconds: f64,
}

impl Pace {
    /// Of a text as it is spoken.
    pub fn of(text: &str) -> Self {
        let mut pace = Pace::default();
        for c in text.chars() {
            let rate = match Script::of(c) {
                Some(script) => fastest(script),
                None if c.is_numeric() => DIGITS_A_SECOND,
                None => continue,
            };
            pace.letters += 1;
            pace.least_seconds += 1.0 / rate;
        }
        pace
    }

    /// Letters a second that this text's fastest reader reaches.
    pub fn fastest(&self) -> f64 {
        self.letters as f64 / self.least_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_texts_add_up() {
        assert_eq!(Pace::of("...").letters, 0);
        let close = |text, seconds: f64| (Pace::of(text).least_seconds - seconds).abs() < 1e-9;
        assert!(close("ab, c!", 3.0 / 33.0));
        assert!(close("北京", 2.0 / 12.0));
        assert!(close("a1", 1.0 / 33.0 + 1.0 / 15.0));
        assert!((Pace::of("abc").fastest() - 33.0).abs() < 1e-9);
    }
}

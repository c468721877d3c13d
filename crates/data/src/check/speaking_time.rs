//! Speaking rates: the minimum time a text needs, for any mix of scripts.

use myxtts_text::script::Script;

/// Letters of a script per second at the fastest speaking rate. Ordinary reading has about 40 % of it; syllabic and
/// logographic signs take longer per sign than letters.
fn fastest_rate(script: Script) -> f64 {
    match script {
        Script::Latin | Script::Cyrillic => 33.0,
        Script::Arabic | Script::Devanagari => 28.0,
        Script::Kana => 18.0,
        Script::Hangul => 14.0,
        Script::Han => 12.0,
    }
}

/// A digit is spoken as a word.
const DIGITS_PER_SECOND: f64 = 15.0;

/// The minimum time needed to speak a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpeakingTime {
    /// Number of letters and digits.
    pub letters: usize,
    /// Seconds needed at the fastest speaking rate.
    pub min_seconds: f64,
}

impl SpeakingTime {
    /// Computes the speaking time of a cleaned text.
    pub fn from_text(text: &str) -> Self {
        let mut time = SpeakingTime::default();
        for c in text.chars() {
            let rate = match Script::of(c) {
                Some(script) => fastest_rate(script),
                None if c.is_numeric() => DIGITS_PER_SECOND,
                None => continue,
            };
            time.letters += 1;
            time.min_seconds += 1.0 / rate;
        }
        time
    }

    /// Letters per second at the fastest speaking rate of this text.
    pub fn fastest(&self) -> f64 {
        self.letters as f64 / self.min_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_in_a_mixed_text_add_up() {
        assert_eq!(SpeakingTime::from_text("...").letters, 0);
        let close = |text, seconds: f64| (SpeakingTime::from_text(text).min_seconds - seconds).abs() < 1e-9;
        assert!(close("ab, c!", 3.0 / 33.0));
        assert!(close("北京", 2.0 / 12.0));
        assert!(close("a1", 1.0 / 33.0 + 1.0 / 15.0));
        assert!((SpeakingTime::from_text("abc").fastest() - 33.0).abs() < 1e-9);
    }
}

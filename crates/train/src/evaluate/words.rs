//! Word and character error rates: the minimum number of insertions, deletions and substitutions that turn the transcript
//! into the text, divided by the length of the text. Both are first normalised by [`myxtts_text::compare`]; characters are
//! counted without spaces.

use myxtts_text::compare::{NumeralReading, comparable};
use serde::{Deserialize, Serialize};

/// Number of errors in a text of a given length. There can be more errors than words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Insertions, deletions and substitutions.
    pub errors: usize,
    /// Words or characters of the text.
    pub of: usize,
}

impl Errors {
    /// Errors per word or character. For an empty text, the number of errors.
    pub fn rate(&self) -> f64 {
        self.errors as f64 / self.of.max(1) as f64
    }
}

/// Errors of one utterance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Word errors.
    pub words: Errors,
    /// Character errors, without spaces.
    pub characters: Errors,
}

/// Compares a transcript with the text.
pub fn score(wanted: &str, heard: &str, language: &str, numerals: NumeralReading) -> Score {
    let [wanted, heard] = [wanted, heard].map(|text| comparable(text, language, numerals));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let characters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<Vec<char>>();
    let of = |count| move |errors| Errors { errors, of: count };
    let (a, b) = (words(&wanted), words(&heard));
    let (c, d) = (characters(&wanted), characters(&heard));
    Score { words: of(a.len())(distance(&a, &b)), characters: of(c.len())(distance(&c, &d)) }
}

/// Levenshtein distance.
pub fn distance<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn english(wanted: &str, heard: &str) -> Score {
        score(wanted, heard, "en", NumeralReading::Numbers)
    }

    #[test]
    fn known_pairs_have_known_errors() {
        let found = english("The cat sat on 2 mats.", "the cat sat on two mats");
        assert_eq!(
            (found.words, found.characters),
            (Errors { errors: 0, of: 6 }, Errors { errors: 0, of: 18 })
        );
        let found = english("the cat sat", "a cat cat sat there");
        assert_eq!(found.words, Errors { errors: 3, of: 3 });
        assert_eq!(found.words.rate(), 1.0);
        let found = english("hello world", "");
        assert_eq!((found.words.errors, found.characters.errors), (2, 10));
        assert_eq!(english("", "uh huh").words, Errors { errors: 2, of: 0 });
        assert_eq!(english("kitten", "sitting").characters.errors, 3);
        assert!(english("one", "one two three four").words.rate() > 1.0);
    }

    proptest! {
        #[test]
        fn a_distance_is_a_metric(
            a in prop::collection::vec(0u8..4, 0..9),
            b in prop::collection::vec(0u8..4, 0..9),
            c in prop::collection::vec(0u8..4, 0..9),
        ) {
            let d = |x: &[u8], y: &[u8]| distance(x, y);
            prop_assert_eq!(d(&a, &a), 0);
            prop_assert_eq!(d(&a, &b), d(&b, &a));
            prop_assert!(d(&a, &b) <= d(&a, &c) + d(&c, &b));
            prop_assert!(d(&a, &b) >= a.len().abs_diff(b.len()) && d(&a, &b) <= a.len().max(b.len()));
            prop_assert_eq!(d(&a, &b) == 0, a == b);
        }

        #[test]
        fn one_change_is_one_error(words in prop::collection::vec("[bo]{3,6}", 1..8), at in 0usize..8) {
            let at = at % words.len();
            let mut heard = words.clone();
            heard[at] = "0nothing".replace('0', "xyzzy");
            let found = english(&words.join(" "), &heard.join(" "));
            prop_assert_eq!(found.words.errors, 1);
            heard.remove(at);
            prop_assert_eq!(english(&words.join(" "), &heard.join(" ")).words.errors, 1);
        }
    }
}

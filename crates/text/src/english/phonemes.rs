//! The `phonemes` cleaner: cleaned English with every word written as its sounds, one character each.
//!
//! Spaces and pauses stay as the default cleaner leaves them; a hyphen inside a word becomes a space, and apostrophes
//! are part of the pronunciation. Words already written in phonemes are kept, which makes the cleaner idempotent and
//! lets users spell out the pronunciation of a name. Letters of other scripts are kept as well: no letter is dropped.

use super::pronunciation::{
    Sound, Stress, is_phoneme, is_unstressed, letter_name, pronounce, sounds, to_letters,
};
use crate::punctuation::{LATIN, tidy};

/// A piece of a cleaned text.
#[derive(Debug, PartialEq)]
enum Piece {
    /// Lower-case letters and apostrophes.
    Word(String),
    /// A character kept unchanged: a space, a pause, a letter of another script, a phoneme.
    Kept(char),
}

/// Writes English text as phonemes, as described in the module documentation. Idempotent.
pub fn clean(text: &str) -> String {
    let mut cleaned = pass(text);
    // Another pass may change the output: single sounds between full stops look like initials ("ə.ɝ."), and marks may
    // meet once a dropped character no longer separates them.
    for _ in 0..PASSES {
        let again = pass(&cleaned);
        if again == cleaned {
            break;
        }
        cleaned = again;
    }
    cleaned
}

/// Maximum number of further passes. Usually one is made, and it changes nothing.
const PASSES: usize = 8;

fn pass(text: &str) -> String {
    let pieces = split(&super::clean(text));
    let said: Vec<Vec<Sound>> = (0..pieces.len()).map(|at| say(&pieces, at)).collect();
    let mut out = String::with_capacity(2 * pieces.len());
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Kept('-') => out.push(' '),
            Piece::Kept(c) => out.push(*c),
            Piece::Word(word) => {
                let next = said.get(at + 2).and_then(|next| next.first());
                let before_vowel = pieces.get(at + 1) == Some(&Piece::Kept(' '))
                    && next.is_some_and(|sound| sound.is_vowel());
                match word.as_str() {
                    "the" if before_vowel => {
                        out.extend(sounds("DH IY").iter().map(|sound| sound.character()))
                    }
                    _ => out.extend(said[at].iter().map(|sound| sound.character())),
                }
            }
        }
    }
    tidy(&out, &LATIN)
}

fn split(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut run = String::new();
    for c in text.chars() {
        if is_phoneme(c) || to_letters(c).is_some() {
            run.push(c);
        } else {
            read_run(&run, &mut pieces);
            run.clear();
            pieces.push(Piece::Kept(c));
        }
    }
    read_run(&run, &mut pieces);
    pieces
}

/// Splits a run of letters and phonemes: either one word in phonemes, or words in letters, with characters that are not
/// English letters kept between them.
fn read_run(run: &str, pieces: &mut Vec<Piece>) {
    if run.chars().all(is_phoneme) && !run.is_ascii() {
        pieces.extend(run.chars().map(Piece::Kept));
        return;
    }
    let mut word = String::new();
    let finish = |word: &mut String, pieces: &mut Vec<Piece>| {
        let word = std::mem::take(word);
        let word = word.trim_matches('\'');
        if !word.is_empty() {
            pieces.push(Piece::Word(word.to_owned()));
        }
    };
    for c in run.chars() {
        match to_letters(c) {
            Some(letters) => word.extend(letters.into_iter().filter(|&letter| letter != '\0')),
            None => {
                finish(&mut word, pieces);
                pieces.push(Piece::Kept(c));
            }
        }
    }
    finish(&mut word, pieces);
}

/// Returns the sounds of a word in its context; empty if the piece is not a word.
fn say(pieces: &[Piece], at: usize) -> Vec<Sound> {
    let Piece::Word(word) = &pieces[at] else { return Vec::new() };
    if let Some(letter) = single(&pieces[at])
        && is_name(pieces, at, letter)
    {
        return letter_name(letter);
    }
    let before_hyphen = pieces.get(at + 1) == Some(&Piece::Kept('-'));
    match word.as_str() {
        // As in "re-elect"; the dictionary has the musical note.
        "re" if before_hyphen => sounds("R IY"),
        word if is_unstressed(word) => {
            pronounce(word).into_iter().map(|sound| sound.with_stress(Stress::None)).collect()
        }
        word => pronounce(word),
    }
}

fn single(piece: &Piece) -> Option<char> {
    match piece {
        Piece::Word(word) if word.len() == 1 => word.chars().next(),
        _ => None,
    }
}

/// Returns whether a single letter is read by its name. «i» and «a» are words too: «a» is a letter among other letters
/// ("u s a", "b a", "a i") and before a hyphen ("a-list"), but not in "a b movie".
fn is_name(pieces: &[Piece], at: usize, letter: char) -> bool {
    let joined = |piece: Option<&Piece>| matches!(piece, Some(Piece::Kept(' ' | '-')));
    let before = |at: usize| {
        at.checked_sub(2)
            .filter(|_| joined(pieces.get(at - 1)))
            .and_then(|at| Some((at, single(&pieces[at])?)))
    };
    let after =
        |at: usize| Some((at + 2, single(pieces.get(at + 2).filter(|_| joined(pieces.get(at + 1)))?)?));
    let hyphen = |at: Option<usize>| at.and_then(|at| pieces.get(at)) == Some(&Piece::Kept('-'));
    let (last, next) = (before(at), after(at));
    match letter {
        'a' => {
            let among =
                last.is_some() || next.is_some_and(|(at, letter)| letter == 'i' || after(at).is_some());
            among || hyphen(Some(at + 1)) && !hyphen(at.checked_sub(1))
        }
        'i' => last.is_some_and(|(_, letter)| letter != 'i') || next.is_some_and(|(_, letter)| letter != 'a'),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentences_are_written_as_they_sound() {
        for (text, expected) in [
            ("Hello, world!", "həlȏ, wɝld!"),
            ("The cat sat on the mat.", "ðə kæt sæt ᴀn ðə mæt."),
            ("The apple; the 3 cats?", "ðȉ æpəl; ðə θɹȋ kæts?"),
            ("It was a quiet, cold morning…", "ɨt wᴀz ə kwȃət, kȏld mɔɹnɨŋ…"),
            (
                "Dr. Smith's twenty-one choices (all of them) — enjoyed.",
                "dɑktɚ smɪθs twɛntȉ wʌn ʧœsəz (ɔl əv ðᴇm) — ᴇnʤœd.",
            ),
            ("I can't measure the judge's thirst.", "ȁ kænt mɛʒɚ ðə ʤʌʤɨz θɝst."),
            // Letters read by their names, and «a» as a word or a letter.
            ("The BBC in the USA", "ðə bȉbȉsȋ ɨn ðə jȕᴇsȇ"),
            ("b b c, u s a, a b movie, plan a-b", "bȋ bȋ sȋ, jȗ ɛs ȇ, ə bȋ mȗvȉ, plæn ȇ bȋ"),
            ("an A.I. I know", "ᴁn ȇ ȃ ȁ nȏ"),
            // Accents and other scripts.
            ("Café naïve, мир!", "kəfȇ nȁȋv, мир!"),
            ("encyclopædia", "ɨnsȁkləpȋdȉə"),
            ("re-elect the co-op", "ɹȉ ɨlɛkt ðə kȏ ɑp"),
            ("Hmm, mm.", "həm, əm."),
            ("həlȏ Tom", "həlȏ tɑm"),
            ("", ""),
        ] {
            let once = clean(text);
            assert_eq!(once, expected, "{text}");
            assert_eq!(clean(&once), once, "{text}");
        }
    }

    #[test]
    fn cleans_long_and_hostile_words() {
        for fragment in
            ["a.ur.", "a", "ab", "a's", "'s", "s'd", "æ", "é\u{301}", "re-", "a b ", "ʃc", "woodcut", "ж"]
        {
            let text = fragment.repeat(4_000);
            let once = clean(&text);
            assert!(once.len() < 40 * text.len());
            assert_eq!(clean(&once), once, "{fragment}");
        }
    }

    proptest! {
        #[test]
        fn cleaning_is_idempotent(text in prop_oneof![
            any::<String>(),
            "[a-z'é æœʃəȃкж.,!?()-]{0,40}",
            "([a-z]{1,3}[ .-]){0,12}",
        ]) {
            let once = clean(&text);
            prop_assert_eq!(clean(&once), once);
        }

        #[test]
        fn english_output_is_within_the_alphabet(text in "[a-zA-Z0-9é', .!?;:$%-]{0,40}") {
            let cleaned = clean(&text);
            let strange: String = cleaned.chars().filter(|&c| !super::super::pronunciation::ALPHABET.contains(c)).collect();
            prop_assert!(strange.is_empty(), "{text:?}: {cleaned:?} has {strange:?}");
        }
    }
}

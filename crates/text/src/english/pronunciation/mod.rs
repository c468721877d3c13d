//! Pronunciation of English words: looked up, assembled from parts, or derived by rules.
//!
//! ```text
//! word -> dictionary -> parts (endings, prefixes, compounds) -> stress (rules) -> Sounds
//! ```
//!
//! The `phonemes` cleaner writes the sounds as characters; the synthesiser of the demo corpus renders them.

mod dictionary;
mod parts;
pub mod rules;
mod sound;
mod stress;

pub use dictionary::dictionary;
pub use parts::{past, plural};
pub(crate) use sound::sounds;
pub(crate) use sound::{ALPHABET, is_phoneme};
pub use sound::{Sound, Stress};

/// Function words of the dictionary that are spoken without stress.
#[rustfmt::skip]
const UNSTRESSED: [&str; 60] = [
    "a", "am", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "can", "could", "did", "do", "does",
    "for", "from", "had", "has", "have", "he", "her", "him", "his", "i", "if", "in", "into", "is", "it", "its", "may",
    "might", "must", "my", "nor", "of", "on", "or", "our", "shall", "she", "should", "than", "that", "the", "their",
    "them", "they", "through", "to", "us", "was", "we", "were", "with", "would", "you",
];

/// Names of the letters from a to z.
#[rustfmt::skip]
const LETTER_NAMES: [&str; 26] = [
    "EY1", "B IY1", "S IY1", "D IY1", "IY1", "EH1 F", "JH IY1", "EY1 CH", "AY1", "JH EY1", "K EY1", "EH1 L", "EH1 M",
    "EH1 N", "OW1", "P IY1", "K Y UW1", "AA1 R", "EH1 S", "T IY1", "Y UW1", "V IY1", "D AH1 B AX L Y UW", "EH1 K S",
    "W AY1", "Z IY1",
];

/// Returns whether a word is an unstressed function word, like «of» and «to».
pub fn is_unstressed(word: &str) -> bool {
    UNSTRESSED.contains(&word.trim_matches('\''))
}

/// Converts a character to lower-case English letters, padded with `\0`; `None` if it has no sound in English.
pub fn to_letters(character: char) -> Option<[char; 2]> {
    match character {
        'a'..='z' | '\'' => Some([character, '\0']),
        'A'..='Z' => Some([character.to_ascii_lowercase(), '\0']),
        '’' | '‘' => Some(['\'', '\0']),
        // Combining accents are silent and need no warning.
        '\u{300}'..='\u{36f}' => Some(['\0', '\0']),
        'æ' | 'Æ' => Some(['a', 'e']),
        'œ' | 'Œ' => Some(['o', 'e']),
        'ø' | 'Ø' => Some(['o', '\0']),
        'ß' => Some(['s', 's']),
        'ł' | 'Ł' => Some(['l', '\0']),
        _ => {
            // A letter with an accent is read as the base letter.
            let mut base = None;
            unicode_normalization::char::decompose_canonical(character, |part| {
                base.get_or_insert(part);
            });
            base.filter(|base| base.is_ascii_alphabetic()).map(|base| [base.to_ascii_lowercase(), '\0'])
        }
    }
}

/// Sounds of the name of a letter from a to z, stressed; empty for any other character.
pub(crate) fn letter_name(letter: char) -> Vec<Sound> {
    let names = u32::from(letter).checked_sub(u32::from('a')).and_then(|at| LETTER_NAMES.get(at as usize));
    names.map_or_else(Vec::new, |names| sounds(names))
}

/// Returns the sounds of a word of lower-case letters and apostrophes, with its stress. Empty if it has no letter; otherwise
/// it has at least one vowel: «hm» and the like get a schwa.
pub fn pronounce(word: &str) -> Vec<Sound> {
    let known = dictionary().sounds(word).or_else(|| dictionary().sounds(word.trim_matches('\'')));
    let known = known.or_else(|| parts::contracted(word, from_parts));
    let mut said = known.unwrap_or_else(|| from_parts(word));
    if let Some(last) = said.len().checked_sub(1)
        && !said.iter().any(|sound| sound.is_vowel())
    {
        said.splice(last..last, sounds("AX"));
    }
    said
}

/// Pronounces a word without apostrophes from its parts.
fn from_parts(word: &str) -> Vec<Sound> {
    let plain: String = word.chars().filter(char::is_ascii_lowercase).collect();
    if let Some(said) = dictionary().sounds(&plain).or_else(|| parts::inflected(&plain)) {
        return said;
    }
    if !plain.bytes().any(rules::is_vowel) {
        return spelled(&plain);
    }
    parts::compound(&plain).unwrap_or_else(|| stress::pronounce_by_rules(&plain))
}

/// Spells letters without a vowel by their names. Abbreviations are stressed on the last letter.
fn spelled(letters: &str) -> Vec<Sound> {
    let mut named: Vec<Sound> = letters.chars().flat_map(letter_name).collect();
    let last = named.iter().rposition(|sound| sound.stress() == Stress::Primary);
    for (at, sound) in named.iter_mut().enumerate() {
        if sound.stress() == Stress::Primary && Some(at) != last {
            *sound = sound.with_stress(Stress::Secondary);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(word: &str) -> String {
        pronounce(word).iter().map(|sound| sound.character()).collect()
    }

    #[test]
    fn words_are_looked_up_whole_or_in_parts() {
        for (word, expected) in [
            ("colonel", "kɝnəl"),
            ("don't", "dȏnt"),
            // Possessives and plurals take the voicing of the sound before them.
            ("kerfoot's", "kɝfᵿts"),
            ("caslon's", "kæslənz"),
            ("thorpe's", "θɔɹps"),
            ("pearce's", "pɪɹsɨz"),
            ("founts", "fꜷnts"),
            ("unmute", "ʌnmjȗt"),
            ("unmuted", "ʌnmjȗtɨd"),
            ("shapeliness", "ʃȇplȉnəs"),
            ("brickwork", "bɹɪkwɚk"),
            ("woodcutters", "wʊdkʌtɚz"),
            ("touchtone", "tʌʧtȍn"),
            // Spelled, where there is no vowel.
            ("pbx", "pȉbȉɛks"),
            // Derived by the rules.
            ("bodoni", "bɑdənȉ"),
            // Without a vowel in letters or in the dictionary.
            ("hm", "həm"),
            ("sh", "əʃ"),
            ("'", ""),
            ("", ""),
        ] {
            assert_eq!(said(word), expected, "{word}");
        }
    }

    #[test]
    fn tables_contain_only_known_sounds() {
        assert!(('a'..='z').all(|letter| !letter_name(letter).is_empty()));
        assert!(letter_name('1').is_empty() && letter_name('é').is_empty());
        for ending in ["s", "es", "ies", "ed", "d", "ing", "ly", "er", "est", "ness", "less", "ful", "able"] {
            assert!(!pronounce(&format!("zorbat{ending}")).is_empty());
        }
        for joined in ["'s", "n't", "'ll", "'d", "'ve", "'re"] {
            assert!(!pronounce(&format!("zorbat{joined}")).is_empty());
        }
        for prefix in ["un", "re", "non", "mis", "over", "dis", "pre", "anti", "inter", "super", "under"] {
            assert!(!pronounce(&format!("{prefix}house")).is_empty());
        }
        assert!(UNSTRESSED.iter().all(|word| dictionary().find(word).is_some()));
    }
}

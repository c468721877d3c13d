//! How English words sound: looked up, put together of parts, or read by rules.
//!
//! ```text
//! word -> dictionary -> parts (endings, beginnings, compounds) -> stress (rules) -> Sounds
//! ```
//!
//! The `phonemes` cleaner writes the sounds as characters; the demo's synthesiser says them.

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

/// Words of the dictionary that lean on their neighbours: said without stress.
#[rustfmt::skip]
const UNSTRESSED: [&str; 60] = [
    "a", "am", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "can", "could", "did", "do", "does",
    "for", "from", "had", "has", "have", "he", "her", "him", "his", "i", "if", "in", "into", "is", "it", "its", "may",
    "might", "must", "my", "nor", "of", "on", "or", "our", "shall", "she", "should", "than", "that", "the", "their",
    "them", "they", "through", "to", "us", "was", "we", "were", "with", "would", "you",
];

/// The names of the letters from a to z.
#[rustfmt::skip]
const LETTER_NAMES: [&str; 26] = [
    "EY1", "B IY1", "S IY1", "D IY1", "IY1", "EH1 F", "JH IY1", "EY1 CH", "AY1", "JH EY1", "K EY1", "EH1 L", "EH1 M",
    "EH1 N", "OW1", "P IY1", "K Y UW1", "AA1 R", "EH1 S", "T IY1", "Y UW1", "V IY1", "D AH1 B AX L Y UW", "EH1 K S",
    "W AY1", "Z IY1",
];

/// Whether a word leans on its neighbours, as «of» and «to» do.
pub fn is_unstressed(word: &str) -> bool {
    UNSTRESSED.contains(&word.trim_matches('\''))
}

/// A letter of the English alphabet in lower case; `None` where it has no sound in English.
pub fn letter(character: char) -> Option<[char; 2]> {
    match character {
        'a'..='z' | '\'' => Some([character, '\0']),
        'A'..='Z' => Some([character.to_ascii_lowercase(), '\0']),
        '’' | '‘' => Some(['\'', '\0']),
        // Combining accents: nothing to hear, nothing to report.
        '\u{300}'..='\u{36f}' => Some(['\0', '\0']),
        'æ' | 'Æ' => Some(['a', 'e']),
        'œ' | 'Œ' => Some(['o', 'e']),
        'ø' | 'Ø' => Some(['o', '\0']),
        'ß' => Some(['s', 's']),
        'ł' | 'Ł' => Some(['l', '\0']),
        _ => {
            // A letter with an accent is read as the letter.
            let mut base = None;
            unicode_normalization::char::decompose_canonical(character, |part| {
                base.get_or_insert(part);
            });
            base.filter(|base| base.is_ascii_alphabetic()).map(|base| [base.to_ascii_lowercase(), '\0'])
        }
    }
}

/// The name of a letter from a to z, stressed; empty for any other.
pub(crate) fn letter_name(letter: char) -> Vec<Sound> {
    let names = u32::from(letter).checked_sub(u32::from('a')).and_then(|at| LETTER_NAMES.get(at as usize));
    names.map_or_else(Vec::new, |names| sounds(names))
}

/// The sounds of a word of lower-case letters and apostrophes, each word with its stress; empty where it has no letter,
/// otherwise with at least one vowel: «hm» and the like get a schwa.
pub fn pronounce(word: &str) -> Vec<Sound> {
    let known = dictionary().sounds(word).or_else(|| dictionary().sounds(word.trim_matches('\'')));
    let known = known.or_else(|| parts::contracted(word, put_together));
    let mut said = known.unwrap_or_else(|| put_together(word));
    if let Some(last) = said.len().checked_sub(1)
        && !said.iter().any(|sound| sound.is_vowel())
    {
        said.splice(last..last, sounds("AX"));
    }
    said
}

/// A word of its parts, apostrophes aside.
fn put_together(word: &str) -> Vec<Sound> {
    let plain: String = word.chars().filter(char::is_ascii_lowercase).collect();
    if let Some(said) = dictionary().sounds(&plain).or_else(|| parts::inflected(&plain)) {
        return said;
    }
    if !plain.bytes().any(rules::is_vowel) {
        return spelled(&plain);
    }
    parts::compound(&plain).unwrap_or_else(|| stress::by_rule(&plain))
}

/// Letters that no vowel makes a word of, by their names. Abbreviations are stressed on the last letter.
fn spelled(letters: &str) -> Vec<Sound> {
    let mut named: Vec<Sound> = letters.chars().flat_map(letter_name).collect();
    let last = named.iter().rposition(|sound| sound.stress() == Stress::Primary);
    for (at, sound) in named.iter_mut().enumerate() {
        if sound.stress() == Stress::Primary && Some(at) != last {
            *sound = sound.stressed(Stress::Secondary);
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
    fn words_come_from_the_dictionary_whole_or_in_parts() {
        for (word, expected) in [
            ("colonel", "kɝnəl"),
            ("don't", "dȏnt"),
            // possessives and plurals take the voice of what stands before them
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
            // spelled, where there is no vowel
            ("pbx", "pȉbȉɛks"),
            // by the rules
            ("bodoni", "bɑdənȉ"),
            // without a vowel in letters or in the dictionary
            ("hm", "həm"),
            ("sh", "əʃ"),
            ("'", ""),
            ("", ""),
        ] {
            assert_eq!(said(word), expected, "{word}");
        }
    }

    #[test]
    fn every_table_names_sounds_of_the_inventory() {
        assert!(('a'..='z').all(|letter| !letter_name(letter).is_empty()));
        assert!(letter_name('1').is_empty() && letter_name('é').is_empty());
        for ending in ["s", "es", "ies", "ed", "d", "ing", "ly", "er", "est", "ness", "less", "ful", "able"] {
            assert!(!pronounce(&format!("zorbat{ending}")).is_empty());
        }
        for joined in ["'s", "n't", "'ll", "'d", "'ve", "'re"] {
            assert!(!pronounce(&format!("zorbat{joined}")).is_empty());
        }
        for beginning in ["un", "re", "non", "mis", "over", "dis", "pre", "anti", "inter", "super", "under"] {
            assert!(!pronounce(&format!("{beginning}house")).is_empty());
        }
        assert!(UNSTRESSED.iter().all(|word| dictionary().find(word).is_some()));
    }
}

//! The sounds of English as in the dictionary, and the character that the `phonemes` cleaner writes for each.

/// Vowels by their dictionary names, each with its stressed and unstressed character.
///
/// Each sound is one character, so that a vocabulary of characters has one token per sound. No vowel uses a plain English
/// letter, so that words in phonemes can be distinguished from words in letters. IPA characters are used where IPA has a
/// single one: plain for stressed vowels, small or turned for the others; diphthongs and long vowels are letters with an
/// inverted breve when stressed and with a double grave when not.
const VOWELS: [(&str, char, char); 15] = [
    ("AA", 'ɑ', 'ᴀ'), // father
    ("AE", 'æ', 'ᴁ'), // cat
    ("AH", 'ʌ', 'ə'), // cut, about
    ("AO", 'ɔ', 'ᴐ'), // law
    ("AW", 'ꜷ', 'ꜵ'), // now
    ("AY", 'ȃ', 'ȁ'), // my
    ("EH", 'ɛ', 'ᴇ'), // bed
    ("ER", 'ɝ', 'ɚ'), // bird, butter
    ("EY", 'ȇ', 'ȅ'), // day
    ("IH", 'ɪ', 'ɨ'), // sit
    ("IY", 'ȋ', 'ȉ'), // see, happy
    ("OW", 'ȏ', 'ȍ'), // go
    ("OY", 'œ', 'ɶ'), // boy
    ("UH", 'ʊ', 'ᵿ'), // book
    ("UW", 'ȗ', 'ȕ'), // too
];

/// Consonants by their dictionary names, with their characters.
#[rustfmt::skip]
const CONSONANTS: [(&str, char); 24] = [
    ("B", 'b'), ("CH", 'ʧ'), ("D", 'd'), ("DH", 'ð'), ("F", 'f'), ("G", 'g'), ("HH", 'h'), ("JH", 'ʤ'), ("K", 'k'),
    ("L", 'l'), ("M", 'm'), ("N", 'n'), ("NG", 'ŋ'), ("P", 'p'), ("R", 'ɹ'), ("S", 's'), ("SH", 'ʃ'), ("T", 't'),
    ("TH", 'θ'), ("V", 'v'), ("W", 'w'), ("Y", 'j'), ("Z", 'z'), ("ZH", 'ʒ'),
];

/// All characters of [`Sound::character`], and those that the cleaner leaves between words.
pub(crate) const ALPHABET: &str = "ɑᴀæᴁʌəɔᴐꜷꜵȃȁɛᴇɝɚȇȅɪɨȋȉȏȍœɶʊᵿȗȕbʧdðfghʤklmnŋpɹsʃtθvwjzʒ ,.;:!?…—()";

/// Stress of a vowel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stress {
    /// Unstressed; the schwa is an AH without stress.
    None,
    /// Carries the main stress of the word.
    Primary,
    /// Keeps its quality but carries no accent.
    Secondary,
}

/// A sound: a vowel with its stress, or a consonant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound(u8);

impl Sound {
    /// Returns the sound with this index in the dictionary file: vowels with stress 0, 1 and 2 each, then consonants.
    pub fn from_index(index: u8) -> Option<Sound> {
        (usize::from(index) < 3 * VOWELS.len() + CONSONANTS.len()).then_some(Sound(index))
    }

    /// Looks up a sound by name; a stressed vowel has a trailing `1`. AX is the schwa, and AH keeps its quality without
    /// stress.
    pub fn from_name(name: &str) -> Option<Sound> {
        let (name, stress) = match (name, name.strip_suffix('1')) {
            (_, Some(name)) => (name, Stress::Primary),
            ("AX", _) => ("AH", Stress::None),
            ("AH", _) => ("AH", Stress::Secondary),
            _ => (name, Stress::None),
        };
        if let Some(vowel) = VOWELS.iter().position(|(known, ..)| *known == name) {
            return Some(Sound(3 * vowel as u8).with_stress(stress));
        }
        let consonant = CONSONANTS.iter().position(|(known, _)| *known == name)?;
        (stress == Stress::None).then_some(Sound((3 * VOWELS.len() + consonant) as u8))
    }

    /// Dictionary name, without stress.
    pub fn name(self) -> &'static str {
        match self.vowel() {
            Ok(vowel) => VOWELS[vowel].0,
            Err(consonant) => CONSONANTS[consonant].0,
        }
    }

    /// Stress of the sound; [`Stress::None`] for consonants too.
    pub fn stress(self) -> Stress {
        match (self.is_vowel(), self.0 % 3) {
            (true, 1) => Stress::Primary,
            (true, 2) => Stress::Secondary,
            _ => Stress::None,
        }
    }

    /// Returns the same vowel with this stress; consonants are returned unchanged.
    pub fn with_stress(self, stress: Stress) -> Sound {
        match self.vowel() {
            Ok(vowel) => Sound(3 * vowel as u8 + stress as u8),
            Err(_) => self,
        }
    }

    /// Returns whether the sound is a vowel.
    pub fn is_vowel(self) -> bool {
        self.vowel().is_ok()
    }

    /// The character the sound is written with.
    pub fn character(self) -> char {
        match self.vowel() {
            Ok(vowel) => match (VOWELS[vowel], self.stress()) {
                ((_, stressed, _), Stress::Primary) | (("AH", stressed, _), Stress::Secondary) => stressed,
                ((_, _, other), _) => other,
            },
            Err(consonant) => CONSONANTS[consonant].1,
        }
    }

    /// `Ok` with the index of a vowel, or `Err` with the index of a consonant.
    fn vowel(self) -> Result<usize, usize> {
        let number = usize::from(self.0);
        if number < 3 * VOWELS.len() { Ok(number / 3) } else { Err(number - 3 * VOWELS.len()) }
    }
}

/// Returns whether a character denotes a sound.
pub(crate) fn is_phoneme(c: char) -> bool {
    c.is_alphabetic() && ALPHABET.contains(c)
}

/// Returns the sounds with these names, separated by spaces.
///
/// # Panics
/// If a name is unknown. Names are constants of this crate, and tests read all of them.
pub(crate) fn sounds(names: &str) -> Vec<Sound> {
    let known = |name| Sound::from_name(name).expect("tables contain only known sound names");
    names.split_whitespace().map(known).collect()
}

#[cfg(test)]
mod tests {
    use unicode_normalization::UnicodeNormalization;

    use super::*;

    #[test]
    fn names_and_indices_round_trip() {
        let all: Vec<Sound> = (0..=u8::MAX).map_while(Sound::from_index).collect();
        assert_eq!(all.len(), 69);
        for sound in all {
            let name = match (sound.name(), sound.stress()) {
                ("AH", Stress::None) => "AX".to_owned(),
                (name, Stress::Primary) => format!("{name}1"),
                (name, _) => name.to_owned(),
            };
            let same = match sound.stress() {
                Stress::Secondary if sound.name() != "AH" => sound.with_stress(Stress::None),
                _ => sound,
            };
            assert_eq!(Sound::from_name(&name), Some(same), "{name}");
        }
        assert_eq!(
            (Sound::from_name("K1"), Sound::from_name("QQ"), Sound::from_name("")),
            (None, None, None)
        );
    }

    /// Steps after the cleaner must not change the characters: they are lower case, in NFC, and letters to a word splitter.
    #[test]
    fn sound_characters_are_in_the_alphabet_and_stable() {
        let characters: String = VOWELS
            .iter()
            .flat_map(|(_, stressed, other)| [*stressed, *other])
            .chain(CONSONANTS.iter().map(|(_, character)| *character))
            .collect();
        assert!(ALPHABET.starts_with(&characters), "{characters}");
        for c in characters.chars() {
            assert_eq!(characters.matches(c).count(), 1, "{c}");
            assert!(c.is_alphabetic() && is_phoneme(c), "{c}");
            assert_eq!(c.to_lowercase().to_string(), c.to_string());
            assert!(std::iter::once(c).nfc().eq([c]) && std::iter::once(c).nfkc().eq([c]), "{c}");
        }
        for (name, stressed, other) in VOWELS {
            assert!(!stressed.is_ascii() && !other.is_ascii(), "{name}: it would be taken for a letter");
        }
        for number in (0..=u8::MAX).map_while(Sound::from_index) {
            assert!(characters.contains(number.character()));
        }
    }
}

//! The sounds of English as the dictionary has them, and the character each is written with by the `phonemes` cleaner.

/// Vowels by their names in the dictionary, each with the characters that stand for it: stressed, and not.
///
/// One character a sound, so that a vocabulary of characters has one token for each. No vowel is written with a letter of
/// plain English, so that a word in phonemes is told from a word in letters. IPA where it has a single character: plain
/// for stressed vowels, small or turned for the others; diphthongs and long vowels are letters with an arch when stressed
/// and with a double grave when not.
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

/// Consonants by their names in the dictionary, and their characters.
#[rustfmt::skip]
const CONSONANTS: [(&str, char); 24] = [
    ("B", 'b'), ("CH", 'ʧ'), ("D", 'd'), ("DH", 'ð'), ("F", 'f'), ("G", 'g'), ("HH", 'h'), ("JH", 'ʤ'), ("K", 'k'),
    ("L", 'l'), ("M", 'm'), ("N", 'n'), ("NG", 'ŋ'), ("P", 'p'), ("R", 'ɹ'), ("S", 's'), ("SH", 'ʃ'), ("T", 't'),
    ("TH", 'θ'), ("V", 'v'), ("W", 'w'), ("Y", 'j'), ("Z", 'z'), ("ZH", 'ʒ'),
];

/// All characters of [`Sound::character`], and what the cleaner leaves between words.
pub(crate) const ALPHABET: &str = "ɑᴀæᴁʌəɔᴐꜷꜵȃȁɛᴇɝɚȇȅɪɨȋȉȏȍœɶʊᵿȗȕbʧdðfghʤklmnŋpɹsʃtθvwjzʒ ,.;:!?…—()";

/// How strongly a vowel is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stress {
    /// Not at all: the schwa is an AH without stress.
    None,
    /// It carries the stress of its word.
    Primary,
    /// It keeps its quality and carries no accent.
    Secondary,
}

/// A sound: a vowel with its stress, or a consonant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound(u8);

impl Sound {
    /// The sound that the dictionary's file numbers so: vowels with stress 0, 1 and 2 each, then consonants.
    pub fn numbered(number: u8) -> Option<Sound> {
        (usize::from(number) < 3 * VOWELS.len() + CONSONANTS.len()).then_some(Sound(number))
    }

    /// By its name; `1` stands after a stressed vowel. AX is the schwa, and AH keeps its quality without stress.
    pub fn named(name: &str) -> Option<Sound> {
        let (name, stress) = match (name, name.strip_suffix('1')) {
            (_, Some(name)) => (name, Stress::Primary),
            ("AX", _) => ("AH", Stress::None),
            ("AH", _) => ("AH", Stress::Secondary),
            _ => (name, Stress::None),
        };
        if let Some(vowel) = VOWELS.iter().position(|(known, ..)| *known == name) {
            return Some(Sound(3 * vowel as u8).stressed(stress));
        }
        let consonant = CONSONANTS.iter().position(|(known, _)| *known == name)?;
        (stress == Stress::None).then_some(Sound((3 * VOWELS.len() + consonant) as u8))
    }

    /// Its name in the dictionary, without stress.
    pub fn name(self) -> &'static str {
        match self.vowel() {
            Ok(vowel) => VOWELS[vowel].0,
            Err(consonant) => CONSONANTS[consonant].0,
        }
    }

    /// How strongly it is said; `None` for consonants too.
    pub fn stress(self) -> Stress {
        match (self.is_vowel(), self.0 % 3) {
            (true, 1) => Stress::Primary,
            (true, 2) => Stress::Secondary,
            _ => Stress::None,
        }
    }

    /// The same vowel with this stress; a consonant as it is.
    pub fn stressed(self, stress: Stress) -> Sound {
        match self.vowel() {
            Ok(vowel) => Sound(3 * vowel as u8 + stress as u8),
            Err(_) => self,
        }
    }

    /// Whether it is a vowel.
    pub fn is_vowel(self) -> bool {
        self.vowel().is_ok()
    }

    /// The one character it is written with.
    pub fn character(self) -> char {
        match self.vowel() {
            Ok(vowel) => match (VOWELS[vowel], self.stress()) {
                ((_, stressed, _), Stress::Primary) | (("AH", stressed, _), Stress::Secondary) => stressed,
                ((_, _, other), _) => other,
            },
            Err(consonant) => CONSONANTS[consonant].1,
        }
    }

    /// The number of a vowel, or that of a consonant.
    fn vowel(self) -> Result<usize, usize> {
        let number = usize::from(self.0);
        if number < 3 * VOWELS.len() { Ok(number / 3) } else { Err(number - 3 * VOWELS.len()) }
    }
}

/// Whether a character stands for a sound.
pub(crate) fn is_phoneme(c: char) -> bool {
    c.is_alphabetic() && ALPHABET.contains(c)
}

/// Sounds by their names, with a space between.
///
/// # Panics
/// Where a name is not one: names are constants of this program, and tests read all of them.
pub(crate) fn sounds(names: &str) -> Vec<Sound> {
    let known = |name| Sound::named(name).expect("tables name only sounds of the inventory");
    names.split_whitespace().map(known).collect()
}

#[cfg(test)]
mod tests {
    use unicode_normalization::UnicodeNormalization;

    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        let all: Vec<Sound> = (0..=u8::MAX).map_while(Sound::numbered).collect();
        assert_eq!(all.len(), 69);
        for sound in all {
            let name = match (sound.name(), sound.stress()) {
                ("AH", Stress::None) => "AX".to_owned(),
                (name, Stress::Primary) => format!("{name}1"),
                (name, _) => name.to_owned(),
            };
            let same = match sound.stress() {
                Stress::Secondary if sound.name() != "AH" => sound.stressed(Stress::None),
                _ => sound,
            };
            assert_eq!(Sound::named(&name), Some(same), "{name}");
        }
        assert_eq!((Sound::named("K1"), Sound::named("QQ"), Sound::named("")), (None, None, None));
    }

    /// What comes after the cleaner must not change them: lower case, one form in Unicode, letters to a splitter of words.
    #[test]
    fn every_sound_has_a_character_of_the_alphabet_that_stays_as_it_is() {
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
        for number in (0..=u8::MAX).map_while(Sound::numbered) {
            assert!(characters.contains(number.character()));
        }
    }
}

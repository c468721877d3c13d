//! The CMU Pronouncing Dictionary: 124,926 English words with their sounds, stress and frequency class.
//!
//! `assets/english-dictionary.bin` is a zlib stream of three blocks, each preceded by its length (u32, little-endian).
//! All three are in the order of the words:
//!
//! | block | content per word |
//! |---|---|
//! | words | number of letters shared with the previous word (one byte: `A` is none), the remaining letters, a line feed |
//! | sounds | 1 + index into the sounds below for each, then a zero |
//! | frequency class | one byte: 5 for the most common words to 1 for names and the like; 0: never sampled |
//!
//! Sounds: those of [`Sound`], in its order.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;

use super::sound::Sound;

static PACKED: &[u8] = include_bytes!("../../../assets/english-dictionary.bin");

/// Words in byte order, unpacked once per process.
static DICTIONARY: LazyLock<Dictionary> =
    LazyLock::new(|| Dictionary::unpack(PACKED).expect("the embedded dictionary is intact"));

/// A word list with pronunciations. A word's index is its position in alphabetical order.
pub struct Dictionary {
    letters: String,
    /// Start of each word in `letters`, and the end of the last.
    words: Vec<u32>,
    sounds: Vec<u8>,
    /// Start of each word's sounds, and the end of the last; each word's sounds end with a zero.
    spoken: Vec<u32>,
    frequency_class: Vec<u8>,
}

/// Returns the dictionary. The first call unpacks it, which takes a few milliseconds.
pub fn dictionary() -> &'static Dictionary {
    &DICTIONARY
}

impl Dictionary {
    /// Returns `None` if the bytes are not in the format that `make_dictionary.py` writes.
    fn unpack(packed: &[u8]) -> Option<Dictionary> {
        let mut body = Vec::new();
        ZlibDecoder::new(packed).read_to_end(&mut body).ok()?;
        let mut rest = &body[..];
        let mut block = || {
            let (length, after) = rest.split_first_chunk()?;
            let (block, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some(block)
        };
        let (front_coded, sounds, frequency_class) = (block()?, block()?, block()?);

        let mut letters = String::with_capacity(9 * frequency_class.len());
        let mut words = vec![0];
        let mut last = 0..0;
        for line in front_coded.strip_suffix(b"\n")?.split(|&byte| byte == b'\n') {
            let (&shared, new) = line.split_first()?;
            let begin = letters.len();
            let shared = usize::from(shared.checked_sub(b'A')?);
            let kept = letters.get(last.start..last.start + shared)?.to_owned();
            letters.push_str(&kept);
            letters.push_str(std::str::from_utf8(new).ok()?);
            words.push(letters.len() as u32);
            last = begin..letters.len();
        }
        let ends = sounds.iter().enumerate().filter(|(_, sound)| **sound == 0);
        let spoken: Vec<u32> = [0].into_iter().chain(ends.map(|(end, _)| end as u32 + 1)).collect();
        let known = sounds.iter().all(|&sound| sound == 0 || Sound::from_index(sound - 1).is_some());
        let whole = words.len() == frequency_class.len() + 1 && spoken.len() == words.len() && known;
        whole.then(|| Dictionary {
            letters,
            words,
            sounds: sounds.to_vec(),
            spoken,
            frequency_class: frequency_class.to_vec(),
        })
    }

    /// Number of words.
    pub fn word_count(&self) -> usize {
        self.frequency_class.len()
    }

    /// Returns the word at an index below [`Self::word_count`].
    pub fn word(&self, number: usize) -> &str {
        &self.letters[self.words[number] as usize..self.words[number + 1] as usize]
    }

    /// Frequency class, from 5 (a few thousand words) to 1 (most names); words of class 0 are never sampled at random.
    pub fn frequency_class(&self, number: usize) -> u8 {
        self.frequency_class[number]
    }

    /// Returns the index of a word in lower-case letters and apostrophes.
    pub(crate) fn find(&self, word: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.word_count());
        while low < high {
            let middle = low.midpoint(high);
            match self.word(middle).cmp(word) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns the sounds of a word; `None` if it is not in the dictionary.
    pub(crate) fn sounds(&self, word: &str) -> Option<Vec<Sound>> {
        self.find(word).map(|number| self.sounds_at(number))
    }

    /// Returns the sounds of the word at that index.
    pub(crate) fn sounds_at(&self, number: usize) -> Vec<Sound> {
        let sounds = &self.sounds[self.spoken[number] as usize..self.spoken[number + 1] as usize - 1];
        sounds.iter().filter_map(|&sound| Sound::from_index(sound - 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(word: &str) -> Option<String> {
        dictionary().sounds(word).map(|sounds| sounds.iter().map(|sound| sound.character()).collect())
    }

    #[test]
    fn words_are_found_with_their_sounds() {
        assert_eq!(dictionary().word_count(), 124_926);
        for (word, sounds) in [
            ("'bout", "bꜷt"),
            ("a", "ə"),
            ("colonel", "kɝnəl"),
            ("photography", "fətɑgɹəfȉ"),
            ("zywicki", "zɨwɪkȉ"),
        ] {
            assert_eq!(said(word).as_deref(), Some(sounds), "{word}");
        }
        assert_eq!(said("zzzz"), None);
        assert_eq!(said(""), None);
        let frequency_class =
            |word| dictionary().find(word).map(|number| dictionary().frequency_class(number));
        assert_eq!(["house", "marmalade", "zywicki"].map(frequency_class), [Some(5), Some(3), Some(1)]);
    }

    #[test]
    fn every_word_is_found_and_has_sounds() {
        let all = dictionary();
        for number in 0..all.word_count() {
            assert_eq!(all.find(all.word(number)), Some(number), "{}", all.word(number));
            let sounds = all.sounds_at(number);
            assert!((1..40).contains(&sounds.len()), "{}", all.word(number));
        }
    }

    #[test]
    fn detects_corruption() {
        assert!(Dictionary::unpack(&PACKED[..PACKED.len() / 2]).is_none());
        assert!(Dictionary::unpack(b"").is_none());
    }
}

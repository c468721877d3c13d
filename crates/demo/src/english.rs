//! English letters to phonemes. Words of the demo sentences use a small lexicon, then rules (the first match counts).
//! Both were checked word by word and keep the demo corpus unchanged. All other words use [`pronunciation`].

use std::collections::HashSet;
use std::sync::LazyLock;

use myxtts_text::english::pronunciation::{self, Sound, Stress, is_unstressed, past, plural, rules};

use super::Language;
use super::english_words::LEXICON;
use super::number;
use super::phoneme::Phoneme;
use super::phrase::{Phone, Word};
use super::sentences;

/// Pronounces a word of lower-case letters and apostrophes.
pub(crate) fn pronounce(word: &str) -> Word {
    let phones = if DEMO_WORDS.contains(word) || entry(word).is_some() {
        phones(&phoneme_names(word))
    } else {
        from_dictionary(word)
    };
    Word { text: word.to_owned(), phones }
}

/// The words of the demo sentences.
static DEMO_WORDS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let texts = sentences::grammar(Language::English).iter().flat_map(|(_, choices)| choices.iter().copied());
    let mut words = HashSet::new();
    for text in
        texts.map(str::to_owned).chain(sentences::held_out().into_iter().map(|sentence| sentence.text))
    {
        let text = number::spell_out(&text, Language::English).to_lowercase();
        words.extend(text.split(|c: char| !c.is_ascii_lowercase()).map(str::to_owned));
    }
    words.extend(number::english_words().map(str::to_owned));
    words
});

/// Pronounces a word that is not in the demo sentences.
fn from_dictionary(word: &str) -> Vec<Phone> {
    let is_unstressed = is_unstressed(word);
    let phone = |sound: Sound| {
        // The unstressed AH of the dictionary is AX here; secondary stress only keeps the quality of a vowel.
        let name = match (sound.name(), sound.stress()) {
            ("AH", Stress::None) => "AX",
            (name, _) => name,
        };
        let stressed = sound.stress() == Stress::Primary && !is_unstressed;
        Phone { phoneme: Phoneme::from_name(name).expect("the inventory has all English phonemes"), stressed }
    };
    pronunciation::pronounce(word).into_iter().map(phone).collect()
}

fn entry(word: &str) -> Option<&'static str> {
    LEXICON.iter().find(|(entry, _)| *entry == word).map(|&(_, phoneme_names)| phoneme_names)
}

/// Phoneme names of a word separated by spaces, with `1` after the stressed vowel.
fn phoneme_names(word: &str) -> String {
    if let Some(phoneme_names) = entry(word) {
        return phoneme_names.to_owned();
    }
    let plain: String = word.chars().filter(|letter| letter.is_ascii_lowercase()).collect();
    if let Some(phoneme_names) = entry(&plain) {
        return phoneme_names.to_owned();
    }
    for (ending, add) in
        [("s", plural as fn(&str) -> &'static str), ("es", plural), ("ed", past), ("ing", |_| "IH NG")]
    {
        if let Some(stem) = plain.strip_suffix(ending)
            && let Some(phoneme_names) = entry(stem)
        {
            return format!("{phoneme_names} {}", add(last_sound(phoneme_names)));
        }
    }
    by_rule(&plain)
}

fn last_sound(phoneme_names: &str) -> &str {
    phoneme_names.rsplit(' ').next().unwrap_or("").trim_end_matches('1')
}

/// Pronounces a word by rules, with the stress on its first vowel that is not a schwa.
fn by_rule(word: &str) -> String {
    let mut names: Vec<String> = rules::read(word).iter().map(|read| read.name.to_owned()).collect();
    let is_full = |name: &String| name != "AX" && Phoneme::from_name(name).is_some_and(Phoneme::is_vowel);
    if let Some(stressed) = names.iter_mut().find(|name| is_full(name)) {
        stressed.push('1');
    } else if !word.is_empty() && !names.iter().any(|name| name == "AX") {
        // A single letter without a vowel is spoken with a schwa.
        names.push("AX".to_owned());
    }
    names.join(" ")
}

fn phones(phoneme_names: &str) -> Vec<Phone> {
    phoneme_names
        .split_whitespace()
        .map(|name| {
            let stressed = name.ends_with('1');
            let phoneme = Phoneme::from_name(name.trim_end_matches('1'));
            Phone {
                phoneme: phoneme.expect("rules and lexicon use only phonemes of the inventory"),
                stressed,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;
    use crate::number::spell_out;
    use crate::sentences::grammar;

    #[test]
    fn rules_read_regular_words() {
        for (word, expected) in [
            ("cat", "K AE1 T"),
            ("make", "M EY1 K"),
            ("making", "M EY1 K IH NG"),
            ("page", "P EY1 JH"),
            ("night", "N AY1 T"),
            ("knee", "N IY1"),
            ("watch", "W AA1 CH"),
            ("queen", "K W IY1 N"),
            ("phone", "F OW1 N"),
            ("stations", "S T EY1 SH AX N Z"),
            ("little", "L IH1 T AX L"),
            ("bridge", "B R IH1 JH"),
            ("boxes", "B AA1 K S IH Z"),
            ("jumped", "JH AH1 M P T"),
            ("planted", "P L AE1 N T IH D"),
            ("think", "TH IH1 NG K"),
        ] {
            assert_eq!(by_rule(word), expected, "{word}");
        }
    }

    #[test]
    fn a_known_word_takes_regular_endings() {
        assert_eq!(phoneme_names("door"), "D AO1 R");
        assert_eq!(phoneme_names("mothers"), "M AH1 DH ER Z");
        assert_eq!(phoneme_names("friend's"), "F R EH1 N D Z");
    }

    fn phone_names(word: &str) -> String {
        let names = pronounce(word)
            .phones
            .into_iter()
            .map(|phone| format!("{}{}", phone.phoneme.name(), if phone.stressed { "1" } else { "" }));
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn other_words_come_from_the_dictionary_whole_or_in_parts() {
        for (word, expected) in [
            ("colonel", "K ER1 N AX L"),
            ("through", "TH R UW"),
            ("don't", "D OW1 N T"),
            ("cello's", "CH EH1 L OW Z"),
            ("defragged", "D IH F R AE1 G D"), // by the rules
            ("unphotographed", "AH N F OW1 T AX G R AE F T"),
            ("squirreling", "S K W ER1 AX L IH NG"),
            ("moonwards", "M UW1 N W AO R D Z"),
            ("bbq", "B IY1 B IY K Y UW"),
            ("xqz", "EH K S K Y UW Z IY1"),
            ("cafe", "K AX F EY1"),
            ("'twas", "T W AH1 Z"),
        ] {
            assert_eq!(phone_names(word), expected, "{word}");
        }
    }

    #[test]
    fn the_demo_does_not_change_with_the_dictionary() {
        // The dictionary has an AH where the checked rules have an AX; both are correct.
        assert_eq!(phone_names("station"), phones_by_rule("station"));
        assert!(DEMO_WORDS.contains("window") && DEMO_WORDS.contains("seventeen"));
        for word in DEMO_WORDS.iter().filter(|word| !word.is_empty()) {
            assert_eq!(pronounce(word).phones, phones(&phoneme_names(word)), "{word}");
        }
    }

    fn phones_by_rule(word: &str) -> String {
        by_rule(word)
    }

    #[test]
    fn the_lexicon_contains_only_words_that_rules_misread() {
        let mut seen = std::collections::HashSet::new();
        for (word, phoneme_names) in LEXICON {
            assert!(seen.insert(word), "{word} is in the lexicon twice");
            assert_ne!(by_rule(word), *phoneme_names, "{word} needs no entry");
            assert!(!phones(phoneme_names).is_empty());
        }
    }

    #[test]
    fn every_word_of_the_sentences_has_a_vowel() {
        let grammar = grammar(Language::English).iter().flat_map(|(_, choices)| choices.iter().copied());
        for text in grammar {
            let spelled = spell_out(text, Language::English).to_lowercase();
            let words = spelled.split([' ', '.', ',', '?', '!', '-']);
            for word in words.filter(|word| !word.is_empty() && !word.contains(['{', '}'])) {
                let spoken = pronounce(word);
                assert!(spoken.phones.iter().any(|phone| phone.phoneme.is_vowel()), "{spoken:?}");
                let accents = spoken.phones.iter().filter(|phone| phone.stressed);
                assert!(accents.count() <= 1, "{spoken:?}");
            }
        }
    }
}

//! Persian letters to phonemes. The script omits short vowels and most ezafes, so words are looked up in a lexicon first;
//! other words are read by rules that insert short vowels.
//!
//! Notation: `a e o` short, `A i u` long, `S Z C j` for ش ژ چ ج, `x q ?` for خ ق ع, `'` before the stressed vowel (the last
//! one if none is marked).

pub(crate) use super::persian_words::LEXICON;
use super::phoneme::{Manner, Phoneme};
use super::phrase::{Phone, Word};

const JOINER: char = '\u{200c}';

/// The effect of a word on its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordClass {
    /// Takes an ezafe before a modifier.
    Noun,
    /// Adjective or name of a city: requires an ezafe on the noun before it.
    Modifier,
    /// A numeral: «ساعت» before it takes an ezafe, «و» between two is `o`.
    Number,
    /// A stressed word without effect on its neighbours.
    Word,
    /// A clitic: no stress.
    Particle,
}

/// The letter, or the two of a ligature, in Persian spelling; `None` if it has no sound here.
pub(crate) fn letter(character: char) -> Option<[char; 2]> {
    let one = |letter| Some([letter, '\0']);
    match character {
        'ي' | 'ى' => one('ی'),
        'ك' => one('ک'),
        'ة' | 'ۀ' => one('ه'),
        'أ' | 'إ' | 'ٱ' => one('ا'),
        'ؤ' | 'ئ' | 'ء' => one('ئ'),
        'ﻻ' | 'ﻼ' => Some(['ل', 'ا']),
        // Kashida, superscript alef, sukun and direction marks are silent and not reported.
        '\u{640}' | '\u{670}' | '\u{652}' | '\u{200e}' | '\u{200f}' => Some(['\0', '\0']),
        JOINER | '\u{64b}'..='\u{651}' | 'آ' => one(character),
        _ if consonant(character).is_some() || "اوی".contains(character) => one(character),
        // Letters added to the script by other languages, as the Persian letters they derive from.
        'ھ' | 'ہ' | 'ۂ' | 'ۃ' | 'ە' => one('ه'),
        'ے' | 'ۓ' | 'ێ' | 'ې' | 'ۍ' => one('ی'),
        'ۆ' | 'ۇ' | 'ۈ' | 'ۋ' | 'ڤ' => one('و'),
        'ٹ' | 'ټ' => one('ت'),
        'ڈ' | 'ډ' => one('د'),
        'ڑ' | 'ړ' | 'ڕ' => one('ر'),
        'ں' | 'ڼ' => one('ن'),
        'ڵ' => one('ل'),
        'ڪ' => one('ک'),
        'ګ' | 'ڭ' => one('گ'),
        'ښ' => one('ش'),
        'ځ' | 'ږ' => one('ژ'),
        'څ' => one('چ'),
        // Diacritics.
        '\u{610}'..='\u{61a}' | '\u{653}'..='\u{65f}' | '\u{6d6}'..='\u{6ed}' => Some(['\0', '\0']),
        // Positional forms of letters.
        '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' => {
            let mut parts = Vec::new();
            unicode_normalization::char::decompose_compatible(character, |part| parts.push(part));
            match parts[..] {
                [one] if one != character => letter(one),
                [one, two] => Some([letter(one)?[0], letter(two)?[0]]),
                _ => None,
            }
        }
        // Any other letter of the script is read as a glottal stop.
        '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6d3}' | '\u{750}'..='\u{77f}' => one('ئ'),
        _ => None,
    }
}

/// Pronounces the words of one phrase: neighbours matter for the ezafe and for «و».
pub(crate) fn pronounce(words: &[String]) -> Vec<Word> {
    let read: Vec<(String, WordClass)> = words.iter().map(|word| look_up(word)).collect();
    let class = |i: usize| read.get(i).map(|(_, class)| *class);
    words
        .iter()
        .enumerate()
        .map(|(i, text)| {
            let (mut notation, own) = read[i].clone();
            let next = class(i + 1);
            if text == "و"
                && next == Some(WordClass::Number)
                && i > 0
                && class(i - 1) == Some(WordClass::Number)
            {
                notation = "o".to_owned();
            }
            let has_ezafe = (own == WordClass::Noun && next == Some(WordClass::Modifier))
                || (text == "ساعت" && next == Some(WordClass::Number));
            if has_ezafe {
                add_ezafe(&mut notation);
            }
            Word { text: text.clone(), phones: phones(&notation, own != WordClass::Particle) }
        })
        .collect()
}

/// Adds an unwritten ezafe. After a vowel other than i it would be written, so none is added.
fn add_ezafe(notation: &mut String) {
    // Stress stays where it was: an ezafe is never stressed.
    mark_stress(notation);
    match notation.chars().last() {
        Some('i') => notation.push_str("ye"),
        Some(last) if !is_vowel(last) => notation.push('e'),
        _ => {}
    }
}

fn mark_stress(notation: &mut String) {
    if !notation.contains('\'')
        && let Some(at) = notation.rfind(is_vowel)
    {
        notation.insert(at, '\'');
    }
}

fn is_vowel(sign: char) -> bool {
    "aeoAiu".contains(sign)
}

fn entry(word: &str) -> Option<(&'static str, WordClass)> {
    LEXICON.iter().find(|(entry, _, _)| *entry == word).map(|&(_, notation, class)| (notation, class))
}

/// Prefixes and suffixes separated by a joiner; only verb prefixes take the stress.
const AFFIXES: [(&str, &str); 14] = [
    ("می", "m'i"),
    ("نمی", "n'emi"),
    ("ها", "hA"),
    ("های", "hAye"),
    ("هایی", "hAyi"),
    ("ی", "ye"),
    ("ای", "i"),
    ("ام", "am"),
    ("ات", "at"),
    ("اش", "aS"),
    ("تر", "tar"),
    ("ترین", "tarin"),
    ("اند", "and"),
    ("اید", "id"),
];

fn look_up(word: &str) -> (String, WordClass) {
    if let Some((notation, class)) = entry(word) {
        return (notation.to_owned(), class);
    }
    if word.contains(JOINER) {
        let mut notation = String::new();
        for part in word.split(JOINER) {
            let affix = AFFIXES.iter().find(|(affix, _)| *affix == part);
            let sounds = match (affix, entry(part)) {
                (Some((_, sounds)), _) => (*sounds).to_owned(),
                (None, Some((sounds, _))) => sounds.to_owned(),
                (None, None) => by_rule(part),
            };
            if matches!(part, "ی" | "ام" | "ات" | "اش") {
                mark_stress(&mut notation); // these are clitics of the preceding part
            }
            // One stress per word, and the first mark wins: that of a verb prefix.
            if notation.contains('\'') {
                notation.extend(sounds.chars().filter(|&sign| sign != '\''));
            } else {
                notation.push_str(&sounds);
            }
        }
        return (notation, WordClass::Word);
    }
    (attached(word).unwrap_or_else(|| by_rule(word)), WordClass::Word)
}

/// Endings that are also written without a joiner, and whether they take the stress.
const ATTACHED: [(&str, &str, bool); 13] = [
    ("هایی", "hAyi", true),
    ("های", "hAye", true),
    ("ها", "hA", true),
    ("ترین", "tarin", true),
    ("تر", "tar", true),
    ("مان", "emAn", false),
    ("تان", "etAn", false),
    ("شان", "eSAn", false),
    ("ان", "An", true),
    ("ی", "i", false),
    ("م", "am", false),
    ("ت", "at", false),
    ("ش", "aS", false),
];

/// Pronounces a word of the lexicon with an ending attached to it.
fn attached(word: &str) -> Option<String> {
    ATTACHED.iter().find_map(|&(ending, sounds, stressed)| {
        let (stem, _) = entry(word.strip_suffix(ending)?)?;
        let mut notation = stem.to_owned();
        // After a vowel, an ending that begins with one is written differently.
        if stem.ends_with(is_vowel) && sounds.starts_with(is_vowel) {
            return None;
        }
        if stressed {
            notation.retain(|sign| sign != '\'');
        } else {
            mark_stress(&mut notation);
        }
        Some(notation + sounds)
    })
}

fn consonant(letter: char) -> Option<char> {
    Some(match letter {
        'ب' => 'b',
        'پ' => 'p',
        'ت' | 'ط' => 't',
        'ث' | 'س' | 'ص' => 's',
        'ج' => 'j',
        'چ' => 'C',
        'ح' | 'ه' => 'h',
        'خ' => 'x',
        'د' => 'd',
        'ذ' | 'ز' | 'ض' | 'ظ' => 'z',
        'ر' => 'r',
        'ژ' => 'Z',
        'ش' => 'S',
        'ع' | 'ئ' => '?',
        'غ' | 'ق' => 'q',
        'ف' => 'f',
        'ک' => 'k',
        'گ' => 'g',
        'ل' => 'l',
        'م' => 'm',
        'ن' => 'n',
        _ => return None,
    })
}

/// Pronounces a word that is not in the lexicon: long vowels as written, short ones as marked or guessed.
fn by_rule(word: &str) -> String {
    let letters: Vec<char> = word.chars().filter(|&letter| letter != JOINER).collect();
    let mut out = String::new();
    for (i, &letter) in letters.iter().enumerate() {
        let first = i == 0;
        let last = i + 1 == letters.len();
        let after_vowel = out.chars().last().is_some_and(is_vowel);
        let vowel_follows =
            letters.get(i + 1).is_some_and(|&next| "اآ\u{64b}\u{64e}\u{650}\u{64f}".contains(next));
        match letter {
            'آ' => out.push('A'),
            // An initial alef only carries a vowel: a written long one, or a short one.
            'ا' if first => match letters.get(i + 1) {
                Some('ی' | 'و' | '\u{64e}' | '\u{650}' | '\u{64f}') => {}
                _ => out.push('a'),
            },
            'ا' => out.push('A'),
            '\u{64e}' => out.push('a'),
            '\u{650}' => out.push('e'),
            '\u{64f}' => out.push('o'),
            '\u{64b}' => out.push_str("an"),
            '\u{64c}' => out.push_str("on"),
            '\u{64d}' => out.push_str("en"),
            '\u{651}' => {}
            'و' if (first && !last) || after_vowel || vowel_follows => out.push('v'),
            'و' => out.push('u'),
            'ی' if (first && !last) || after_vowel || vowel_follows => out.push('y'),
            'ی' => out.push('i'),
            'ه' if last && !first && !after_vowel => out.push('e'),
            _ => out.extend(consonant(letter)),
        }
        // Three consonants never meet, and no word begins with two: insert a short vowel.
        let begins = out.chars().count() == 1;
        let next_is_consonant = letters.get(i + 1).is_some_and(|&next| {
            let final_h = next == 'ه' && i + 2 == letters.len();
            consonant(next).is_some() && !final_h
        });
        let cluster = out.chars().rev().take_while(|&sign| !is_vowel(sign)).count();
        if consonant(letter).is_some() && next_is_consonant && (begins || cluster >= 2) {
            out.push(if begins { 'a' } else { 'e' });
        }
    }
    if !out.is_empty() && !out.contains(is_vowel) {
        out.push('e'); // a single consonant is spoken with a vowel
    }
    out
}

/// Converts notation to phones.
fn phones(notation: &str, stressed: bool) -> Vec<Phone> {
    let mut notation = notation.to_owned();
    mark_stress(&mut notation);
    let signs: Vec<char> = notation.chars().collect();
    let mut out: Vec<Phone> = Vec::new();
    let mut stress = false;
    for (i, &sign) in signs.iter().enumerate() {
        let name = match sign {
            '\'' => {
                stress = stressed;
                continue;
            }
            'n' if matches!(signs.get(i + 1), Some('k' | 'g' | 'q')) => "NG",
            _ => phoneme_name(sign),
        };
        let phoneme = Phoneme::from_name(name).expect("the notation uses only phonemes of the inventory");
        // A doubled consonant is a long one, which the synthesiser does not have.
        let doubled =
            out.last().is_some_and(|last| last.phoneme == phoneme && phoneme.manner() != Manner::Vowel);
        if !doubled {
            out.push(Phone { phoneme, stressed: stress });
        }
        stress = false;
    }
    out
}

fn phoneme_name(sign: char) -> &'static str {
    match sign {
        'a' => "a",
        'e' => "e",
        'o' => "o",
        'A' => "A",
        'i' => "i",
        'u' => "u",
        'p' => "P",
        'b' => "B",
        't' => "T",
        'd' => "D",
        'k' => "K",
        'g' => "G",
        'q' => "Q",
        'f' => "F",
        'v' => "V",
        's' => "S",
        'z' => "Z",
        'S' => "SH",
        'Z' => "ZH",
        'x' => "X",
        'h' => "HH",
        'C' => "CH",
        'j' => "JH",
        'm' => "M",
        'n' => "N",
        'l' => "L",
        'r' => "RR",
        'y' => "Y",
        'w' => "W",
        _ => "QQ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;
    use crate::number::spell_out;
    use crate::phrase::read;
    use crate::sentences::{grammar, held_out};

    /// The symbol of a phoneme in the International Phonetic Alphabet.
    fn symbol(phoneme: Phoneme) -> String {
        let symbol = match phoneme.name() {
            "a" => "æ",
            "A" => "ɒː",
            "i" => "iː",
            "u" => "uː",
            "Y" => "j",
            "RR" => "ɾ",
            "HH" => "h",
            "SH" => "ʃ",
            "ZH" => "ʒ",
            "CH" => "tʃ",
            "JH" => "dʒ",
            "G" => "ɡ",
            "Q" => "ɢ",
            "QQ" => "ʔ",
            name => return name.to_lowercase(),
        };
        symbol.to_owned()
    }

    fn ipa(text: &str) -> String {
        let (phrases, unknown) = read(text, Language::Persian);
        assert_eq!(unknown, None, "{text}");
        let words = phrases.iter().flat_map(|phrase| &phrase.words);
        let sounds =
            words.map(|word| word.phones.iter().map(|phone| symbol(phone.phoneme)).collect::<String>());
        sounds.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_ezafe_is_added_where_required() {
        assert_eq!(ipa("کتاب سبز"), "ketɒːbe sæbz");
        assert_eq!(ipa("صندلی کوچک"), "sændæliːje kuːtʃæk");
        assert_eq!(ipa("دوچرخه‌ی آبی"), "dotʃæɾxeje ɒːbiː");
        assert_eq!(ipa("قطار شیراز ساعت ۷"), "ɢætɒːɾe ʃiːɾɒːz sɒːʔæte hæft");
        assert_eq!(ipa("هوا سرد است"), "hævɒː sæɾd æst");
        assert_eq!(ipa("یک کتاب خرید"), "jek ketɒːb xæɾiːd");
    }

    #[test]
    fn and_is_short_between_numbers() {
        assert_eq!(ipa("۲۱"), "biːst o jek");
        assert_eq!(ipa("نان و پنیر"), "nɒːn væ pæniːɾ");
    }

    #[test]
    fn words_outside_the_lexicon_follow_the_letters() {
        assert_eq!(ipa("شیشه"), "ʃiːʃe");
        assert_eq!(ipa("دانا"), "dɒːnɒː");
        assert_eq!(ipa("توران"), "tuːɾɒːn");
        assert_eq!(ipa("گُل"), "ɡol");
        assert_eq!(ipa("می‌دود"), "miːduːd");
        assert_eq!(ipa("ترازو"), "tæɾɒːzuː");
        assert_eq!(ipa("ب"), "be");
        // An ending without a joiner.
        assert_eq!(ipa("کتابها"), "ketɒːbhɒː");
        assert_eq!(ipa("کتابشان"), "ketɒːbeʃɒːn");
        // Letters of neighbouring languages, and positional forms.
        assert_eq!(ipa("ٹڈڑ"), ipa("تدر"));
        assert_eq!(ipa("ﮐﺘﺎﺏ"), ipa("کتاب"));
        // Arabic spelling of the same word.
        assert_eq!(ipa("كتاب"), ipa("کتاب"));
    }

    #[test]
    fn the_lexicon_uses_the_notation_and_has_no_duplicates() {
        let mut seen = std::collections::HashSet::new();
        for (word, notation, _) in LEXICON {
            assert!(seen.insert(word), "{word} is in the lexicon twice");
            let known = |sign: char| "aeoAiupbtdkgqfvszSZxhCjmnlryw?'".contains(sign);
            assert!(notation.chars().all(known), "{word}: {notation}");
            assert!(notation.contains(is_vowel), "{word}: {notation}");
        }
    }

    #[test]
    fn every_word_of_the_sentences_is_in_the_lexicon() {
        let grammar = grammar(Language::Persian).iter().flat_map(|(_, choices)| choices.iter());
        let mut texts: Vec<String> = grammar.map(|text| (*text).to_owned()).collect();
        texts.extend(held_out().into_iter().filter(|s| s.language == Language::Persian).map(|s| s.text));
        for text in texts {
            let spelled = spell_out(&text, Language::Persian);
            let words = spelled.split([' ', '.', '،', '؟', '!']);
            for word in words.filter(|word| !word.is_empty() && !word.contains(['{', '}'])) {
                let parts: Vec<&str> = word.split(JOINER).collect();
                let affix = |part: &str| AFFIXES.iter().any(|(affix, _)| *affix == part);
                let known = entry(word).is_some()
                    || (parts.len() == 2 && entry(parts[0]).is_some() && affix(parts[1]));
                assert!(known, "{word} in {text}");
            }
        }
    }
}

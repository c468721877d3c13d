//! English letter-to-sound rules for words that are not in the dictionary: the first matching rule applies.

/// (context before, letters, context after, sounds).
///
/// Contexts are patterns: a letter matches itself, `#` the edge of the word, `@` a vowel letter, `*` a consonant letter, `&`
/// one of e i y, and `%` an ending that makes the vowel before one consonant long (e, es, ed, er, ers, ing).
type Rule = (&'static str, &'static str, &'static str, &'static str);

/// A sound produced by a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleSound {
    /// Letters the sound comes from.
    pub letters: &'static str,
    /// Name of the sound; followed by `1` if it is a vowel that is stressed in every position.
    pub name: &'static str,
}

/// Returns the sounds of a word of lower-case letters; other characters are skipped.
pub fn read(word: &str) -> Vec<RuleSound> {
    let letters = word.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let rule = RULES.iter().find(|(before, text, after, _)| {
            letters[at..].starts_with(text.as_bytes())
                && fits_before(before.as_bytes(), &letters[..at])
                && fits_after(after.as_bytes(), &letters[at + text.len()..])
        });
        let Some((_, text, _, names)) = rule else {
            at += 1;
            continue;
        };
        out.extend(names.split_whitespace().map(|name| RuleSound { letters: text, name }));
        at += text.len();
    }
    out
}

/// Returns whether a letter is one of a, e, i, o, u, y.
pub(crate) fn is_vowel(letter: u8) -> bool {
    b"aeiouy".contains(&letter)
}

fn fits_one(pattern: u8, letter: Option<u8>) -> bool {
    match (pattern, letter) {
        (b'#', letter) => letter.is_none(),
        (_, None) => false,
        (b'@', Some(letter)) => is_vowel(letter),
        (b'*', Some(letter)) => !is_vowel(letter),
        (b'&', Some(letter)) => b"eiy".contains(&letter),
        (pattern, Some(letter)) => pattern == letter,
    }
}

fn fits_after(pattern: &[u8], letters: &[u8]) -> bool {
    pattern.iter().enumerate().all(|(i, &sign)| {
        if sign == b'%' {
            let endings: [&[u8]; 6] = [b"e", b"es", b"ed", b"er", b"ers", b"ing"];
            return letters.get(i..).is_some_and(|rest| endings.contains(&rest));
        }
        fits_one(sign, letters.get(i).copied())
    })
}

fn fits_before(pattern: &[u8], letters: &[u8]) -> bool {
    pattern
        .iter()
        .rev()
        .enumerate()
        .all(|(i, &sign)| fits_one(sign, letters.len().checked_sub(i + 1).map(|at| letters[at])))
}

/// In alphabetical order; within a letter, special rules before general ones.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    ("", "a", "ci@", "EY"), ("", "al", "d", "AO L"), ("qu", "a", "", "AA"), ("", "ar", "a", "EH R"),
    ("", "ator", "", "EY T ER"), ("", "ae", "", "IY"), ("@*", "ag", "ing#", "IH JH"), ("@*", "ages", "#", "IH JH IH Z"),
    ("ic", "ally", "#", "L IY"), ("#", "a", "#", "AX"), ("", "are", "#", "EH R"), ("", "air", "", "EH R"),
    ("w", "ar", "", "AO R"), ("", "arr", "@", "EH R"), ("", "ar", "y", "EH R"), ("", "ar", "e", "EH R"),
    ("", "ar", "i", "EH R"), ("@**", "ar", "#", "ER"), ("@**", "ar", "s#", "ER"), ("", "ar", "", "AA R"),
    ("", "augh", "", "AO"), ("", "au", "", "AO"), ("", "aw", "", "AO"), ("", "ay", "", "EY"), ("", "ai", "", "EY"),
    ("", "all", "#", "AO L"), ("", "al", "k", "AO"), ("", "alm", "", "AA M"), ("", "al", "t", "AO L"),
    ("w", "a", "sh", "AA"), ("w", "a", "nt", "AA"), ("w", "a", "tch", "AA"), ("w", "a", "ter", "AO"),
    ("w", "a", "llow", "AA"), ("", "ation", "", "EY1 SH AX N"), ("", "a", "ste#", "EY"), ("", "a", "nge", "EY"),
    ("#*", "able", "#", "EY B AX L"), ("#**", "able", "#", "EY B AX L"), ("", "able", "#", "AX B AX L"),
    ("@*", "age", "#", "IH JH"), ("@**", "age", "#", "IH JH"), ("", "a", "x", "AE"), ("", "a", "*%", "EY"),
    ("", "a", "*le#", "EY"), ("", "a", "zy#", "EY"), ("", "a", "by#", "EY"), ("", "ah", "", "AA"), ("", "a", "#", "AX"),
    ("", "a", "", "AE"),
    ("", "berg", "", "B ER G"), ("", "burg", "", "B ER G"), ("", "bb", "", "B"), ("m", "b", "#", ""),
    ("", "b", "", "B"),
    ("", "cz", "", "CH"), ("#", "cz", "", "Z"), ("", "cch", "", "K"), ("", "ch", "n", "K"), ("", "ch", "r", "K"),
    ("", "ci", "ent", "SH"), ("", "ci", "an", "SH"), ("", "ch", "", "CH"), ("", "ck", "", "K"), ("", "cc", "&", "K S"),
    ("", "cc", "", "K"), ("", "ci", "al", "SH"), ("", "ci", "ous", "SH"), ("", "c", "&", "S"), ("", "c", "", "K"),
    ("", "dge", "", "JH"), ("", "dd", "", "D"), ("", "d", "", "D"),
    ("", "eich", "", "AY K"), ("#", "eu", "", "Y UH"), ("", "ey", "", "IY"), ("", "e", "*io", "IY"),
    ("", "e", "*ia", "IY"), ("", "eer", "", "IH R"), ("", "e", "um#", "IY"), ("", "e", "o", "IY"),
    ("st", "ein", "", "AY N"), ("", "eau", "", "OW"), ("", "ea", "u", "OW"), ("spr", "ea", "d", "EH"),
    ("d", "ea", "d", "EH"), ("br", "ea", "d", "EH"), ("h", "ea", "d", "EH"), ("", "eigh", "", "EY"),
    ("", "ee", "", "IY"), ("", "ear", "#", "IH R"), ("", "ear", "s#", "IH R"), ("", "ear", "*", "ER"),
    ("", "ea", "d#", "EH"), ("", "ea", "ther", "EH"), ("", "ea", "lth", "EH"), ("", "ea", "", "IY"),
    ("", "ei", "", "AY"), ("", "ew", "", "UW"), ("", "eu", "", "UW"), ("", "ey", "#", "IY"), ("", "ey", "s#", "IY"),
    ("", "ey", "", "EY"), ("t", "ed", "#", "IH D"), ("d", "ed", "#", "IH D"), ("#*", "ed", "#", "EH D"),
    ("#**", "ed", "#", "EH D"), ("p", "ed", "#", "T"), ("k", "ed", "#", "T"), ("f", "ed", "#", "T"),
    ("@s", "ed", "#", "D"), ("s", "ed", "#", "T"), ("h", "ed", "#", "T"), ("x", "ed", "#", "T"), ("c", "ed", "#", "T"),
    ("*", "ed", "#", "D"), ("w", "ed", "#", "D"), ("y", "ed", "#", "D"), ("", "ere", "#", "IH R"),
    ("", "err", "", "EH R"), ("", "er", "#", "ER"), ("", "er", "*", "ER"), ("", "er", "@", "EH R"),
    ("s", "es", "#", "IH Z"), ("c", "es", "#", "IH Z"), ("g", "es", "#", "IH Z"), ("z", "es", "#", "IH Z"),
    ("x", "es", "#", "IH Z"), ("h", "es", "#", "IH Z"), ("p", "es", "#", "S"), ("t", "es", "#", "S"),
    ("k", "es", "#", "S"), ("f", "es", "#", "S"), ("*", "es", "#", "Z"), ("#*", "e", "#", "IY"),
    ("#**", "e", "#", "IY"), ("", "e", "#", ""), ("*", "e", "ly#", ""), ("*", "e", "ment#", ""), ("*", "e", "ful#", ""),
    ("*", "e", "less#", ""), ("", "e", "*e#", "IY"), ("@*", "el", "#", "AX L"), ("@**", "el", "#", "AX L"),
    ("@*", "en", "#", "AX N"), ("@**", "en", "#", "AX N"), ("@***", "en", "#", "AX N"), ("@*", "e", "t#", "IH"),
    ("@**", "e", "t#", "IH"), ("", "e", "", "EH"),
    ("", "fy", "#", "F AY"), ("", "ff", "", "F"), ("", "f", "", "F"),
    ("#", "g", "i", "G"), ("", "gi", "v", "G IH"), ("#", "gu", "a", "G"), ("", "gi", "on", "JH"), ("#", "gh", "", "G"),
    ("", "gh", "#", ""), ("", "gh", "t", ""), ("", "gg", "", "G"), ("", "gn", "#", "N"), ("#", "gn", "", "N"),
    ("", "gu", "e", "G"), ("", "gu", "i", "G"), ("", "g", "&", "JH"), ("", "g", "", "G"),
    ("", "h", "@", "HH"), ("", "h", "", ""),
    ("@*", "ine", "#", "IY N"), ("#d", "i", "@", "AY"), ("#b", "i", "@", "AY"), ("", "ities", "#", "AX T IY Z"),
    ("", "ity", "#", "AX T IY"), ("n", "ion", "", "Y AX N"), ("ll", "ion", "", "Y AX N"), ("", "iou", "s", "IY AX"),
    ("", "iest", "#", "IY AX S T"), ("", "iers", "#", "IY ER Z"), ("", "ier", "#", "IY ER"), ("", "ir", "ing#", "AY R"),
    ("", "ire", "d#", "AY R"), ("", "ible", "#", "AX B AX L"), ("", "ing", "ness#", "IH NG"),
    ("", "ing", "ly#", "IH NG"), ("", "ism", "", "IH Z AX M"), ("@*", "ives", "#", "IH V Z"),
    ("@**", "ive", "ly#", "IH V"), ("@*", "ive", "ly#", "IH V"), ("@**", "ive", "#", "IH V"),
    ("@*", "ive", "#", "IH V"), ("", "igh", "", "AY"), ("", "ign", "#", "AY N"), ("#*", "ied", "#", "AY D"),
    ("#**", "ied", "#", "AY D"), ("", "ied", "#", "IY D"), ("#*", "ies", "#", "AY Z"), ("#**", "ies", "#", "AY Z"),
    ("", "ies", "#", "IY Z"), ("#*", "ie", "#", "AY"), ("", "ie", "", "IY"), ("", "ire", "#", "AY ER"),
    ("", "irr", "", "IH R"), ("", "ir", "", "ER"), ("", "ind", "#", "AY N D"), ("", "ild", "#", "AY L D"),
    ("", "ing", "#", "IH NG"), ("", "i", "x", "IH"), ("", "i", "*%", "AY"), ("", "i", "*le#", "AY"),
    ("", "i", "@", "IY"), ("", "i", "#", "IY"), ("", "i", "", "IH"),
    ("", "j", "", "JH"),
    ("#", "kn", "", "N"), ("", "kk", "", "K"), ("", "k", "", "K"),
    ("*", "le", "#", "AX L"), ("*", "les", "#", "AX L Z"), ("*", "led", "#", "AX L D"), ("", "ll", "", "L"),
    ("", "l", "", "L"),
    ("#", "mac", "*", "M AX K"), ("#", "mc", "", "M AX K"), ("", "mm", "", "M"), ("", "mn", "#", "M"),
    ("", "m", "", "M"),
    ("", "n", "ct", "NG"), ("", "n", "x", "NG"), ("", "n", "qu", "NG"), ("", "ng", "#", "NG"), ("", "ng", "s#", "NG"),
    ("", "ng", "ing#", "NG"), ("", "ng", "e", "N JH"), ("", "ng", "", "NG G"), ("", "nk", "", "NG K"),
    ("", "nn", "", "N"), ("", "n", "", "N"),
    ("", "ow", "ski#", "AO F"), ("", "o", "*io", "OW"), ("", "o", "*ia", "OW"), ("", "o", "tio", "OW"),
    ("", "o", "ci@", "OW"), ("", "o", "s#", "OW"), ("", "our", "ag", "ER"), ("c", "our", "", "AO R"),
    ("", "our", "n", "ER"), ("l", "ow", "ed#", "OW"), ("", "ow", "ing#", "OW"), ("", "oar", "", "AO R"),
    ("", "oa", "", "OW"), ("", "oor", "", "AO R"), ("", "oo", "k", "UH"), ("", "oo", "d#", "UH"), ("", "oo", "", "UW"),
    ("", "ought", "", "AO T"), ("", "ould", "", "UH D"), ("", "ough", "", "OW"), ("", "our", "#", "AW ER"),
    ("", "ous", "#", "AX S"), ("", "ou", "", "AW"), ("", "ow", "#", "OW"), ("", "own", "#", "AW N"),
    ("", "ow", "s#", "OW"), ("", "ow", "ly#", "OW"), ("", "ow", "", "AW"), ("", "oy", "", "OY"), ("", "oi", "", "OY"),
    ("", "ore", "#", "AO R"), ("@*", "or", "#", "ER"), ("@**", "or", "#", "ER"), ("w", "or", "*", "ER"),
    ("", "orr", "", "AO R"), ("", "or", "", "AO R"), ("", "old", "", "OW L D"), ("", "oll", "#", "OW L"),
    ("", "ost", "#", "OW S T"), ("", "o", "ther", "AH"), ("", "o", "x", "AA"), ("", "o", "ng", "AO"),
    ("", "o", "g#", "AO"), ("", "o", "ff", "AO"), ("", "o", "*%", "OW"), ("", "oe", "", "OW"), ("", "o", "#", "OW"),
    ("@*", "on", "#", "AX N"), ("@**", "on", "#", "AX N"), ("@*", "on", "s#", "AX N"), ("", "o", "", "AA"),
    ("#", "ps", "", "S"), ("", "ph", "", "F"), ("", "pp", "", "P"), ("", "p", "", "P"),
    ("", "ques", "#", "K S"), ("", "que", "#", "K"), ("", "qu", "", "K W"), ("", "q", "", "K"),
    ("", "rr", "", "R"), ("", "rh", "", "R"), ("", "r", "", "R"),
    ("", "sz", "", "SH"), ("l", "sion", "", "SH AX N"), ("n", "sion", "", "SH AX N"), ("", "son", "#", "S AX N"),
    ("#", "sch", "*", "SH"), ("c", "s", "#", "S"), ("@", "s", "ity", "S"), ("@", "s", "ive", "S"),
    ("@", "s", "es#", "S"), ("@", "s", "is#", "S"), ("", "sch", "", "S K"), ("", "sh", "", "SH"),
    ("", "ssion", "", "SH AX N"), ("", "sion", "", "ZH AX N"), ("", "sure", "#", "ZH ER"), ("", "ss", "", "S"),
    ("", "sc", "&", "S"), ("#*@", "s", "#", "S"), ("#**@", "s", "#", "S"), ("u", "s", "#", "S"), ("i", "s", "#", "S"),
    ("@", "s", "@", "Z"), ("p", "s", "#", "S"), ("t", "s", "#", "S"), ("k", "s", "#", "S"), ("f", "s", "#", "S"),
    ("h", "s", "#", "S"), ("@", "s", "#", "Z"), ("*", "s", "#", "Z"), ("", "s", "", "S"),
    ("@", "th", "er", "DH"), ("", "tur", "@", "CH ER"), ("", "tu", "at", "CH UW"), ("", "tu", "al", "CH UW"),
    ("", "ti", "at", "SH IY"), ("", "ti", "enc", "SH"), ("", "ti", "ent", "SH"), ("", "ti", "ous", "SH"),
    ("", "tch", "", "CH"), ("", "th", "er#", "DH"), ("", "th", "ers#", "DH"), ("", "the", "#", "DH"),
    ("", "th", "", "TH"), ("", "tion", "", "SH AX N"), ("", "ture", "#", "CH ER"), ("", "tures", "#", "CH ER Z"),
    ("", "tt", "", "T"), ("s", "t", "le#", ""), ("s", "t", "en#", ""), ("", "t", "", "T"),
    ("b", "ul", "ous", "Y AX L"), ("c", "ul", "ous", "Y AX L"), ("m", "ul", "at", "Y AX L"),
    ("b", "ul", "at", "Y AX L"), ("p", "ul", "at", "Y AX L"), ("g", "ul", "ar", "Y AX L"), ("c", "ul", "at", "Y AX L"),
    ("c", "ul", "ar", "Y AX L"), ("", "u", "a", "UW"), ("", "ui", "", "UW"), ("", "ue", "#", "UW"),
    ("", "uy", "", "AY"), ("", "ure", "#", "Y UH R"), ("", "urr", "", "ER"), ("", "ur", "@", "UH R"),
    ("", "ur", "", "ER"), ("", "u", "ll#", "UH"), ("p", "u", "sh", "UH"), ("b", "u", "sh", "UH"),
    ("l", "u", "*%", "UW"), ("r", "u", "*%", "UW"), ("j", "u", "*%", "UW"), ("t", "u", "*%", "UW"),
    ("d", "u", "*%", "UW"), ("n", "u", "*%", "UW"), ("s", "u", "*%", "UW"), ("", "u", "*%", "Y UW"),
    ("l", "u", "*@", "UW"), ("r", "u", "*@", "UW"), ("j", "u", "*@", "UW"), ("t", "u", "*@", "UW"),
    ("d", "u", "*@", "UW"), ("n", "u", "*@", "UW"), ("s", "u", "*@", "UW"), ("", "u", "*@", "Y UW"),
    ("", "u", "#", "UW"), ("", "u", "", "AH"),
    ("", "ville", "#", "V IH L"), ("", "vv", "", "V"), ("", "v", "", "V"),
    ("", "ward", "", "W ER D"), ("", "wh", "", "W"), ("#", "wr", "", "R"), ("", "w", "", "W"),
    ("", "xc", "&", "K S"), ("#", "x", "", "Z"), ("#e", "x", "@", "G Z"), ("", "x", "", "K S"),
    ("#ps", "y", "ch", "AY"), ("#d", "y", "n", "AY"), ("#c", "y", "cl", "AY"), ("#h", "y", "", "AY"),
    ("#", "y", "#", "W AY"), ("#", "y", "", "Y"), ("#*", "y", "#", "AY"), ("#**", "y", "#", "AY"),
    ("#***", "y", "#", "AY"), ("", "y", "*%", "AY"), ("@", "y", "@", "Y"), ("", "y", "#", "IY"),
    ("", "y", "ing#", "IY"), ("", "y", "", "IH"),
    ("t", "z", "", "S"), ("", "zz", "", "Z"), ("", "z", "", "Z"),
];

#[cfg(test)]
mod tests {
    use super::super::sound::Sound;
    use super::*;

    #[test]
    fn rules_read_regular_words() {
        for (word, expected) in [
            ("cat", "K AE T"),
            ("make", "M EY K"),
            ("making", "M EY K IH NG"),
            ("page", "P EY JH"),
            ("night", "N AY T"),
            ("knee", "N IY"),
            ("watch", "W AA CH"),
            ("queen", "K W IY N"),
            ("phone", "F OW N"),
            ("stations", "S T EY1 SH AX N Z"),
            ("little", "L IH T AX L"),
            ("bridge", "B R IH JH"),
            ("boxes", "B AA K S IH Z"),
            ("jumped", "JH AH M P T"),
            ("planted", "P L AE N T IH D"),
            ("think", "TH IH NG K"),
            ("physics", "F IH Z IH K S"),
            ("spacious", "S P EY SH AX S"),
        ] {
            let names: Vec<&str> = read(word).iter().map(|read| read.name).collect();
            assert_eq!(names.join(" "), expected, "{word}");
        }
    }

    #[test]
    fn rules_name_known_sounds_and_cover_every_letter() {
        for (_, text, _, names) in RULES {
            assert!(
                !text.is_empty() && names.split_whitespace().all(|name| Sound::from_name(name).is_some()),
                "{text}"
            );
        }
        for letter in 'a'..='z' {
            assert!(!read(&format!("{letter}a")).is_empty(), "{letter}");
        }
    }
}

//! Words whose parts are in the dictionary: a regular ending, a prefix, or two words written as one.

use super::dictionary::dictionary;
use super::sound::{Sound, Stress, sounds};

/// Maximum length of a compound in bytes. Longer words are not compounds, and some texts have no spaces.
const LONGEST_COMPOUND: usize = 40;

/// Returns the names of an ending's sounds, given the name of the sound before it.
type EndingSounds = fn(&str) -> &'static str;

/// An ending, the letters it replaced in the stem, and its sounds.
type Ending = (&'static str, &'static str, EndingSounds);

#[rustfmt::skip]
const ENDINGS: [Ending; 19] = [
    ("s", "", plural), ("es", "", plural), ("ies", "y", plural),
    ("ed", "", past), ("d", "", past), ("ied", "y", past),
    ("ing", "", |_| "IH NG"), ("ing", "e", |_| "IH NG"),
    ("ly", "", |_| "L IY"), ("ily", "y", |_| "L IY"),
    ("er", "", |_| "ER"), ("er", "e", |_| "ER"), ("est", "", |_| "AX S T"),
    ("ness", "", |_| "N AX S"), ("iness", "y", |_| "N AX S"), ("less", "", |_| "L AX S"),
    ("ful", "", |_| "F AX L"), ("able", "", |_| "AX B AX L"), ("able", "e", |_| "AX B AX L"),
];

#[rustfmt::skip]
const PREFIXES: [(&str, &str); 11] = [
    ("un", "AH N"), ("re", "R IY"), ("non", "N AA N"), ("mis", "M IH S"), ("over", "OW V ER"), ("dis", "D IH S"),
    ("pre", "P R IY"), ("anti", "AE N T IY"), ("inter", "IH N T ER"), ("super", "S UW P ER"), ("under", "AH N D ER"),
];

/// Contractions: the letters after the apostrophe and their sounds.
const CONTRACTIONS: [(&str, EndingSounds); 6] = [
    ("'s", plural),
    ("n't", |_| "AX N T"),
    ("'ll", |_| "AX L"),
    ("'d", past),
    ("'ve", |_| "AX V"),
    ("'re", |_| "ER"),
];

/// Sounds of a plural or possessive ending.
pub fn plural(last: &str) -> &'static str {
    match last {
        "S" | "Z" | "SH" | "ZH" | "CH" | "JH" => "IH Z",
        "P" | "T" | "K" | "F" | "TH" => "S",
        _ => "Z",
    }
}

/// Sounds of a past tense ending.
pub fn past(last: &str) -> &'static str {
    match last {
        "T" | "D" => "IH D",
        "P" | "K" | "F" | "TH" | "S" | "SH" | "CH" => "T",
        _ => "D",
    }
}

fn append_ending(mut said: Vec<Sound>, ending: EndingSounds) -> Vec<Sound> {
    let last = said.last().map_or("", |sound| sound.name());
    said.extend(sounds(ending(last)));
    said
}

/// Pronounces a word with `'s` and the like; `stem` pronounces the part before the apostrophe.
pub(super) fn contracted(word: &str, stem: impl Fn(&str) -> Vec<Sound>) -> Option<Vec<Sound>> {
    CONTRACTIONS.iter().find_map(|&(letters, ending)| {
        let rest = word.strip_suffix(letters).filter(|rest| !rest.is_empty())?;
        Some(append_ending(stem(rest), ending))
    })
}

/// Pronounces a dictionary word with a regular prefix or ending, or both.
pub(super) fn inflected(word: &str) -> Option<Vec<Sound>> {
    with_ending(word).or_else(|| {
        PREFIXES.iter().find_map(|(prefix, names)| {
            let stem = word.strip_prefix(prefix).filter(|stem| stem.len() >= 3)?;
            let is_word = |number: &usize| dictionary().frequency_class(*number) > 1;
            let rest = match dictionary().find(stem).filter(is_word) {
                Some(number) => dictionary().sounds_at(number),
                None => with_ending(stem)?,
            };
            Some(sounds(names).into_iter().chain(rest).collect())
        })
    })
}

fn with_ending(word: &str) -> Option<Vec<Sound>> {
    ENDINGS.iter().find_map(|&(ending, restored, add)| {
        let stem = word.strip_suffix(ending).filter(|stem| stem.len() >= 2)?;
        let bytes = stem.as_bytes();
        let doubled = bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
        let single = match ending {
            "ed" | "ing" | "er" | "est" if doubled => &stem[..stem.len() - 1],
            _ => stem,
        };
        let found = dictionary().sounds(&format!("{stem}{restored}"));
        Some(append_ending(found.or_else(|| dictionary().sounds(single))?, add))
    })
}

/// Pronounces two dictionary words written as one; of several possible pairs, the one with the more common words.
/// Three-letter parts are too often an accident: only the most common are accepted, next to a common word.
pub(super) fn compound(word: &str) -> Option<Vec<Sound>> {
    if word.len() > LONGEST_COMPOUND {
        return None;
    }
    let said = |number| (dictionary().frequency_class(number), dictionary().sounds_at(number));
    let part = |part: &str| dictionary().find(part).map(said);
    let second_part = |second: &str| part(second).or_else(|| Some((3, with_ending(second)?)));
    let pairs = (3..=word.len().saturating_sub(3)).filter_map(|cut| {
        let (first, second) = word.split_at(cut);
        let ((common_first, said_first), (common_second, said_second)) = (part(first)?, second_part(second)?);
        let likely = |of: &str, common: u8, other: &str, common_other: u8| {
            of.len() > 3 || common == 5 && other.len() > 3 && common_other >= 4
        };
        let likely = likely(first, common_first, second, common_second)
            && likely(second, common_second, first, common_first);
        let score = (common_first.min(common_second), first.len().min(second.len()));
        likely.then_some((score, said_first, said_second))
    });
    // On a tie take the first: `max_by_key` would take the last.
    let (_, mut said, second) = pairs.min_by_key(|(score, ..)| std::cmp::Reverse(*score))?;
    let is_stressed = said.iter().any(|sound| sound.stress() == Stress::Primary);
    said.extend(second.into_iter().map(|sound| match sound.stress() {
        Stress::Primary if is_stressed => sound.with_stress(Stress::Secondary),
        _ => sound,
    }));
    Some(said)
}

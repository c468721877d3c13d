//! Words that the dictionary has in parts: a regular ending, a beginning, two words written as one.

use super::dictionary::dictionary;
use super::sound::{Sound, Stress, sounds};

/// Longer words are no compounds, and there are texts without spaces.
const LONGEST_COMPOUND: usize = 40;

/// The names of an ending's sounds, given the name of the sound before it.
type Behind = fn(&str) -> &'static str;

/// An ending, what it has replaced in the stem, and its sounds.
type Ending = (&'static str, &'static str, Behind);

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
const BEGINNINGS: [(&str, &str); 11] = [
    ("un", "AH N"), ("re", "R IY"), ("non", "N AA N"), ("mis", "M IH S"), ("over", "OW V ER"), ("dis", "D IH S"),
    ("pre", "P R IY"), ("anti", "AE N T IY"), ("inter", "IH N T ER"), ("super", "S UW P ER"), ("under", "AH N D ER"),
];

/// What an apostrophe joins to a word: its letters and its sounds.
const JOINED: [(&str, Behind); 6] = [
    ("'s", plural),
    ("n't", |_| "AX N T"),
    ("'ll", |_| "AX L"),
    ("'d", past),
    ("'ve", |_| "AX V"),
    ("'re", |_| "ER"),
];

/// The sounds of a plural or possessive ending.
pub fn plural(last: &str) -> &'static str {
    match last {
        "S" | "Z" | "SH" | "ZH" | "CH" | "JH" => "IH Z",
        "P" | "T" | "K" | "F" | "TH" => "S",
        _ => "Z",
    }
}

/// The sounds of a past tense.
pub fn past(last: &str) -> &'static str {
    match last {
        "T" | "D" => "IH D",
        "P" | "K" | "F" | "TH" | "S" | "SH" | "CH" => "T",
        _ => "D",
    }
}

fn with(mut said: Vec<Sound>, ending: Behind) -> Vec<Sound> {
    let last = said.last().map_or("", |sound| sound.name());
    said.extend(sounds(ending(last)));
    said
}

/// A word with `'s` and the like; `stem` says the rest.
pub(super) fn contracted(word: &str, stem: impl Fn(&str) -> Vec<Sound>) -> Option<Vec<Sound>> {
    JOINED.iter().find_map(|&(letters, ending)| {
        let rest = word.strip_suffix(letters).filter(|rest| !rest.is_empty())?;
        Some(with(stem(rest), ending))
    })
}

/// A word of the dictionary with a regular beginning or ending, or both.
pub(super) fn inflected(word: &str) -> Option<Vec<Sound>> {
    ended(word).or_else(|| {
        BEGINNINGS.iter().find_map(|(beginning, names)| {
            let stem = word.strip_prefix(beginning).filter(|stem| stem.len() >= 3)?;
            let is_word = |number: &usize| dictionary().commonness(*number) > 1;
            let rest = match dictionary().find(stem).filter(is_word) {
                Some(number) => dictionary().sounds_of(number),
                None => ended(stem)?,
            };
            Some(sounds(names).into_iter().chain(rest).collect())
        })
    })
}

fn ended(word: &str) -> Option<Vec<Sound>> {
    ENDINGS.iter().find_map(|&(ending, restored, add)| {
        let stem = word.strip_suffix(ending).filter(|stem| stem.len() >= 2)?;
        let bytes = stem.as_bytes();
        let doubled = bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
        let single = match ending {
            "ed" | "ing" | "er" | "est" if doubled => &stem[..stem.len() - 1],
            _ => stem,
        };
        let found = dictionary().sounds(&format!("{stem}{restored}"));
        Some(with(found.or_else(|| dictionary().sounds(single))?, add))
    })
}

/// Two words of the dictionary written as one, the more common ones where there are several such pairs. Parts of three
/// letters are too often an accident: only the most common count, beside a common word.
pub(super) fn compound(word: &str) -> Option<Vec<Sound>> {
    if word.len() > LONGEST_COMPOUND {
        return None;
    }
    let said = |number| (dictionary().commonness(number), dictionary().sounds_of(number));
    let part = |part: &str| dictionary().find(part).map(said);
    let second_part = |second: &str| part(second).or_else(|| Some((3, ended(second)?)));
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
    // Of equals the first: `max_by_key` would take the last.
    let (_, mut said, second) = pairs.min_by_key(|(score, ..)| std::cmp::Reverse(*score))?;
    let is_stressed = said.iter().any(|sound| sound.stress() == Stress::Primary);
    said.extend(second.into_iter().map(|sound| match sound.stress() {
        Stress::Primary if is_stressed => sound.stressed(Stress::Secondary),
        _ => sound,
    }));
    Some(said)
}

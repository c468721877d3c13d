//! German. A number with a dot is an ordinal only where the words around it require it: nouns are capitalised, so the case
//! of the next letter does not reveal the end of a sentence.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::german::{German, by_hundreds, ordinal_stem};
use crate::numbers::{Form, Noun, Numerals};

const MONTHS: [&str; 12] = [
    "januar",
    "februar",
    "märz",
    "april",
    "mai",
    "juni",
    "juli",
    "august",
    "september",
    "oktober",
    "november",
    "dezember",
];

pub(super) static LANGUAGE: Language = Language {
    code: "de",
    numerals: &German,
    writing: NumberFormat { point: ',', spaces: false, lenient: false },
    minus: "minus",
    percent: Percent::After(Noun::two(Form::Neuter, "prozent", "prozent")),
    degree: Noun::two(Form::Neuter, "grad", "grad"),
    symbols: &[
        ('&', "und"),
        ('@', "at"),
        ('#', "raute"),
        ('%', "prozent"),
        ('$', "dollar"),
        ('£', "pfund"),
        ('€', "euro"),
        ('°', "grad"),
        ('+', "plus"),
        ('§', "paragraf"),
    ],
    abbreviations: &[
        ("z.b.", "zum beispiel"),
        ("z. b.", "zum beispiel"),
        ("d.h.", "das heißt"),
        ("d. h.", "das heißt"),
        ("u.a.", "unter anderem"),
        ("u. a.", "unter anderem"),
        ("usw.", "und so weiter"),
        ("bzw.", "beziehungsweise"),
        ("ca.", "circa"),
        ("evtl.", "eventuell"),
        ("nr.", "nummer"),
        ("str.", "straße"),
        ("hr.", "herr"),
        ("fr.", "frau"),
        ("dr.", "doktor"),
        ("prof.", "professor"),
        ("st.", "sankt"),
        ("co.", "firma"),
        ("jr.", "junior"),
        ("mio.", "millionen"),
        ("mrd.", "milliarden"),
    ],
    rules: &[
        Rule { pattern: DATE_AFTER, say: date_with_preposition },
        Rule { pattern: DATE, say: date },
        Rule { pattern: r"\b([01]?[0-9]|2[0-3])[:.]([0-5][0-9]) Uhr\b", say: clock },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: DAY_OF_MONTH, say: day_of_month },
        Rule { pattern: AFTER_ARTICLE, say: after_article },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\. (\p{Ll})", say: before_small_letter },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(º|ª|th|st|nd|rd)", say: ordinal_with_sign },
    ],
    bare: by_hundreds,
    lowercase,
};

/// Words after which an ordinal takes the weak ending "-en"; "der" is one of them if a preposition precedes it.
const WEAK: [&str; 17] = [
    "am", "im", "vom", "zum", "zur", "beim", "ab", "seit", "bis", "dem", "den", "des", "einen", "einem",
    "einer", "jeden", "jedem",
];

const DATE_AFTER: &str = r"(?i)\b(am|vom|zum|ab|seit|bis|dem|den|des) (0?[1-9]|[12][0-9]|3[01])\. ?(0?[1-9]|1[0-2])\. ?([12][0-9]{3})\b";
const DAY_OF_MONTH: &str = r"(?i)(?:\b(am|vom|zum|ab|seit|bis|dem|den|des|der) )?\b([0-9]{1,2})\. ?(jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)";
/// Not after "bis", "ab" and "seit", which precede plain numbers too: "bis 20. Danach".
const AFTER_ARTICLE: &str = r"(?i)\b(am|im|vom|zum|zur|beim|dem|den|des|(?:in|mit|von|zu|bei|nach|aus|an|auf|vor) der|einen|einem|einer|jeden|jedem|der|die|das|eine|jede|ein|jeder|jedes) ([0-9]+)\.( \p{L})";

fn with_ending(n: u128, before: &str) -> Option<String> {
    let before = before.to_lowercase();
    let ending = match before.as_str() {
        word if WEAK.contains(&word) || word.contains(' ') => "en",
        "ein" | "" => "er",
        _ => "e",
    };
    Some(ordinal_stem(n)? + ending)
}

fn say_date(day: u128, month: u128, year: u128, before: &str) -> Option<String> {
    let year = by_hundreds(year).or_else(|| German.cardinal(year, Form::Alone))?;
    Some(format!("{} {} {year}", with_ending(day, before)?, MONTHS[month as usize - 1]))
}

fn date_with_preposition(found: &Captures) -> Option<String> {
    let date = say_date(number(found, 2)?, number(found, 3)?, number(found, 4)?, text(found, 1))?;
    Some(format!("{} {date}", text(found, 1)))
}

fn date(found: &Captures) -> Option<String> {
    say_date(number(found, 1)?, number(found, 2)?, number(found, 3)?, "")
}

fn clock(found: &Captures) -> Option<String> {
    let hour = German.cardinal(number(found, 1)?, Form::Masculine)?;
    Some(match number(found, 2)? {
        0 => format!("{hour} uhr"),
        minutes => format!("{hour} uhr {}", German.cardinal(minutes, Form::Alone)?),
    })
}

fn day_of_month(found: &Captures) -> Option<String> {
    let before = text(found, 1);
    let blank = if before.is_empty() { "" } else { " " };
    Some(format!("{before}{blank}{} {}", with_ending(number(found, 2)?, before)?, text(found, 3)))
}

fn after_article(found: &Captures) -> Option<String> {
    Some(format!("{} {}{}", text(found, 1), with_ending(number(found, 2)?, text(found, 1))?, text(found, 3)))
}

fn before_small_letter(found: &Captures) -> Option<String> {
    Some(format!("{}{} {}", text(found, 1), German.ordinal(number(found, 2)?, Form::Alone)?, text(found, 3)))
}

fn ordinal_with_sign(found: &Captures) -> Option<String> {
    Some(format!("{}{}", text(found, 1), German.ordinal(number(found, 2)?, Form::Alone)?))
}

//! Czech. A number with a dot is an ordinal before a lower-case letter or a month, and otherwise ends a sentence.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::czech::{Czech, genitive};
use crate::numbers::{Form, Noun, Numerals};

const MONTHS: [&str; 12] = [
    "ledna",
    "února",
    "března",
    "dubna",
    "května",
    "června",
    "července",
    "srpna",
    "září",
    "října",
    "listopadu",
    "prosince",
];

pub(super) static LANGUAGE: Language = Language {
    code: "cs",
    numerals: &Czech,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "mínus",
    percent: Percent::After(Noun::four(Form::Neuter, "procento", "procenta", "procent", "procenta")),
    degree: Noun::four(Form::Masculine, "stupeň", "stupně", "stupňů", "stupně"),
    symbols: &[
        ('&', "a"),
        ('@', "zavináč"),
        ('#', "křížek"),
        ('%', "procent"),
        ('$', "dolarů"),
        ('£', "liber"),
        ('€', "eur"),
        ('°', "stupňů"),
        ('+', "plus"),
    ],
    abbreviations: &[
        ("např.", "například"),
        ("atd.", "a tak dále"),
        ("tzv.", "takzvaný"),
        ("tj.", "to jest"),
        ("mudr.", "doktor"),
        ("judr.", "doktor"),
        ("dr.", "doktor"),
        ("ing.", "inženýr"),
        ("mgr.", "magistr"),
        ("prof.", "profesor"),
        ("pí.", "paní"),
        ("sv.", "svatý"),
        ("ul.", "ulice"),
        ("č.", "číslo"),
        ("p.", "pan"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule {
            pattern: r"\b([0-9]{1,2})\. ?(ledna|února|března|dubna|května|června|července|srpna|září|října|listopadu|prosince)\b",
            say: day_of_month,
        },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.( \p{Ll})", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let day = genitive(&Czech.ordinal(number(found, 1)?, Form::Masculine)?);
    let year = Czech.cardinal(number(found, 3)?, Form::Alone)?;
    Some(format!("{day} {} {year}", MONTHS[number(found, 2)? as usize - 1]))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Czech.cardinal(number(found, 1)?, Form::Feminine)?;
    Some(match number(found, 2)? {
        0 => hour,
        minutes => format!("{hour} {}", Czech.cardinal(minutes, Form::Alone)?),
    })
}

fn day_of_month(found: &Captures) -> Option<String> {
    let day = genitive(&Czech.ordinal(number(found, 1)?, Form::Masculine)?);
    Some(format!("{day} {}", text(found, 2)))
}

fn ordinal(found: &Captures) -> Option<String> {
    Some(format!(
        "{}{}{}",
        text(found, 1),
        Czech.ordinal(number(found, 2)?, Form::Masculine)?,
        text(found, 3)
    ))
}

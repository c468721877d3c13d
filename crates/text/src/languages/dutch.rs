//! Dutch.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::dutch::{Dutch, by_hundreds};
use crate::numbers::{Form, Noun, Numerals};

const MONTHS: [&str; 12] = [
    "januari",
    "februari",
    "maart",
    "april",
    "mei",
    "juni",
    "juli",
    "augustus",
    "september",
    "oktober",
    "november",
    "december",
];

pub(super) static LANGUAGE: Language = Language {
    code: "nl",
    numerals: &Dutch,
    writing: NumberFormat { point: ',', spaces: false, lenient: false },
    minus: "min",
    percent: Percent::Uninflected("procent"),
    degree: Noun::two(Form::Alone, "graad", "graden"),
    symbols: &[
        ('&', "en"),
        ('@', "at"),
        ('#', "hekje"),
        ('%', "procent"),
        ('$', "dollar"),
        ('£', "pond"),
        ('€', "euro"),
        ('°', "graden"),
        ('+', "plus"),
    ],
    abbreviations: &[
        ("dhr.", "de heer"),
        ("mevr.", "mevrouw"),
        ("mw.", "mevrouw"),
        ("dr.", "dokter"),
        ("prof.", "professor"),
        ("ir.", "ingenieur"),
        ("jhr.", "jonkheer"),
        ("bijv.", "bijvoorbeeld"),
        ("bv.", "bijvoorbeeld"),
        ("d.w.z.", "dat wil zeggen"),
        ("enz.", "enzovoort"),
        ("ca.", "circa"),
        ("nr.", "nummer"),
        ("st.", "sint"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: r"\b([01]?[0-9]|2[0-3])[:.]([0-5][0-9]) uur\b", say: clock },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(ste|de|e)\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(º|ª)", say: ordinal },
    ],
    bare: by_hundreds,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let year = number(found, 3)?;
    let year = by_hundreds(year).or_else(|| Dutch.cardinal(year, Form::Alone))?;
    let day = Dutch.cardinal(number(found, 1)?, Form::Alone)?;
    Some(format!("{day} {} {year}", MONTHS[number(found, 2)? as usize - 1]))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Dutch.cardinal(number(found, 1)?, Form::Alone)?;
    Some(match number(found, 2)? {
        0 => format!("{hour} uur"),
        minutes => format!("{hour} uur {}", Dutch.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    Some(format!("{}{}", text(found, 1), Dutch.ordinal(number(found, 2)?, Form::Alone)?))
}

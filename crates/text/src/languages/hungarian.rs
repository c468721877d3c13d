//! Hungarian. A number with a dot is an ordinal before a lower-case letter.

use regex::Captures;

use super::engine::{CLOCK, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, hungarian::Hungarian};

pub(super) static LANGUAGE: Language = Language {
    code: "hu",
    numerals: &Hungarian,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "mínusz",
    percent: Percent::After(Noun::two(Form::Neuter, "százalék", "százalék")),
    degree: Noun::two(Form::Neuter, "fok", "fok"),
    symbols: &[
        ('&', "és"),
        ('@', "kukac"),
        ('#', "kettőskereszt"),
        ('%', "százalék"),
        ('$', "dollár"),
        ('£', "font"),
        ('€', "euró"),
        ('°', "fok"),
        ('+', "plusz"),
    ],
    abbreviations: &[
        ("dr.", "doktor"),
        ("prof.", "professzor"),
        ("ifj.", "ifjabb"),
        ("id.", "idősebb"),
        ("nőv.", "nővér"),
        ("pl.", "például"),
        ("stb.", "satöbbi"),
        ("kb.", "körülbelül"),
        ("b.", "bácsi"),
    ],
    rules: &[
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)-?[aeoö]?dik\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.( \p{Ll})", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase,
};

fn clock(found: &Captures) -> Option<String> {
    let hour = Hungarian.cardinal(number(found, 1)?, Form::Neuter)?;
    Some(match number(found, 2)? {
        0 => format!("{hour} óra"),
        minutes => format!("{hour} óra {}", Hungarian.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    Some(format!(
        "{}{}{}",
        text(found, 1),
        Hungarian.ordinal(number(found, 2)?, Form::Alone)?,
        text(found, 3)
    ))
}

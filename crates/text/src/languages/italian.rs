//! Italian.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, italian::Italian};

const MONTHS: [&str; 12] = [
    "gennaio",
    "febbraio",
    "marzo",
    "aprile",
    "maggio",
    "giugno",
    "luglio",
    "agosto",
    "settembre",
    "ottobre",
    "novembre",
    "dicembre",
];

pub(super) static LANGUAGE: Language = Language {
    code: "it",
    numerals: &Italian,
    writing: NumberFormat { point: ',', spaces: false, lenient: false },
    minus: "meno",
    percent: Percent::Uninflected("per cento"),
    degree: Noun::two(Form::Masculine, "grado", "gradi"),
    symbols: &[
        ('&', "e"),
        ('@', "chiocciola"),
        ('#', "cancelletto"),
        ('%', "per cento"),
        ('$', "dollari"),
        ('£', "sterline"),
        ('€', "euro"),
        ('°', "gradi"),
        ('+', "più"),
    ],
    abbreviations: &[
        ("sig.ra", "signora"),
        ("sig.na", "signorina"),
        ("sigg.", "signori"),
        ("sig.", "signore"),
        ("dott.ssa", "dottoressa"),
        ("dott.", "dottore"),
        ("dr.", "dottore"),
        ("prof.ssa", "professoressa"),
        ("prof.", "professore"),
        ("ing.", "ingegnere"),
        ("avv.", "avvocato"),
        ("st.", "santo"),
        ("co.", "compagnia"),
        ("jr.", "junior"),
        ("ltd.", "limitata"),
        ("ecc.", "eccetera"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"\b[Nn]([°º])[ \u{a0}]?([0-9])", say: numero },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(o|a)\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(º|ª)", say: ordinal },
        // A degree sign before a word is a keyboard substitute for the ordinal sign: "il 1° maggio"; "25°C" and "25°." are
        // not.
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(°)( \p{L}\p{L})", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase,
};

fn numero(found: &Captures) -> Option<String> {
    Some(format!("numero {}", text(found, 2)))
}

fn date(found: &Captures) -> Option<String> {
    let day = match number(found, 1)? {
        1 => "primo".into(),
        day => Italian.cardinal(day, Form::Alone)?,
    };
    let year = Italian.cardinal(number(found, 3)?, Form::Alone)?;
    Some(format!("{day} {} {year}", MONTHS[number(found, 2)? as usize - 1]))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Italian.cardinal(number(found, 1)?, Form::Feminine)?;
    Some(match number(found, 2)? {
        0 => hour,
        minutes => format!("{hour} e {}", Italian.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    let form = if matches!(text(found, 3), "a" | "ª") { Form::Feminine } else { Form::Masculine };
    Some(format!("{}{}{}", text(found, 1), Italian.ordinal(number(found, 2)?, form)?, text(found, 4)))
}

//! Portuguese.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, portuguese::Portuguese};

const MONTHS: [&str; 12] = [
    "janeiro",
    "fevereiro",
    "março",
    "abril",
    "maio",
    "junho",
    "julho",
    "agosto",
    "setembro",
    "outubro",
    "novembro",
    "dezembro",
];

pub(super) static LANGUAGE: Language = Language {
    code: "pt",
    numerals: &Portuguese,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "menos",
    percent: Percent::Uninflected("por cento"),
    degree: Noun::two(Form::Masculine, "grau", "graus"),
    symbols: &[
        ('&', "e"),
        ('@', "arroba"),
        ('#', "cardinal"),
        ('%', "por cento"),
        ('$', "dólares"),
        ('£', "libras"),
        ('€', "euros"),
        ('°', "graus"),
        ('+', "mais"),
    ],
    abbreviations: &[
        ("sras.", "senhoras"),
        ("srs.", "senhores"),
        ("sra.", "senhora"),
        ("sr.", "senhor"),
        ("dra.", "doutora"),
        ("dr.", "doutor"),
        ("profa.", "professora"),
        ("prof.", "professor"),
        ("st.", "santo"),
        ("sta.", "santa"),
        ("av.", "avenida"),
        ("pág.", "página"),
        ("n.º", "número"),
        ("nº", "número"),
        ("etc.", "et cetera"),
        ("co.", "companhia"),
        ("cia.", "companhia"),
        ("jr.", "júnior"),
        ("ltd.", "limitada"),
        ("ltda.", "limitada"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"\b([01]?[0-9]|2[0-3])h([0-5][0-9])?\b", say: clock },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.?(os|as|o|a)\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.?(º|ª)", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let say = |group| Portuguese.cardinal(number(found, group)?, Form::Alone);
    let day = if number(found, 1)? == 1 { "primeiro".into() } else { say(1)? };
    Some(format!("{day} de {} de {}", MONTHS[number(found, 2)? as usize - 1], say(3)?))
}

fn clock(found: &Captures) -> Option<String> {
    let n = number(found, 1)?;
    let hour = Portuguese.cardinal(n, Form::Feminine)?;
    Some(match number(found, 2).unwrap_or(0) {
        0 if n == 1 => format!("{hour} hora"),
        0 => format!("{hour} horas"),
        minutes => format!("{hour} e {}", Portuguese.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    let (n, ending) = (number(found, 2)?, text(found, 3));
    let form = if matches!(ending, "ª" | "a" | "as") { Form::Feminine } else { Form::Masculine };
    let plural = if ending.ends_with('s') { "s" } else { "" };
    Some(format!("{}{}{plural}", text(found, 1), Portuguese.ordinal(n, form)?))
}

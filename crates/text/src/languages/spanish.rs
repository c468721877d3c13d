//! Spanish.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, spanish::Spanish};

const MONTHS: [&str; 12] = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
];

pub(super) static LANGUAGE: Language = Language {
    code: "es",
    numerals: &Spanish,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "menos",
    percent: Percent::Uninflected("por ciento"),
    degree: Noun::two(Form::Masculine, "grado", "grados"),
    symbols: &[
        ('&', "y"),
        ('@', "arroba"),
        ('#', "numeral"),
        ('%', "por ciento"),
        ('$', "dólares"),
        ('£', "libras"),
        ('€', "euros"),
        ('°', "grados"),
        ('+', "más"),
    ],
    abbreviations: &[
        ("sras.", "señoras"),
        ("sres.", "señores"),
        ("sra.", "señora"),
        ("srta.", "señorita"),
        ("sr.", "señor"),
        ("dra.", "doctora"),
        ("dr.", "doctor"),
        ("d.ª", "doña"),
        ("ud.", "usted"),
        ("uds.", "ustedes"),
        ("prof.", "profesor"),
        ("profa.", "profesora"),
        ("st.", "santo"),
        ("sto.", "santo"),
        ("sta.", "santa"),
        ("avda.", "avenida"),
        ("av.", "avenida"),
        ("pág.", "página"),
        ("núm.", "número"),
        ("n.º", "número"),
        ("nº", "número"),
        ("etc.", "etcétera"),
        ("cía.", "compañía"),
        ("co.", "compañía"),
        ("jr.", "junior"),
        ("ltd.", "limitada"),
        ("ltda.", "limitada"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.?(er|os|as|o|a)\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.?(º|ª)", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let say = |group| Spanish.cardinal(number(found, group)?, Form::Alone);
    Some(format!("{} de {} de {}", say(1)?, MONTHS[number(found, 2)? as usize - 1], say(3)?))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Spanish.cardinal(number(found, 1)?, Form::Feminine)?;
    Some(match number(found, 2)? {
        0 => hour,
        minutes => format!("{hour} y {}", Spanish.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    let n = number(found, 2)?;
    let said = match text(found, 3) {
        "er" => {
            let full = Spanish.ordinal(n, Form::Masculine)?;
            // "primer", "tercer" before a masculine noun.
            if full.ends_with("ero") { full[..full.len() - 1].to_owned() } else { full }
        }
        "ª" | "a" => Spanish.ordinal(n, Form::Feminine)?,
        "as" => Spanish.ordinal(n, Form::Feminine)? + "s",
        "os" => Spanish.ordinal(n, Form::Masculine)? + "s",
        _ => Spanish.ordinal(n, Form::Masculine)?,
    };
    Some(format!("{}{said}", text(found, 1)))
}

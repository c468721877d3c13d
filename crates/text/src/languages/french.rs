//! French.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, french::French};

const MONTHS: [&str; 12] = [
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
];

pub(super) static LANGUAGE: Language = Language {
    code: "fr",
    numerals: &French,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "moins",
    percent: Percent::Uninflected("pour cent"),
    degree: Noun::two(Form::Masculine, "degré", "degrés"),
    symbols: &[
        ('&', "et"),
        ('@', "arobase"),
        ('#', "dièse"),
        ('%', "pour cent"),
        ('$', "dollars"),
        ('£', "livres"),
        ('€', "euros"),
        ('°', "degrés"),
        ('+', "plus"),
    ],
    abbreviations: &[
        ("mme.", "madame"),
        ("mme", "madame"),
        ("mmes", "mesdames"),
        ("mlle.", "mademoiselle"),
        ("mlle", "mademoiselle"),
        ("mm.", "messieurs"),
        ("mr.", "monsieur"),
        ("dr.", "docteur"),
        ("st.", "saint"),
        ("ste.", "sainte"),
        ("cie.", "compagnie"),
        ("co.", "compagnie"),
        ("jr.", "junior"),
        ("ltd.", "limitée"),
        ("etc.", "et cetera"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"\b([01]?[0-9]|2[0-3]) ?h ?([0-5][0-9])?\b", say: clock },
        Rule { pattern: r"\b[Nn]([°º])[ \u{a0}]?([0-9])", say: numero },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(ers?|ères?|res?|èmes?|emes?|es|e|nde?)\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(º|ª)", say: ordinal },
        // An initial before a surname ("M. R. Dupont") is not a title.
        Rule { pattern: r"\b(M)\. ?(\p{Lu}\p{Ll})", say: monsieur },
    ],
    bare: as_cardinal,
    lowercase,
};

fn monsieur(found: &Captures) -> Option<String> {
    Some(format!("monsieur {}", text(found, 2)))
}

fn numero(found: &Captures) -> Option<String> {
    Some(format!("numéro {}", text(found, 2)))
}

fn date(found: &Captures) -> Option<String> {
    let day = match number(found, 1)? {
        1 => "premier".into(),
        day => French.cardinal(day, Form::Alone)?,
    };
    let year = French.cardinal(number(found, 3)?, Form::Alone)?;
    Some(format!("{day} {} {year}", MONTHS[number(found, 2)? as usize - 1]))
}

fn clock(found: &Captures) -> Option<String> {
    let n = number(found, 1)?;
    let hour = French.cardinal(n, Form::Feminine)?;
    let unit = if n < 2 { "heure" } else { "heures" };
    Some(match number(found, 2).unwrap_or(0) {
        0 => format!("{hour} {unit}"),
        minutes => format!("{hour} {unit} {}", French.cardinal(minutes, Form::Feminine)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    let (n, ending) = (number(found, 2)?, text(found, 3));
    let said = match (n, ending) {
        (2, "nd") => "second".into(),
        (2, "nde") => "seconde".into(),
        (_, "re" | "res" | "ère" | "ères" | "ª") => French.ordinal(n, Form::Feminine)?,
        _ => French.ordinal(n, Form::Masculine)?,
    };
    let plural = if ending.ends_with('s') { "s" } else { "" };
    Some(format!("{}{said}{plural}", text(found, 1)))
}

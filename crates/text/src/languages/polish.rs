//! Polish.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::polish::{Polish, inflect};
use crate::numbers::{Form, Noun, Numerals};

const MONTHS: [&str; 12] = [
    "stycznia",
    "lutego",
    "marca",
    "kwietnia",
    "maja",
    "czerwca",
    "lipca",
    "sierpnia",
    "września",
    "października",
    "listopada",
    "grudnia",
];

pub(super) static LANGUAGE: Language = Language {
    code: "pl",
    numerals: &Polish,
    writing: NumberFormat { point: ',', spaces: true, lenient: false },
    minus: "minus",
    percent: Percent::After(Noun::four(Form::Masculine, "procent", "procent", "procent", "procenta")),
    degree: Noun::four(Form::Masculine, "stopień", "stopnie", "stopni", "stopnia"),
    symbols: &[
        ('&', "i"),
        ('@', "małpa"),
        ('#', "krzyżyk"),
        ('%', "procent"),
        ('$', "dolarów"),
        ('£', "funtów"),
        ('€', "euro"),
        ('°', "stopni"),
        ('+', "plus"),
    ],
    abbreviations: &[
        ("m.in.", "między innymi"),
        ("np.", "na przykład"),
        ("tj.", "to jest"),
        ("tzn.", "to znaczy"),
        ("itd.", "i tak dalej"),
        ("itp.", "i tym podobne"),
        ("prof.", "profesor"),
        ("dr.", "doktor"),
        ("dr", "doktor"),
        ("mgr", "magister"),
        ("inż.", "inżynier"),
        ("św.", "święty"),
        ("ul.", "ulica"),
        ("al.", "aleja"),
        ("nr", "numer"),
        ("jr.", "junior"),
        ("p.", "pan"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: r"\b([Oo]) ([01]?[0-9]|2[0-3])[:.]([0-5][0-9])\b", say: at_the_hour },
        Rule { pattern: CLOCK, say: clock },
        Rule {
            pattern: r"\b([0-9]{1,2})\.? (stycznia|lutego|marca|kwietnia|maja|czerwca|lipca|sierpnia|września|października|listopada|grudnia)\b",
            say: day_of_month,
        },
        Rule {
            pattern: r"(^|[^\w.,])([0-9]+)-(ego|go|ej|[tw]?szy|ta|te|ty|gi|ci|my|a|e|y)\b",
            say: with_ending,
        },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)(º|ª|st|nd|rd|th)", say: with_ending },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.( \p{Ll})", say: with_dot },
    ],
    bare: as_cardinal,
    lowercase,
};

fn genitive(n: u128) -> Option<String> {
    Some(inflect(&Polish.ordinal(n, Form::Masculine)?, "ego"))
}

fn date(found: &Captures) -> Option<String> {
    let (day, year) = (genitive(number(found, 1)?)?, genitive(number(found, 3)?)?);
    Some(format!("{day} {} {year} roku", MONTHS[number(found, 2)? as usize - 1]))
}

fn hour(hour: u128, minutes: u128, ending: &str) -> Option<String> {
    let hour = inflect(&Polish.ordinal(hour, Form::Masculine)?, ending);
    Some(match minutes {
        0 => hour,
        _ => format!("{hour} {}", Polish.cardinal(minutes, Form::Alone)?),
    })
}

fn clock(found: &Captures) -> Option<String> {
    hour(number(found, 1)?, number(found, 2)?, "a")
}

fn at_the_hour(found: &Captures) -> Option<String> {
    Some(format!("{} {}", text(found, 1), hour(number(found, 2)?, number(found, 3)?, "ej")?))
}

fn day_of_month(found: &Captures) -> Option<String> {
    Some(format!("{} {}", genitive(number(found, 1)?)?, text(found, 2)))
}

fn with_ending(found: &Captures) -> Option<String> {
    let said = Polish.ordinal(number(found, 2)?, Form::Masculine)?;
    let said = match text(found, 3) {
        "ego" | "go" => inflect(&said, "ego"),
        "ej" => inflect(&said, "ej"),
        "a" | "ta" | "ª" => inflect(&said, "a"),
        "e" | "te" => inflect(&said, "e"),
        _ => said,
    };
    Some(format!("{}{said}", text(found, 1)))
}

fn with_dot(found: &Captures) -> Option<String> {
    Some(format!(
        "{}{}{}",
        text(found, 1),
        Polish.ordinal(number(found, 2)?, Form::Masculine)?,
        text(found, 3)
    ))
}

//! Russian: ordinals by their endings, years and days in the case that the next word requires.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number, text};
use super::number_format::NumberFormat;
use crate::numbers::russian::{Ending, Russian, ordinal};
use crate::numbers::{Form, Noun, Numerals};

const MONTHS: [&str; 12] = [
    "января",
    "февраля",
    "марта",
    "апреля",
    "мая",
    "июня",
    "июля",
    "августа",
    "сентября",
    "октября",
    "ноября",
    "декабря",
];

pub(super) static LANGUAGE: Language = Language {
    code: "ru",
    numerals: &Russian,
    writing: NumberFormat { point: ',', spaces: true, lenient: true },
    minus: "минус",
    percent: Percent::After(Noun::four(Form::Masculine, "процент", "процента", "процентов", "процента")),
    degree: Noun::four(Form::Masculine, "градус", "градуса", "градусов", "градуса"),
    symbols: &[
        ('&', "и"),
        ('@', "собака"),
        ('#', "решётка"),
        ('№', "номер"),
        ('%', "процентов"),
        ('$', "долларов"),
        ('£', "фунтов"),
        ('€', "евро"),
        ('°', "градусов"),
        ('+', "плюс"),
    ],
    abbreviations: &[
        ("г-жа", "госпожа"),
        ("г-на", "господина"),
        ("г-н", "господин"),
        ("д-ра", "доктора"),
        ("д-р", "доктор"),
        ("и т.д.", "и так далее"),
        ("и т. д.", "и так далее"),
        ("и т.п.", "и тому подобное"),
        ("т.е.", "то есть"),
        ("т. е.", "то есть"),
        ("ул.", "улица"),
        ("руб.", "рублей"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule {
            pattern: r"\b([0-9]{1,2}) (января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря)\b",
            say: day_of_month,
        },
        Rule { pattern: r"\b([12][0-9]{3}) (год|года|году|годом)\b", say: year },
        Rule { pattern: r"\b([Вв]) ([12][0-9]{3}) ?г\.", say: in_year },
        Rule { pattern: r"\b([12][0-9]{3}) ?г\.", say: of_year },
        Rule {
            pattern: r"(^|[^\w.,])([0-9]+)-?(ого|его|го|ому|ему|му|ый|ой|ий|й|ая|ья|яя|я|ое|ье|ее|е|ую|ью|ю|ом|ем|ым|им|м|ых|их|х|ые|ие)\b",
            say: with_ending,
        },
    ],
    bare: as_cardinal,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let day = ordinal(number(found, 1)?, Ending::Neuter)?;
    let year = ordinal(number(found, 3)?, Ending::Genitive)?;
    Some(format!("{day} {} {year} года", MONTHS[number(found, 2)? as usize - 1]))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Russian.cardinal(number(found, 1)?, Form::Masculine)?;
    let minutes = number(found, 2)?;
    Some(match minutes {
        0 => format!("{hour} {}", hours(number(found, 1)?)),
        1..=9 => format!("{hour} ноль {}", Russian.cardinal(minutes, Form::Feminine)?),
        _ => format!("{hour} {}", Russian.cardinal(minutes, Form::Feminine)?),
    })
}

fn hours(n: u128) -> &'static str {
    const HOUR: Noun = Noun::four(Form::Masculine, "час", "часа", "часов", "часа");
    HOUR.after(Russian.plural(n))
}

fn day_of_month(found: &Captures) -> Option<String> {
    Some(format!("{} {}", ordinal(number(found, 1)?, Ending::Genitive)?, text(found, 2)))
}

fn year(found: &Captures) -> Option<String> {
    let ending = match text(found, 2) {
        "года" => Ending::Genitive,
        "году" => Ending::Prepositional,
        "годом" => Ending::Instrumental,
        _ => Ending::Masculine,
    };
    Some(format!("{} {}", ordinal(number(found, 1)?, ending)?, text(found, 2)))
}

fn in_year(found: &Captures) -> Option<String> {
    Some(format!("{} {} году", text(found, 1), ordinal(number(found, 2)?, Ending::Prepositional)?))
}

fn of_year(found: &Captures) -> Option<String> {
    Some(format!("{} года", ordinal(number(found, 1)?, Ending::Genitive)?))
}

fn with_ending(found: &Captures) -> Option<String> {
    let ending = match text(found, 3) {
        "ый" | "ой" | "ий" | "й" => Ending::Masculine,
        "ая" | "ья" | "яя" | "я" => Ending::Feminine,
        "ое" | "ье" | "ее" | "е" => Ending::Neuter,
        "ого" | "его" | "го" => Ending::Genitive,
        "ому" | "ему" | "му" => Ending::Dative,
        "ую" | "ью" | "ю" => Ending::Accusative,
        "ым" | "им" => Ending::Instrumental,
        "ом" | "ем" | "м" => Ending::Prepositional,
        "ых" | "их" | "х" => Ending::GenitivePlural,
        _ => Ending::Plural,
    };
    // Without a hyphen only the long endings are unambiguous: "5 м" is metres.
    if text(found, 3).chars().count() < 2 && !found[0].contains('-') {
        return None;
    }
    Some(format!("{}{}", text(found, 1), ordinal(number(found, 2)?, ending)?))
}

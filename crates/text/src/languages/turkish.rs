//! Turkish: percent before its number, a dotted and a dotless i.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, number, text};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, turkish::Turkish};

const MONTHS: [&str; 12] = [
    "ocak", "şubat", "mart", "nisan", "mayıs", "haziran", "temmuz", "ağustos", "eylül", "ekim", "kasım",
    "aralık",
];

pub(super) static LANGUAGE: Language = Language {
    code: "tr",
    numerals: &Turkish,
    writing: NumberFormat { point: ',', spaces: false, lenient: false },
    minus: "eksi",
    percent: Percent::Before("yüzde"),
    degree: Noun::two(Form::Alone, "derece", "derece"),
    symbols: &[
        ('&', "ve"),
        ('@', "et"),
        ('#', "diyez"),
        ('%', "yüzde"),
        ('$', "dolar"),
        ('£', "sterlin"),
        ('€', "avro"),
        ('₺', "lira"),
        ('°', "derece"),
        ('+', "artı"),
    ],
    abbreviations: &[
        ("dr.", "doktor"),
        ("prof.", "profesör"),
        ("doç.", "doçent"),
        ("av.", "avukat"),
        ("sn.", "sayın"),
        ("byk.", "büyük"),
        ("bkz.", "bakınız"),
        ("vb.", "ve benzeri"),
        ("vs.", "vesaire"),
        ("örn.", "örneğin"),
        ("b.", "bay"),
    ],
    rules: &[
        Rule { pattern: DATE, say: date },
        Rule { pattern: CLOCK, say: clock },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)['’]?(?:[ıiuü]nc[ıiuü]|nc[ıiuü])\b", say: ordinal },
        Rule { pattern: r"(^|[^\w.,])([0-9]+)\.( \p{Ll})", say: ordinal },
    ],
    bare: as_cardinal,
    lowercase: |text| text.replace('I', "ı").replace('İ', "i").to_lowercase(),
};

fn date(found: &Captures) -> Option<String> {
    let say = |group| Turkish.cardinal(number(found, group)?, Form::Alone);
    Some(format!("{} {} {}", say(1)?, MONTHS[number(found, 2)? as usize - 1], say(3)?))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Turkish.cardinal(number(found, 1)?, Form::Alone)?;
    Some(match number(found, 2)? {
        0 => hour,
        minutes => format!("{hour} {}", Turkish.cardinal(minutes, Form::Alone)?),
    })
}

fn ordinal(found: &Captures) -> Option<String> {
    Some(format!("{}{}{}", text(found, 1), Turkish.ordinal(number(found, 2)?, Form::Alone)?, text(found, 3)))
}

//! Arabic. Its own digits, decimal sign and percent sign are unified before.

use regex::Captures;

use super::engine::{CLOCK, DATE, Language, Percent, Rule, as_cardinal, lowercase, number};
use super::number_format::NumberFormat;
use crate::numbers::{Form, Noun, Numerals, arabic::Arabic};

const MONTHS: [&str; 12] = [
    "يناير",
    "فبراير",
    "مارس",
    "أبريل",
    "مايو",
    "يونيو",
    "يوليو",
    "أغسطس",
    "سبتمبر",
    "أكتوبر",
    "نوفمبر",
    "ديسمبر",
];

pub(super) static LANGUAGE: Language = Language {
    code: "ar",
    numerals: &Arabic,
    writing: NumberFormat { point: ',', spaces: false, lenient: true },
    minus: "سالب",
    percent: Percent::Uninflected("في المئة"),
    degree: Noun::four(Form::Feminine, "درجة", "درجات", "درجة", "درجة"),
    symbols: &[
        ('&', "و"),
        ('@', "على"),
        ('#', "رقم"),
        ('%', "في المئة"),
        ('$', "دولار"),
        ('£', "جنيه إسترليني"),
        ('€', "يورو"),
        ('°', "درجة"),
        ('+', "زائد"),
    ],
    abbreviations: &[("د.", "دكتور"), ("أ.د.", "أستاذ دكتور")],
    rules: &[Rule { pattern: DATE, say: date }, Rule { pattern: CLOCK, say: clock }],
    bare: as_cardinal,
    lowercase,
};

fn date(found: &Captures) -> Option<String> {
    let say = |group| Arabic.cardinal(number(found, group)?, Form::Alone);
    Some(format!("{} {} {}", say(1)?, MONTHS[number(found, 2)? as usize - 1], say(3)?))
}

fn clock(found: &Captures) -> Option<String> {
    let hour = Arabic.cardinal(number(found, 1)?, Form::Alone)?;
    Some(match number(found, 2)? {
        0 => hour,
        minutes => format!("{hour} و {}", Arabic.cardinal(minutes, Form::Alone)?),
    })
}

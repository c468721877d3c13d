//! Words that num2words 0.5.14 produces for an integer, an ordinal or a float in each language.

use super::float::Float;
use crate::numbers::{
    Form, Numerals, arabic, czech, dutch::Dutch, english::English, french, german, hungarian, italian,
    polish, portuguese, russian, spanish, turkish,
};

/// `None` where the reference raises.
pub(super) fn cardinal(n: u128, language: &str) -> Option<String> {
    match language {
        "ar" => arabic::upstream::cardinal(n),
        "cs" => czech::upstream::cardinal(n),
        "de" => german::upstream::cardinal(n),
        "en" => English.cardinal(n, Form::Alone),
        "es" => spanish::upstream::cardinal(n),
        "fr" => french::upstream::cardinal(n),
        "hu" => hungarian::upstream::cardinal(n),
        "it" => italian::upstream::cardinal(n),
        "nl" => Dutch.cardinal(n, Form::Alone),
        "pl" => polish::upstream::cardinal(n),
        "pt" => portuguese::upstream::cardinal(n),
        "ru" => russian::upstream::cardinal(n),
        "tr" => turkish::upstream::cardinal(n),
        _ => None,
    }
}

/// `None` where the reference raises; Czech always does.
pub(super) fn ordinal(n: u128, language: &str) -> Option<String> {
    match language {
        "ar" => arabic::upstream::ordinal(n),
        "de" => german::upstream::ordinal(n),
        "en" => English.ordinal(n, Form::Alone),
        "es" => spanish::upstream::ordinal(n),
        "fr" => french::upstream::ordinal(n),
        "hu" => hungarian::upstream::ordinal(n),
        "it" => italian::upstream::ordinal(n),
        "nl" => Dutch.ordinal(n, Form::Alone),
        "pl" => polish::upstream::ordinal(n),
        "pt" => portuguese::upstream::ordinal(n),
        "ru" => russian::upstream::ordinal(n),
        "tr" => turkish::upstream::ordinal(n),
        _ => None,
    }
}

/// `None` where the reference raises. Never called for Turkish.
pub(super) fn decimal(value: Float, language: &str) -> Option<String> {
    match language {
        "ar" => match (value.is_integer(), value.integer()?) {
            (true, n) => cardinal(n, "ar"),
            (false, n) => arabic::upstream::decimal(n, value.arabic_hundredths()?),
        },
        "cs" => number_after_zeros(value, "celá", "nula", language),
        "pl" => number_after_zeros(value, "przecinek", "zero", language),
        "ru" => {
            let (integer, fraction) = value.sides()?;
            russian::upstream::decimal(integer, &fraction)
        }
        "hu" if value.is_integer() => hungarian_integer(value),
        "hu" => {
            let (integer, fraction) = value.sides()?;
            hungarian::upstream::decimal(integer, &fraction)
        }
        "it" => {
            let (integer, fraction) = value.sides()?;
            digits(integer, "virgola", &fraction, language).map(italian::upstream::decimal)
        }
        _ if value.is_integer() => cardinal(value.integer()?, language),
        "de" => digits(value.integer()?, "Komma", &value.fraction_digits()?, language),
        "en" => digits(value.integer()?, "point", &value.fraction_digits()?, language),
        "es" => digits(value.integer()?, "punto", &value.fraction_digits()?, language),
        "fr" => digits(value.integer()?, "virgule", &value.fraction_digits()?, language),
        "nl" => digits(value.integer()?, "komma", &value.fraction_digits()?, language),
        "pt" => {
            let said = digits(value.integer()?, "vírgula", &value.fraction_digits()?, language)?;
            Some(portuguese::upstream::decimal(said))
        }
        _ => None,
    }
}

fn digits(integer: u128, point: &str, fraction: &str, language: &str) -> Option<String> {
    let mut said = vec![cardinal(integer, language)?, point.into()];
    for digit in fraction.chars() {
        said.push(cardinal(digit.to_digit(10)?.into(), language)?);
    }
    Some(said.join(" "))
}

/// The fraction as a number after its leading zeros. "0" counts as both a leading zero and the number: "dva celá nula nula".
fn number_after_zeros(value: Float, point: &str, zero: &str, language: &str) -> Option<String> {
    let (integer, fraction) = value.sides()?;
    let zeros = fraction.len() - fraction.trim_start_matches('0').len();
    let mut said = vec![cardinal(integer, language)?, point.into()];
    said.extend(std::iter::repeat_n(zero.to_owned(), zeros));
    said.push(cardinal(fraction.parse().ok()?, language)?);
    Some(said.join(" "))
}

/// A float of ten million written with ".0" sends the reference into infinite recursion: it counts its groups on the text
/// including ".0", and is right only where the first group has one digit.
fn hungarian_integer(value: Float) -> Option<String> {
    let n = value.integer()?;
    let mut rest = n;
    while rest >= 1_000_000 {
        let power = rest.ilog10();
        if power % 3 != 0 || power > 15 {
            return None;
        }
        rest %= 10u128.pow(power);
    }
    cardinal(n, "hu")
}

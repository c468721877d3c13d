//! Numbers in running text, in the reference's order: thousands, currencies, decimals, ordinals, the rest.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::float::Float;
use super::python::{is_boundary, is_digit, is_space};
use super::{CoquiError, money, words};
use crate::numbers::Currency;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("constant patterns are valid")
}

/// In the order in which they are tried; a failure skips the remaining currencies.
static CURRENCIES: LazyLock<[(Currency, Regex); 3]> = LazyLock::new(|| {
    [
        (Currency::Pound, pattern("£[0-9.,]*[0-9]+|[0-9.,]*[0-9]+£")),
        (Currency::Dollar, pattern(r"\$[0-9.,]*[0-9]+|[0-9.,]*[0-9]+\$")),
        (Currency::Euro, pattern("[0-9.,]*[0-9]+€|€[0-9.,]*[0-9]+")),
    ]
});
static DECIMAL: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9]+[.,][0-9]+"));
static INTEGER: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9]+"));

/// Text after the digits of an ordinal. The first alternative wins: "1os" is "1o" and an s. A dot counts only before white
/// space or at the end, except in Turkish and Hungarian.
static ORDINALS: LazyLock<HashMap<&'static str, Regex>> = LazyLock::new(|| {
    [
        ("en", "st|nd|rd|th"),
        ("hi", "st|nd|rd|th"),
        ("es", "º|ª|er|o|a|os|as"),
        ("fr", "º|ª|er|re|e|ème"),
        ("de", r"st|nd|rd|th|º|ª|\."),
        ("pt", "º|ª|o|a|os|as"),
        ("it", "º|°|ª|o|a|i|e"),
        ("pl", "º|ª|st|nd|rd|th"),
        ("ar", "ون|ين|ث|ر|ى"),
        ("cs", r"\."),
        ("ru", "-й|-я|-е|-ое|-ье|-го"),
        ("nl", "de|ste|e"),
        ("tr", r"\.|inci|nci|uncu|üncü"),
        ("hu", r"\.|adik|edik|odik|ödik|ödike|ik"),
    ]
    .into_iter()
    .map(|(language, endings)| (language, pattern(&format!("([0-9]+)({endings})"))))
    .collect()
});

/// Writes out all numbers of a lower-cased text.
pub(super) fn numbers(text: String, language: &str) -> Result<String, CoquiError> {
    let mut text = if matches!(language, "en" | "ru") {
        ungroup(&text, ',', Grouping { separator: Some(','), point: '.' })
    } else {
        // The reference does not escape the dot in its pattern, so it matches any character.
        ungroup(&text, '.', Grouping { separator: None, point: ',' })
    };
    for (currency, pattern) in CURRENCIES.iter() {
        match replace_amounts(&text, pattern, *currency, language) {
            Some(expanded) => text = expanded,
            None => break,
        }
    }
    let unreadable = |found: &str, kind| CoquiError::Unreadable {
        found: found.to_owned(),
        kind,
        language: language.to_owned(),
    };
    if language != "tr" {
        text = replace(&DECIMAL, &text, |found| {
            let value = Float::parse(&found[0].replace(',', "."));
            value.and_then(|v| words::decimal(v, language)).ok_or_else(|| unreadable(&found[0], "a decimal"))
        })?;
    }
    if let Some(pattern) = ORDINALS.get(language) {
        let before = std::mem::take(&mut text);
        text = replace(pattern, &before, |found| {
            let end = found.get(0).map_or(0, |whole| whole.end());
            let next = before[end..].chars().next();
            if &found[2] == "." && matches!(language, "de" | "cs") && !next.is_none_or(is_space) {
                return Ok(found[0].to_owned());
            }
            let n = found[1].parse().ok();
            n.and_then(|n| words::ordinal(n, language)).ok_or_else(|| unreadable(&found[0], "an ordinal"))
        })?;
    }
    replace(&INTEGER, &text, |found| {
        let n = found[0].parse().ok();
        n.and_then(|n| words::cardinal(n, language)).ok_or_else(|| unreadable(&found[0], "a number"))
    })
}

fn replace(
    pattern: &Regex,
    text: &str,
    mut say: impl FnMut(&Captures) -> Result<String, CoquiError>,
) -> Result<String, CoquiError> {
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for found in pattern.captures_iter(text) {
        let whole = found.get_match();
        out += &text[copied..whole.start()];
        out += &say(&found)?;
        copied = whole.end();
    }
    Ok(out + &text[copied..])
}

/// Returns `None` if any amount cannot be spoken: the reference then replaces none of them.
fn replace_amounts(text: &str, pattern: &Regex, currency: Currency, language: &str) -> Option<String> {
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for found in pattern.find_iter(text) {
        let amount: String = found
            .as_str()
            .chars()
            .filter(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
            .map(|c| if c == ',' { '.' } else { c })
            .collect();
        out += &text[copied..found.start()];
        out += &money::say(Float::parse(&amount)?, currency, language)?;
        copied = found.end();
    }
    Some(out + &text[copied..])
}

/// Digit grouping: the thousands separator (any character if `None`) and the decimal sign.
#[derive(Clone, Copy)]
struct Grouping {
    separator: Option<char>,
    point: char,
}

/// Removes `unwanted` from every grouped number.
fn ungroup(text: &str, unwanted: char, grouping: Grouping) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    while at < chars.len() {
        match grouped(&chars, at, grouping) {
            Some(end) => {
                out.extend(chars[at..end].iter().filter(|c| **c != unwanted));
                at = end;
            }
            None => {
                out.push(chars[at]);
                at += 1;
            }
        }
    }
    out
}

/// Returns the end of the number that starts at `at`: up to three digits, groups of a separator and three digits, a
/// fraction, with a word boundary on both sides. Longest first, as a backtracking search finds it.
fn grouped(chars: &[char], at: usize, grouping: Grouping) -> Option<usize> {
    let char_at = |i: usize| chars.get(i).copied();
    let digits_from =
        |i: usize, most: usize| (0..most).take_while(|k| char_at(i + k).is_some_and(is_digit)).count();
    let boundary = |i: usize| is_boundary(i.checked_sub(1).and_then(char_at), char_at(i));
    if !char_at(at).is_some_and(is_digit) || !boundary(at) {
        return None;
    }
    let ends_well = |i: usize| {
        let point = char_at(i) == Some(grouping.point);
        let fraction = if point { digits_from(i + 1, usize::MAX - i - 1) } else { 0 };
        (1..=fraction).rev().map(|n| i + 1 + n).chain([i]).find(|end| boundary(*end))
    };
    for lead in (1..=digits_from(at, 3)).rev() {
        let mut ends = vec![at + lead];
        loop {
            let last = ends[ends.len() - 1];
            let separates = match (char_at(last), grouping.separator) {
                (Some(c), Some(separator)) => c == separator,
                (Some(c), None) => c != '\n',
                (None, _) => false,
            };
            if !separates || digits_from(last + 1, 3) < 3 {
                break;
            }
            ends.push(last + 4);
        }
        if let Some(end) = ends.into_iter().rev().find_map(ends_well) {
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescaped_dot_matches_any_separator() {
        let dots = |text| ungroup(text, '.', Grouping { separator: None, point: ',' });
        assert_eq!(dots("1.234.567,8"), "1234567,8");
        assert_eq!(dots("12345.678"), "12345678");
        assert_eq!(dots("2020.123"), "2020.123");
        assert_eq!(dots("12.5"), "12.5");
        assert_eq!(dots("1.234x"), "1.234x");
        let commas = |text| ungroup(text, ',', Grouping { separator: Some(','), point: '.' });
        assert_eq!(commas("1,234,567.5 or 12,34"), "1234567.5 or 12,34");
    }
}

//! The engine that reads a text with a language's table: rules first, then money, percent, degrees and plain
//! numbers, abbreviations and symbols around them. Letters keep their case until the end, since rules look at it.

use regex::{Captures, Regex};

use super::tidy;
use super::written::{Writing, Written, parse};
use crate::numbers::{self, Currency, Form, Noun, Numerals, digit_by_digit};

/// Everything the engine needs to know about a language.
pub(super) struct Language {
    /// Its code; also the key of its number words.
    pub(super) code: &'static str,
    /// Its number words.
    pub(super) numerals: &'static dyn Numerals,
    /// How it writes numbers.
    pub(super) writing: Writing,
    /// What is said for a minus before a number.
    pub(super) minus: &'static str,
    /// How "%" is said.
    pub(super) percent: Percent,
    /// "degree", counted.
    pub(super) degree: Noun,
    /// Names of symbols that stand alone; all get blanks around them.
    pub(super) symbols: &'static [(char, &'static str)],
    /// Abbreviations in lower case with their dot if they have one, the longer before the shorter.
    pub(super) abbreviations: &'static [(&'static str, &'static str)],
    /// What only this language writes: ordinals, dates, times. Tried in order, before any other number.
    pub(super) rules: &'static [Rule],
    /// Another reading of a whole number that stands alone, such as a year.
    pub(super) bare: fn(u128) -> Option<String>,
    /// Lower case as the language has it.
    pub(super) lowercase: fn(&str) -> String,
}

/// How a percentage is said.
pub(super) enum Percent {
    /// "five percent".
    After(Noun),
    /// "yüzde beş".
    Before(&'static str),
    /// A phrase that does not care what stands before it: "por ciento".
    Uninflected(&'static str),
}

/// A pattern and what is said for it; `None` leaves the text as it is.
pub(super) struct Rule {
    pub(super) pattern: &'static str,
    pub(super) say: fn(&Captures) -> Option<String>,
}

/// The default of [`Language::bare`].
pub(super) fn as_cardinal(_: u128) -> Option<String> {
    None
}

/// The default of [`Language::lowercase`].
pub(super) fn lowercase(text: &str) -> String {
    text.to_lowercase()
}

/// Hours and minutes with a colon, captured.
pub(super) const CLOCK: &str = r"\b([01]?[0-9]|2[0-3]):([0-5][0-9])\b";

/// Day, month and four-digit year with dots, slashes or hyphens, captured.
pub(super) const DATE: &str = r"\b(0?[1-9]|[12][0-9]|3[01])[./-] ?(0?[1-9]|1[0-2])[./-] ?([12][0-9]{3})\b";

/// The number in a capture.
pub(super) fn number(captures: &Captures, group: usize) -> Option<u128> {
    captures.get(group)?.as_str().parse().ok()
}

/// The text of a capture; empty when it took no part.
pub(super) fn text<'a>(captures: &'a Captures, group: usize) -> &'a str {
    captures.get(group).map_or("", |found| found.as_str())
}

/// A language with its patterns compiled.
pub(super) struct Engine {
    language: &'static Language,
    rules: Vec<(Regex, &'static Rule)>,
    abbreviations: Vec<(Regex, &'static str)>,
    blanks: Regex,
    minus: Regex,
    money: [Regex; 2],
    percent: Regex,
    degree: Regex,
    number: Regex,
}

/// A run of digits, dots and commas that begins and ends with a digit.
const NUMBER: &str = "[0-9](?:[0-9.,]*[0-9])?";

impl Engine {
    /// Compiles the patterns of a language.
    pub(super) fn new(language: &'static Language) -> Engine {
        let pattern = |text: &str| Regex::new(text).expect("the patterns of a language compile");
        let abbreviation = |short: &str| {
            let end = if short.ends_with('.') { "" } else { r"\b" };
            pattern(&format!(r"(?i)\b{}{end}", regex::escape(short)))
        };
        let blank = if language.writing.blanks { "[ \u{a0}]" } else { "\u{a0}" };
        Engine {
            language,
            rules: language.rules.iter().map(|rule| (pattern(rule.pattern), rule)).collect(),
            abbreviations: language
                .abbreviations
                .iter()
                .map(|(short, long)| (abbreviation(short), *long))
                .collect(),
            blanks: pattern(&format!(r"\b[1-9][0-9]{{0,2}}(?:{blank}[0-9]{{3}})+\b")),
            minus: pattern(r"(^|[\s(])[-−–]([0-9$£€])"),
            // A sign that touches its number belongs to it before one that stands a blank away: "625 €8".
            money: [
                pattern(&format!(r"(\$|£|€)({NUMBER})|({NUMBER})(\$|£|€|(?:USD|GBP|EUR)\b)")),
                pattern(&format!(
                    r"(\$|£|€)[ \u{{a0}}]({NUMBER})|({NUMBER})[ \u{{a0}}](\$|£|€|(?:USD|GBP|EUR)\b)"
                )),
            ],
            percent: pattern(&format!(r"%[ \u{{a0}}]?({NUMBER})|({NUMBER})[ \u{{a0}}]?%")),
            degree: pattern(&format!(r"({NUMBER})[ \u{{a0}}]?°(?:([CF])\b)?")),
            number: pattern(NUMBER),
        }
    }

    /// The text as it is spoken.
    pub(super) fn clean(&self, raw: &str) -> String {
        let language = self.language;
        let mut text = tidy::enter(raw);
        for (pattern, long) in &self.abbreviations {
            text = replace(pattern, &text, |_| Some((*long).into()));
        }
        text = self
            .blanks
            .replace_all(&text, |found: &Captures| found[0].replace([' ', '\u{a0}'], ""))
            .into_owned();
        for (pattern, rule) in &self.rules {
            text = replace(pattern, &text, rule.say);
        }
        text = replace(&self.minus, &text, |found| {
            Some(format!("{}{} {}", &found[1], language.minus, &found[2]))
        });
        for pattern in &self.money {
            text = replace(pattern, &text, |found| self.money(found));
        }
        text = replace(&self.percent, &text, |found| self.percent(found));
        text = replace(&self.degree, &text, |found| self.degree(found));
        text = replace(&self.number, &text, |found| self.number(&found[0]));
        for (symbol, name) in language.symbols {
            text = text.replace(*symbol, &format!(" {name} "));
        }
        tidy::leave(&(language.lowercase)(&text))
    }

    fn money(&self, found: &Captures) -> Option<String> {
        let (sign, amount) = if found.get(1).is_some() {
            (text(found, 1), text(found, 2))
        } else {
            (text(found, 4), text(found, 3))
        };
        let (integer, fraction) = match parse(amount, self.language.writing) {
            Written::Integer(integer) => (integer, String::new()),
            Written::Decimal(integer, fraction) => (integer, fraction),
            Written::Parts(_) => return None,
        };
        numbers::currency(&integer, &fraction, Currency::from_sign(sign)?, self.language.code)
    }

    fn percent(&self, found: &Captures) -> Option<String> {
        let amount = found.get(1).or(found.get(2))?.as_str();
        match &self.language.percent {
            Percent::After(noun) => self.count(amount, noun),
            Percent::Before(word) => Some(format!("{word} {}", self.number(amount)?)),
            Percent::Uninflected(phrase) => Some(format!("{} {phrase}", self.number(amount)?)),
        }
    }

    fn degree(&self, found: &Captures) -> Option<String> {
        let counted = self.count(text(found, 1), &self.language.degree)?;
        Some(match text(found, 2) {
            "C" => format!("{counted} celsius"),
            "F" => format!("{counted} fahrenheit"),
            _ => counted,
        })
    }

    /// A written number and the noun it counts.
    fn count(&self, amount: &str, noun: &Noun) -> Option<String> {
        match parse(amount, self.language.writing) {
            Written::Integer(digits) => self.language.numerals.count(digits.parse().ok()?, noun),
            _ => Some(format!("{} {}", self.number(amount)?, noun.fraction)),
        }
    }

    fn number(&self, amount: &str) -> Option<String> {
        let words = self.language.numerals;
        match parse(amount, self.language.writing) {
            Written::Integer(digits) => {
                let spelled = digits.len() > 1 && digits.starts_with('0');
                let n = digits.parse().ok().filter(|_| !spelled);
                let bare = n.filter(|_| digits == amount).and_then(self.language.bare);
                bare.or_else(|| words.cardinal(n?, Form::Alone)).or_else(|| digit_by_digit(words, &digits))
            }
            Written::Decimal(integer, fraction) => numbers::decimal(&integer, &fraction, self.language.code),
            Written::Parts(parts) => {
                let said: Option<Vec<String>> = parts.iter().map(|part| self.number(part)).collect();
                Some(said?.join(" "))
            }
        }
    }
}

/// Replaces what `say` has words for, with blanks towards letters and digits that touch it. Where the match itself
/// begins or ends with a letter, that letter is context and goes on unbroken.
fn replace(pattern: &Regex, text: &str, say: impl Fn(&Captures) -> Option<String>) -> String {
    let touches = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for found in pattern.captures_iter(text) {
        let whole = found.get_match();
        let Some(said) = say(&found) else { continue };
        out += &text[copied..whole.start()];
        let first = whole.as_str().chars().next();
        if touches(out.chars().next_back()) && touches(said.chars().next()) && !letter(first) {
            out.push(' ');
        }
        out += &said;
        let (last, next) = (whole.as_str().chars().next_back(), text[whole.end()..].chars().next());
        if touches(next) && touches(said.chars().next_back()) && !letter(last) {
            out.push(' ');
        }
        copied = whole.end();
    }
    out + &text[copied..]
}

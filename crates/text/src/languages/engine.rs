//! The engine that reads a text with a language's table: rules first, then money, percent, degrees and plain numbers, with
//! abbreviations and symbols in between. Letters keep their case until the end, because rules depend on it.

use regex::{Captures, Regex};

use super::number_format::{NumberFormat, ParsedNumber, parse};
use super::tidy;
use crate::numbers::{self, Currency, Form, Noun, Numerals, digit_by_digit};

/// Everything the engine needs to know about a language.
pub(super) struct Language {
    /// Language code; also the key of its number words.
    pub(super) code: &'static str,
    /// Number words.
    pub(super) numerals: &'static dyn Numerals,
    /// Number format: decimal sign and thousands separators.
    pub(super) writing: NumberFormat,
    /// Spoken form of a minus before a number.
    pub(super) minus: &'static str,
    /// Spoken form of "%".
    pub(super) percent: Percent,
    /// "degree", as a counted noun.
    pub(super) degree: Noun,
    /// Names of symbols on their own; spaces are put around them.
    pub(super) symbols: &'static [(char, &'static str)],
    /// Abbreviations in lower case, with their dot if they have one, longer ones before shorter ones.
    pub(super) abbreviations: &'static [(&'static str, &'static str)],
    /// Constructions specific to this language: ordinals, dates, times. Tried in order, before any other number.
    pub(super) rules: &'static [Rule],
    /// Alternative reading of a whole number on its own, such as a year.
    pub(super) bare: fn(u128) -> Option<String>,
    /// Lower-casing by the rules of the language.
    pub(super) lowercase: fn(&str) -> String,
}

/// How a percentage is spoken.
pub(super) enum Percent {
    /// "five percent".
    After(Noun),
    /// "yüzde beş".
    Before(&'static str),
    /// A phrase that does not inflect with the number: "por ciento".
    Uninflected(&'static str),
}

/// A pattern and its spoken form; `None` leaves the text unchanged.
pub(super) struct Rule {
    pub(super) pattern: &'static str,
    pub(super) say: fn(&Captures) -> Option<String>,
}

/// Default of [`Language::bare`].
pub(super) fn as_cardinal(_: u128) -> Option<String> {
    None
}

/// Default of [`Language::lowercase`].
pub(super) fn lowercase(text: &str) -> String {
    text.to_lowercase()
}

/// Hours and minutes with a colon, captured.
pub(super) const CLOCK: &str = r"\b([01]?[0-9]|2[0-3]):([0-5][0-9])\b";

/// Day, month and four-digit year with dots, slashes or hyphens, captured.
pub(super) const DATE: &str = r"\b(0?[1-9]|[12][0-9]|3[01])[./-] ?(0?[1-9]|1[0-2])[./-] ?([12][0-9]{3})\b";

/// Number in a capture group.
pub(super) fn number(captures: &Captures, group: usize) -> Option<u128> {
    captures.get(group)?.as_str().parse().ok()
}

/// Text of a capture group; empty if it did not participate.
pub(super) fn text<'a>(captures: &'a Captures, group: usize) -> &'a str {
    captures.get(group).map_or("", |found| found.as_str())
}

/// A language with its patterns compiled.
pub(super) struct Engine {
    language: &'static Language,
    rules: Vec<(Regex, &'static Rule)>,
    abbreviations: Vec<(Regex, &'static str)>,
    spaces: Regex,
    minus: Regex,
    money: [Regex; 2],
    percent: Regex,
    degree: Regex,
    number: Regex,
}

/// A run of digits, dots and commas that starts and ends with a digit.
const NUMBER: &str = "[0-9](?:[0-9.,]*[0-9])?";

impl Engine {
    /// Compiles the patterns of a language.
    pub(super) fn new(language: &'static Language) -> Engine {
        let pattern = |text: &str| Regex::new(text).expect("constant patterns are valid");
        let abbreviation = |short: &str| {
            let end = if short.ends_with('.') { "" } else { r"\b" };
            pattern(&format!(r"(?i)\b{}{end}", regex::escape(short)))
        };
        let blank = if language.writing.spaces { "[ \u{a0}]" } else { "\u{a0}" };
        Engine {
            language,
            rules: language.rules.iter().map(|rule| (pattern(rule.pattern), rule)).collect(),
            abbreviations: language
                .abbreviations
                .iter()
                .map(|(short, long)| (abbreviation(short), *long))
                .collect(),
            spaces: pattern(&format!(r"\b[1-9][0-9]{{0,2}}(?:{blank}[0-9]{{3}})+\b")),
            minus: pattern(r"(^|[\s(])[-−–]([0-9$£€])"),
            // A sign that touches its number takes precedence over one a space away: "625 €8".
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

    /// Returns the text as it is spoken.
    pub(super) fn clean(&self, raw: &str) -> String {
        let language = self.language;
        let mut text = tidy::unify(raw);
        for (pattern, long) in &self.abbreviations {
            text = replace(pattern, &text, |_| Some((*long).into()));
        }
        text = self
            .spaces
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
        tidy::finish(&(language.lowercase)(&text))
    }

    fn money(&self, found: &Captures) -> Option<String> {
        let (sign, amount) = if found.get(1).is_some() {
            (text(found, 1), text(found, 2))
        } else {
            (text(found, 4), text(found, 3))
        };
        let (integer, fraction) = match parse(amount, self.language.writing) {
            ParsedNumber::Integer(integer) => (integer, String::new()),
            ParsedNumber::Decimal(integer, fraction) => (integer, fraction),
            ParsedNumber::Parts(_) => return None,
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

    /// Reads a written number and the noun it counts.
    fn count(&self, amount: &str, noun: &Noun) -> Option<String> {
        match parse(amount, self.language.writing) {
            ParsedNumber::Integer(digits) => self.language.numerals.count(digits.parse().ok()?, noun),
            _ => Some(format!("{} {}", self.number(amount)?, noun.fraction)),
        }
    }

    fn number(&self, amount: &str) -> Option<String> {
        let words = self.language.numerals;
        match parse(amount, self.language.writing) {
            ParsedNumber::Integer(digits) => {
                let spelled = digits.len() > 1 && digits.starts_with('0');
                let n = digits.parse().ok().filter(|_| !spelled);
                let bare = n.filter(|_| digits == amount).and_then(self.language.bare);
                bare.or_else(|| words.cardinal(n?, Form::Alone)).or_else(|| digit_by_digit(words, &digits))
            }
            ParsedNumber::Decimal(integer, fraction) => {
                numbers::decimal(&integer, &fraction, self.language.code)
            }
            ParsedNumber::Parts(parts) => {
                let said: Option<Vec<String>> = parts.iter().map(|part| self.number(part)).collect();
                Some(said?.join(" "))
            }
        }
    }
}

/// Replaces each match for which `say` returns words, inserting spaces between it and touching letters or digits. If the
/// match itself starts or ends with a letter, that letter is context and no space is inserted there.
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

//! Numbers as words, one file per language.
//!
//! Each language reads its numbers correctly through [`Numerals`]. Where num2words (whose output the XTTS models were
//! trained on) differs, the language's file also has an `upstream` module for the Coqui cleaner; the tables are shared.

pub mod arabic;
pub mod czech;
pub mod dutch;
pub mod english;
pub mod french;
pub mod german;
mod germanic;
pub mod hungarian;
pub mod italian;
pub mod money;
pub mod polish;
pub mod portuguese;
mod romance;
pub mod russian;
mod slavic;
pub mod spanish;
pub mod turkish;

pub use money::{Currency, Money, Noun};

/// What the number modifies: in many languages "one" and "two" have other forms before a noun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// No noun: counting, a year, a room.
    Alone,
    /// A masculine noun.
    Masculine,
    /// A feminine noun.
    Feminine,
    /// A neuter noun.
    Neuter,
}

/// Form of a counted noun after a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plural {
    /// Singular.
    One,
    /// The paucal (2 to 4) of Slavic languages, and the dual and small plural of Arabic.
    Few,
    /// Every other count.
    Many,
}

/// Number words of one language. `None` means that the number is too large for its scale words.
pub trait Numerals: Sync {
    /// "forty-two".
    fn cardinal(&self, n: u128, form: Form) -> Option<String>;

    /// "forty-second", agreeing with `form` where the language's ordinals do.
    fn ordinal(&self, n: u128, form: Form) -> Option<String>;

    /// Spoken form of the decimal sign.
    fn point(&self) -> &'static str;

    /// Noun form required after `n`.
    fn plural(&self, n: u128) -> Plural {
        if n == 1 { Plural::One } else { Plural::Many }
    }

    /// "twelve point five" from the digits on both sides of the decimal sign.
    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let digits = digit_by_digit(self, fraction)?;
        Some(format!("{} {} {digits}", self.cardinal(integer, Form::Alone)?, self.point()))
    }

    /// "two cents": the number and its noun, in the order and forms of the language.
    fn count(&self, n: u128, noun: &Noun) -> Option<String> {
        Some(format!("{} {}", self.cardinal(n, noun.form)?, noun.after(self.plural(n))))
    }

    /// Names of each [`Currency`], in the order of its variants, and the word between units and hundredths.
    fn money(&self) -> &'static Money;
}

/// Returns the number words of a language by its code (`pt`, also `pt-br`); `None` if it is not supported.
pub fn numerals(language: &str) -> Option<&'static dyn Numerals> {
    let base = language.split('-').next().unwrap_or(language);
    Some(match base {
        "ar" => &arabic::Arabic,
        "cs" => &czech::Czech,
        "de" => &german::German,
        "en" => &english::English,
        "es" => &spanish::Spanish,
        "fr" => &french::French,
        "hu" => &hungarian::Hungarian,
        "it" => &italian::Italian,
        "nl" => &dutch::Dutch,
        "pl" => &polish::Polish,
        "pt" => &portuguese::Portuguese,
        "ru" => &russian::Russian,
        "tr" => &turkish::Turkish,
        _ => return None,
    })
}

/// Returns `n` in words; `None` if the language is not supported.
pub fn cardinal(n: u64, language: &str) -> Option<String> {
    numerals(language)?.cardinal(n.into(), Form::Alone)
}

/// Returns `n` as an ordinal in its citation form (masculine nominative); `None` if the language is not supported.
pub fn ordinal(n: u64, language: &str) -> Option<String> {
    numerals(language)?.ordinal(n.into(), Form::Masculine)
}

/// Reads a decimal fraction from its ASCII digits. An integer part too long for the language's scale words is read
/// digit by digit. `None` if the language is not supported or the input is not digits.
pub fn decimal(integer_digits: &str, fraction_digits: &str, language: &str) -> Option<String> {
    let words = numerals(language)?;
    if !is_digits(fraction_digits) || !(integer_digits.is_empty() || is_digits(integer_digits)) {
        return None;
    }
    let integer = if integer_digits.is_empty() { "0" } else { integer_digits };
    match integer.parse().ok().and_then(|n| words.decimal(n, fraction_digits)) {
        Some(said) => Some(said),
        None => Some(format!(
            "{} {} {}",
            digit_by_digit(words, integer)?,
            words.point(),
            digit_by_digit(words, fraction_digits)?
        )),
    }
}

/// Reads an amount of money from its ASCII digits ("20", "50"); the fraction is rounded to hundredths. `None` if the
/// language is not supported, the input is not digits, or the amount exceeds the scale words.
pub fn currency(
    integer_digits: &str,
    fraction_digits: &str,
    currency: Currency,
    language: &str,
) -> Option<String> {
    money::say(numerals(language)?, integer_digits, fraction_digits, currency)
}

/// Reads every digit as a number of its own: telephone numbers, fractions, and numbers past the last scale word.
pub fn digit_by_digit<N: Numerals + ?Sized>(words: &N, digits: &str) -> Option<String> {
    let said: Option<Vec<String>> =
        digits.chars().map(|c| c.to_digit(10).and_then(|d| words.cardinal(d.into(), Form::Alone))).collect();
    Some(said?.join(" "))
}

/// Reads the fraction as one number after its leading zeros: "zero five", "seventy-five".
fn fraction_as_number<N: Numerals + ?Sized>(words: &N, fraction: &str, form: Form) -> Option<String> {
    let tail = fraction.trim_start_matches('0');
    let zeros = &fraction[..fraction.len() - tail.len()];
    // Beyond three digits, and for a fraction of zeros, the digits are read one by one.
    if tail.is_empty() || fraction.len() > 3 {
        return digit_by_digit(words, fraction);
    }
    let mut said: Vec<String> = Vec::new();
    if !zeros.is_empty() {
        said.push(digit_by_digit(words, zeros)?);
    }
    said.push(words.cardinal(tail.parse().ok()?, form)?);
    Some(said.join(" "))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Non-zero groups of three digits, most significant first, each with its power of a thousand.
fn triplets(n: u128) -> Vec<(usize, usize)> {
    let mut groups = Vec::new();
    let (mut rest, mut power) = (n, 0);
    while rest > 0 {
        let group = (rest % 1000) as usize;
        if group > 0 {
            groups.push((group, power));
        }
        rest /= 1000;
        power += 1;
    }
    groups.reverse();
    groups
}

/// Replaces the first of these endings that `said` has; `None` if it has none of them.
fn replace_ending(said: &str, endings: &[(&str, &str)]) -> Option<String> {
    endings.iter().find_map(|(ending, new)| said.strip_suffix(ending).map(|stem| format!("{stem}{new}")))
}

/// Numerator and denominator of a fraction that Unicode writes as one character: `½`, `⅞`.
pub(crate) fn vulgar_fraction(sign: &str) -> Option<(u64, u64)> {
    Some(match sign {
        "½" => (1, 2),
        "⅓" => (1, 3),
        "⅔" => (2, 3),
        "¼" => (1, 4),
        "¾" => (3, 4),
        "⅕" => (1, 5),
        "⅖" => (2, 5),
        "⅗" => (3, 5),
        "⅘" => (4, 5),
        "⅙" => (1, 6),
        "⅚" => (5, 6),
        "⅛" => (1, 8),
        "⅜" => (3, 8),
        "⅝" => (5, 8),
        "⅞" => (7, 8),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: [&str; 13] = ["ar", "cs", "de", "en", "es", "fr", "hu", "it", "nl", "pl", "pt", "ru", "tr"];

    #[test]
    fn every_language_has_words_for_every_u64() {
        for code in CODES {
            for n in [0, 1, 2, 21, 100, 101, 1000, 1_000_000, 10u64.pow(15), u64::MAX] {
                let said = cardinal(n, code).unwrap_or_else(|| panic!("{code} {n}"));
                assert!(!said.is_empty() && !said.contains("  "), "{code} {n}: {said:?}");
                assert!(!said.contains(|c: char| c.is_ascii_digit()), "{code} {n}: {said:?}");
            }
        }
    }

    #[test]
    fn every_language_has_ordinals_to_a_million() {
        for code in CODES {
            for n in (0..3000).chain([10_000, 12_345, 100_000, 999_999, 1_000_000]) {
                let said = ordinal(n, code).unwrap_or_else(|| panic!("{code} {n}"));
                assert!(!said.trim().is_empty(), "{code} {n}");
            }
        }
    }

    #[test]
    fn different_numbers_have_different_words() {
        for code in CODES {
            let mut seen = std::collections::HashMap::new();
            for n in (0..2100).chain((2100..1_000_000).step_by(997)) {
                if let Some(other) = seen.insert(cardinal(n, code), n) {
                    panic!("{code}: {other} and {n} are both {:?}", cardinal(n, code));
                }
            }
        }
    }

    #[test]
    fn numbers_past_the_scale_words_are_read_digit_by_digit() {
        let digits = "1".repeat(60);
        assert!(decimal(&digits, "5", "en").is_some_and(|said| said.starts_with("one one one ")));
        assert_eq!(decimal("", "5", "en").as_deref(), Some("zero point five"));
        assert_eq!(decimal("1x", "5", "en"), None);
        assert_eq!(cardinal(1, "xx"), None);
    }
}

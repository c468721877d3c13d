//! English number words in American style: no "and" and no commas, so that there is no pause inside a number.

use crate::numbers;

/// "one thousand two hundred thirty-four".
pub fn cardinal(n: u64) -> String {
    plain(numbers::cardinal(n, "en"), n)
}

/// "two hundred thirty-fourth".
pub fn ordinal(n: u64) -> String {
    plain(numbers::ordinal(n, "en"), n)
}

fn plain(words: Option<String>, n: u64) -> String {
    match words {
        Some(words) => words.replace(", ", " ").replace(" and ", " "),
        // English has words for every u64; the fallback reads the digits one by one.
        None => one_by_one(&n.to_string()),
    }
}

/// "zero zero seven".
pub fn one_by_one(digits: &str) -> String {
    const DIGITS: [&str; 10] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let words: Vec<&str> =
        digits.chars().filter_map(|c| c.to_digit(10)).map(|digit| DIGITS[digit as usize]).collect();
    words.join(" ")
}

/// Reads a whole number; digit by digit if it starts with a zero or exceeds the largest scale word.
pub fn whole(digits: &str) -> String {
    match digits.parse::<u64>() {
        Ok(n) if digits.len() <= 15 && (digits.len() == 1 || !digits.starts_with('0')) => cardinal(n),
        _ => one_by_one(digits),
    }
}

/// Reads `12`, `12.5`, `.5` or `1.2.3`, without thousands separators.
pub fn amount(number: &str) -> String {
    let mut parts = number.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(digits), None, _) => whole(digits),
        (Some(""), Some(fraction), None) => format!("point {}", one_by_one(fraction)),
        (Some(digits), Some(fraction), None) => format!("{} point {}", whole(digits), one_by_one(fraction)),
        // A version or an address.
        _ => number.split('.').map(whole).collect::<Vec<_>>().join(" point "),
    }
}

/// Reads a number or an unspaced range of two: `10-20`.
pub fn spoken(number: &str) -> String {
    match number.split_once('-') {
        Some((low, high)) => format!("{} to {}", amount(low), amount(high)),
        None => amount(number),
    }
}

/// 1999 is "nineteen ninety-nine", 1905 "nineteen oh five", 1900 "nineteen hundred", 2005 "two thousand five".
pub fn year(n: u64) -> String {
    let (century, rest) = (n / 100, n % 100);
    match (n, rest) {
        (2000..2010, _) | (..1000, _) | (10_000.., _) => cardinal(n),
        (_, 0) if century.is_multiple_of(10) => cardinal(n),
        (_, 0) => format!("{} hundred", cardinal(century)),
        (_, 1..10) => format!("{} oh {}", cardinal(century), cardinal(rest)),
        _ => format!("{} {}", cardinal(century), cardinal(rest)),
    }
}

/// Plural of a number word: "nineties", "hundreds".
pub fn plural(words: &str) -> String {
    match words.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if words.ends_with('x') => format!("{words}es"),
        None => format!("{words}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_and_and_no_commas() {
        assert_eq!(
            cardinal(1_234_567),
            "one million two hundred thirty-four thousand five hundred sixty-seven"
        );
        assert_eq!(ordinal(121), "one hundred twenty-first");
        assert_eq!(amount("2.0"), "two point zero");
        assert_eq!(amount("007"), "zero zero seven");
    }

    #[test]
    fn years_are_read_in_pairs() {
        for (n, words) in [
            (1066, "ten sixty-six"),
            (1905, "nineteen oh five"),
            (1900, "nineteen hundred"),
            (1999, "nineteen ninety-nine"),
            (2000, "two thousand"),
            (2005, "two thousand five"),
            (2024, "twenty twenty-four"),
            (2100, "twenty-one hundred"),
        ] {
            assert_eq!(year(n), words);
        }
    }
}

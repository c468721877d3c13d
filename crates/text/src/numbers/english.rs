//! English numbers as num2words reads them ("and" before tens, commas between groups).

use super::{Form, Money, Noun, Numerals, triplets};

/// Number words of English.
pub struct English;

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [&str; 13] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
    "undecillion",
];
const IRREGULAR_ORDINALS: [(&str, &str); 7] = [
    ("one", "first"),
    ("two", "second"),
    ("three", "third"),
    ("five", "fifth"),
    ("eight", "eighth"),
    ("nine", "ninth"),
    ("twelve", "twelfth"),
];

fn below_hundred(n: usize) -> String {
    match (n / 10, n % 10) {
        (0 | 1, _) => ONES[n].into(),
        (tens, 0) => TENS[tens].into(),
        (tens, ones) => format!("{}-{}", TENS[tens], ONES[ones]),
    }
}

fn below_thousand(n: usize) -> String {
    match (n / 100, n % 100) {
        (0, rest) => below_hundred(rest),
        (hundreds, 0) => format!("{} hundred", ONES[hundreds]),
        (hundreds, rest) => format!("{} hundred and {}", ONES[hundreds], below_hundred(rest)),
    }
}

impl Numerals for English {
    fn cardinal(&self, n: u128, _: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        let mut said = String::new();
        for (group, power) in triplets(n) {
            if !said.is_empty() {
                said += if power == 0 && group < 100 { " and " } else { ", " };
            }
            said += &below_thousand(group);
            if power > 0 {
                said.push(' ');
                said += SCALES.get(power)?;
            }
        }
        Some(said)
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        let cardinal = self.cardinal(n, form)?;
        let start = cardinal.rfind([' ', '-']).map_or(0, |at| at + 1);
        let (head, last) = cardinal.split_at(start);
        let irregular = IRREGULAR_ORDINALS.iter().find(|(word, _)| *word == last);
        Some(match (irregular, last.strip_suffix('y')) {
            (Some((_, ordinal)), _) => format!("{head}{ordinal}"),
            (None, Some(stem)) => format!("{head}{stem}ieth"),
            (None, None) => format!("{head}{last}th"),
        })
    }

    fn point(&self) -> &'static str {
        "point"
    }

    fn money(&self) -> &'static Money {
        const CENT: Noun = Noun::two(Form::Alone, "cent", "cents");
        static MONEY: Money = Money {
            units: [
                (Noun::two(Form::Alone, "dollar", "dollars"), CENT),
                (Noun::two(Form::Alone, "pound", "pounds"), Noun::two(Form::Alone, "penny", "pence")),
                (Noun::two(Form::Alone, "euro", "euros"), CENT),
            ],
            and: " and ",
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| English.cardinal(n, Form::Alone).unwrap();
        assert_eq!(
            say(1_234_567),
            "one million, two hundred and thirty-four thousand, five hundred and sixty-seven"
        );
        assert_eq!(say(1_000_001), "one million and one");
        assert_eq!(say(1_001_000), "one million, one thousand");
        assert_eq!(say(110), "one hundred and ten");
    }

    #[test]
    fn ordinals() {
        let say = |n| English.ordinal(n, Form::Alone).unwrap();
        assert_eq!(say(21), "twenty-first");
        assert_eq!(say(12), "twelfth");
        assert_eq!(say(30), "thirtieth");
        assert_eq!(say(4), "fourth");
        assert_eq!(say(1000), "one thousandth");
    }
}

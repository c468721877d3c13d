//! Dutch numbers: one word below a million, ones before tens with a diaeresis where vowels meet.

use super::germanic::Germanic;
use super::{Form, Money, Noun, Numerals, replace_ending};

/// Number words of Dutch.
pub struct Dutch;

const ONES: [&str; 20] = [
    "nul",
    "één",
    "twee",
    "drie",
    "vier",
    "vijf",
    "zes",
    "zeven",
    "acht",
    "negen",
    "tien",
    "elf",
    "twaalf",
    "dertien",
    "veertien",
    "vijftien",
    "zestien",
    "zeventien",
    "achttien",
    "negentien",
];
const TENS: [&str; 10] =
    ["", "", "twintig", "dertig", "veertig", "vijftig", "zestig", "zeventig", "tachtig", "negentig"];
const SCALES: [&str; 13] = [
    "",
    "",
    "miljoen",
    "miljard",
    "biljoen",
    "biljard",
    "triljoen",
    "triljard",
    "quadriljoen",
    "quadriljard",
    "quintiljoen",
    "quintiljard",
    "sextiljoen",
];
/// Changes to a cardinal's ending before the "e" of the ordinal; the first match applies.
const ORDINAL_STEMS: [(&str, &str); 18] = [
    ("nul", "nuld"),
    ("één", "eerst"),
    ("twee", "tweed"),
    ("drie", "derd"),
    ("vier", "vierd"),
    ("vijf", "vijfd"),
    ("zes", "zesd"),
    ("zeven", "zevend"),
    ("acht", "achtst"),
    ("negen", "negend"),
    ("tien", "tiend"),
    ("elf", "elfd"),
    ("twaalf", "twaalfd"),
    ("ig", "igst"),
    ("erd", "erdst"),
    ("end", "endst"),
    ("joen", "joenst"),
    ("rd", "rdst"),
];

const WORDS: Germanic = Germanic {
    ones: ONES,
    tens: TENS,
    one_hundred: "honderd",
    hundred: "honderd",
    one_before_tens: "een",
    and: |ones| if matches!(ones, 2 | 3) { "ën" } else { "en" },
};

/// Years and numbers between 1100 and 1999 by their hundreds: "negentienhonderdnegenennegentig".
pub fn by_hundreds(n: u128) -> Option<String> {
    WORDS.by_hundreds(n)
}

impl Numerals for Dutch {
    fn cardinal(&self, n: u128, _: Form) -> Option<String> {
        let thousands = |group| match group {
            1 => "duizend".into(),
            _ => WORDS.below_thousand(group) + "duizend",
        };
        let large = |group, power: usize| {
            let scale = SCALES.get(power)?;
            Some(match group {
                1 => format!("een {scale}"),
                _ => format!("{} {scale}", WORDS.below_thousand(group)),
            })
        };
        WORDS.compose(n, thousands, large)
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        let cardinal = self.cardinal(n, form)?;
        let stem = replace_ending(&cardinal, &ORDINAL_STEMS).unwrap_or(cardinal);
        Some(stem + "e")
    }

    fn point(&self) -> &'static str {
        "komma"
    }

    fn money(&self) -> &'static Money {
        const A: Form = Form::Alone;
        const CENT: Noun = Noun::two(A, "cent", "cent");
        static MONEY: Money = Money {
            units: [
                (Noun::two(A, "dollar", "dollar"), CENT),
                (Noun::two(A, "pond", "pond"), Noun::two(A, "penny", "pence")),
                (Noun::two(A, "euro", "euro"), CENT),
            ],
            and: " en ",
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
    fn cardinals_and_ordinals() {
        let say = |n| Dutch.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(22), "tweeëntwintig");
        assert_eq!(say(1_999), "duizendnegenhonderdnegenennegentig");
        assert_eq!(say(1_000_001), "een miljoen één");
        assert_eq!(by_hundreds(1999).unwrap(), "negentienhonderdnegenennegentig");
        let order = |n| Dutch.ordinal(n, Form::Alone).unwrap();
        assert_eq!(order(1), "eerste");
        assert_eq!(order(8), "achtste");
        assert_eq!(order(21), "eenentwintigste");
        assert_eq!(order(1000), "duizendste");
    }
}

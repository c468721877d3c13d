//! Dutch numbers: one word below a million, ones before tens with a diaeresis where vowels meet.

use super::{Form, Money, Noun, Numerals, triplets};

/// The number words of Dutch.
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
/// How a cardinal's ending changes before the "e" of the ordinal; the first that fits.
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

fn below_thousand(n: usize) -> String {
    let (hundreds, rest) = (n / 100, n % 100);
    let mut said = match hundreds {
        0 => String::new(),
        1 => "honderd".into(),
        _ => format!("{}honderd", ONES[hundreds]),
    };
    match (rest / 10, rest % 10) {
        (0, 0) => {}
        (0 | 1, _) => said += ONES[rest],
        (tens, 0) => said += TENS[tens],
        (tens, ones) => {
            said += if ones == 1 { "een" } else { ONES[ones] };
            said += if matches!(ones, 2 | 3) { "ën" } else { "en" };
            said += TENS[tens];
        }
    }
    said
}

/// Years and numbers between 1100 and 1999 by their hundreds: "negentienhonderdnegenennegentig".
pub fn by_hundreds(n: u128) -> Option<String> {
    if !(1100..2000).contains(&n) {
        return None;
    }
    let n = n as usize;
    let rest = if n.is_multiple_of(100) { String::new() } else { below_thousand(n % 100) };
    Some(format!("{}honderd{rest}", ONES[n / 100]))
}

impl Numerals for Dutch {
    fn cardinal(&self, n: u128, _: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        let (mut large, mut small) = (Vec::new(), String::new());
        for (group, power) in triplets(n) {
            match (group, power) {
                (_, 0) => small += &below_thousand(group),
                (1, 1) => small += "duizend",
                (_, 1) => small = below_thousand(group) + "duizend",
                (1, _) => large.push(format!("een {}", SCALES.get(power)?)),
                _ => large.push(format!("{} {}", below_thousand(group), SCALES.get(power)?)),
            }
        }
        if !small.is_empty() {
            large.push(small);
        }
        Some(large.join(" "))
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        let cardinal = self.cardinal(n, form)?;
        let stem = ORDINAL_STEMS
            .iter()
            .find_map(|(ending, stem)| cardinal.strip_suffix(ending).map(|head| format!("{head}{stem}")))
            .unwrap_or(cardinal);
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

//! German numbers: one word below a million, ones before tens, everything in lower case.

use super::germanic::Germanic;
use super::{Form, Money, Noun, Numerals, replace_ending};

/// Number words of German.
pub struct German;

const ONES: [&str; 20] = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
];
const TENS: [&str; 10] =
    ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"];
const SCALES: [&str; 13] = [
    "",
    "",
    "Million",
    "Milliarde",
    "Billion",
    "Billiarde",
    "Trillion",
    "Trilliarde",
    "Quadrillion",
    "Quadrilliarde",
    "Quintillion",
    "Quintilliarde",
    "Sextillion",
];
/// Changes to a cardinal's ending before the "te" of the ordinal; the first match applies.
const ORDINAL_STEMS: [(&str, &str); 11] = [
    ("eins", "ers"),
    ("drei", "drit"),
    ("acht", "ach"),
    ("sieben", "sieb"),
    ("ig", "igs"),
    ("ert", "erts"),
    ("end", "ends"),
    ("ion", "ions"),
    ("nen", "ns"),
    ("rde", "rds"),
    ("rden", "rds"),
];

const WORDS: Germanic = Germanic {
    ones: ONES,
    tens: TENS,
    one_hundred: "einhundert",
    hundred: "hundert",
    one_before_tens: "ein",
    and: |_| "und",
};

/// `before` gives the form of a group before a scale word.
fn compose(n: u128, before: impl Fn(String) -> String) -> Option<String> {
    let thousands = |group| match group {
        1 => "eintausend".into(),
        _ => before(WORDS.below_thousand(group)) + "tausend",
    };
    let large = |group, power: usize| {
        let scale = SCALES.get(power)?;
        Some(match group {
            1 => format!("eine {scale}"),
            _ => {
                let plural = if scale.ends_with('e') { "n" } else { "en" };
                format!("{} {scale}{plural}", before(WORDS.below_thousand(group)))
            }
        })
    };
    WORDS.compose(n, thousands, large)
}

fn without_s(said: String) -> String {
    match said.strip_suffix("eins") {
        Some(stem) => format!("{stem}ein"),
        None => said,
    }
}

/// "dritte" without its "e": the stem that takes adjective endings.
pub fn ordinal_stem(n: u128) -> Option<String> {
    upstream::ordinal_from(German.cardinal(n, Form::Alone)?).strip_suffix('e').map(str::to_owned)
}

/// A year between 1100 and 1999 by its hundreds: "neunzehnhundertneunundneunzig".
pub fn by_hundreds(n: u128) -> Option<String> {
    WORDS.by_hundreds(n)
}

impl Numerals for German {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let said = compose(n, without_s)?.to_lowercase();
        Some(match form {
            Form::Alone => said,
            Form::Masculine | Form::Neuter => without_s(said),
            Form::Feminine => match said.strip_suffix("eins") {
                Some(stem) => format!("{stem}eine"),
                None => said,
            },
        })
    }

    fn ordinal(&self, n: u128, _: Form) -> Option<String> {
        Some(ordinal_stem(n)? + "e")
    }

    fn point(&self) -> &'static str {
        "komma"
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::two(M, "cent", "cent");
        static MONEY: Money = Money {
            units: [
                (Noun::two(M, "dollar", "dollar"), CENT),
                (Noun::two(Form::Neuter, "pfund", "pfund"), Noun::two(M, "penny", "pence")),
                (Noun::two(M, "euro", "euro"), CENT),
            ],
            and: " und ",
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// Capitalised scale words, and "einhunderteinstausend".
    pub fn cardinal(n: u128) -> Option<String> {
        compose(n, |group| group)
    }

    /// In lower case, which is correct.
    pub fn ordinal(n: u128) -> Option<String> {
        Some(ordinal_from(cardinal(n)?.to_lowercase()))
    }

    pub(in crate::numbers) fn ordinal_from(cardinal: String) -> String {
        let stem = replace_ending(&cardinal, &ORDINAL_STEMS).unwrap_or(cardinal);
        let said = stem + "te";
        if said == "eintausendste" || said == "einhundertste" {
            return said["ein".len()..].into();
        }
        // Millions are written together with their number, without "one": "millionste", "zweimillionste".
        match said.rsplit_once(' ') {
            Some((head, last)) if last.ends_with("illionste") || last.ends_with("illiardste") => {
                match head.strip_suffix("eine") {
                    Some(before) => format!("{}{last}", before.strip_suffix(' ').unwrap_or(before)),
                    None => format!("{head}{last}"),
                }
            }
            _ => said,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| German.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(21), "einundzwanzig");
        assert_eq!(say(101_000), "einhunderteintausend");
        assert_eq!(say(2_001_001), "zwei millionen eintausendeins");
        assert_eq!(German.cardinal(101, Form::Masculine).unwrap(), "einhundertein");
        assert_eq!(upstream::cardinal(2_101_000).unwrap(), "zwei Millionen einhunderteinstausend");
        assert_eq!(by_hundreds(1999).unwrap(), "neunzehnhundertneunundneunzig");
        assert_eq!(by_hundreds(2000), None);
    }

    #[test]
    fn ordinals() {
        let say = |n| German.ordinal(n, Form::Alone).unwrap();
        assert_eq!(say(1), "erste");
        assert_eq!(say(3), "dritte");
        assert_eq!(say(20), "zwanzigste");
        assert_eq!(say(100), "hundertste");
        assert_eq!(say(1_000_000), "millionste");
        assert_eq!(say(2_000_000), "zweimillionste");
    }
}

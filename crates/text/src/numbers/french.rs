//! French numbers: soixante-dix, quatre-vingts, the "et" before "un" and the plural of "cent".

use super::{Form, Money, Noun, Numerals, triplets};

/// Number words of French.
pub struct French;

const ONES: [&str; 20] = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze",
    "treize", "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
];
const TENS: [&str; 10] = [
    "",
    "",
    "vingt",
    "trente",
    "quarante",
    "cinquante",
    "soixante",
    "soixante",
    "quatre-vingt",
    "quatre-vingt",
];
const SCALES: [&str; 13] = [
    "",
    "mille",
    "million",
    "milliard",
    "billion",
    "billiard",
    "trillion",
    "trilliard",
    "quadrillion",
    "quadrilliard",
    "quintillion",
    "quintilliard",
    "sextillion",
];

/// `last`: no number word follows, so "quatre-vingts" and "cents" take their s.
fn below_hundred(n: usize, last: bool) -> String {
    let tens = n / 10;
    // Seventy and ninety count on from sixty and eighty.
    let rest = if matches!(tens, 7 | 9) { n % 10 + 10 } else { n % 10 };
    match (n, rest) {
        (..20, _) => ONES[n].into(),
        (80, _) if last => "quatre-vingts".into(),
        (_, 0) => TENS[tens].into(),
        (_, 1 | 11) if tens < 8 => format!("{} et {}", TENS[tens], ONES[rest]),
        _ => format!("{}-{}", TENS[tens], ONES[rest]),
    }
}

fn below_thousand(n: usize, last: bool) -> String {
    match (n / 100, n % 100) {
        (0, rest) => below_hundred(rest, last),
        (1, 0) => "cent".into(),
        (1, rest) => format!("cent {}", below_hundred(rest, last)),
        (hundreds, 0) if last => format!("{} cents", ONES[hundreds]),
        (hundreds, 0) => format!("{} cent", ONES[hundreds]),
        (hundreds, rest) => format!("{} cent {}", ONES[hundreds], below_hundred(rest, last)),
    }
}

fn cardinal(n: u128) -> Option<String> {
    if n == 0 {
        return Some(ONES[0].into());
    }
    let mut parts = Vec::new();
    for (group, power) in triplets(n) {
        parts.push(match (group, power) {
            (_, 0) => below_thousand(group, true),
            (1, 1) => "mille".into(),
            (_, 1) => format!("{} mille", below_thousand(group, false)),
            (1, _) => format!("un {}", SCALES.get(power)?),
            _ => format!("{} {}s", below_thousand(group, true), SCALES.get(power)?),
        });
    }
    Some(parts.join(" "))
}

impl Numerals for French {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let said = cardinal(n)?;
        Some(match said.strip_suffix("un") {
            Some(stem) if form == Form::Feminine => format!("{stem}une"),
            _ => said,
        })
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 1 {
            return Some(if form == Form::Feminine { "première" } else { "premier" }.into());
        }
        let said = cardinal(n)?;
        // The s of "quatre-vingts", "cents" and "millions" is dropped; that of "trois" stays.
        let bare = ["vingts", "cents", "ions", "iards"]
            .iter()
            .find_map(|tail| said.ends_with(tail).then(|| said[..said.len() - 1].to_owned()))
            .unwrap_or(said);
        Some(upstream::with_ordinal_ending(bare))
    }

    fn point(&self) -> &'static str {
        "virgule"
    }

    // Zero counts as singular too: "zéro euro".
    fn plural(&self, n: u128) -> super::Plural {
        if n < 2 { super::Plural::One } else { super::Plural::Many }
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        static MONEY: Money = Money {
            units: [
                (Noun::two(M, "dollar", "dollars"), Noun::two(M, "cent", "cents")),
                (Noun::two(Form::Feminine, "livre", "livres"), Noun::two(M, "penny", "pence")),
                (Noun::two(M, "euro", "euros"), Noun::two(M, "centime", "centimes")),
            ],
            and: " et ",
            of_millions: "de",
            elided: "d'",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    /// Same as the correct reading.
    pub fn cardinal(n: u128) -> Option<String> {
        super::cardinal(n)
    }

    /// Keeps the plural s: "quatre-vingtsième".
    pub fn ordinal(n: u128) -> Option<String> {
        if n == 1 { Some("premier".into()) } else { cardinal(n).map(with_ordinal_ending) }
    }

    pub(super) fn with_ordinal_ending(said: String) -> String {
        match (said.strip_suffix("neuf"), said.strip_suffix('e')) {
            (Some(stem), _) => format!("{stem}neuvième"),
            (None, Some(stem)) => format!("{stem}ième"),
            (None, None) if said.ends_with("cinq") => format!("{said}uième"),
            (None, None) => format!("{said}ième"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| French.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(71), "soixante et onze");
        assert_eq!(say(81), "quatre-vingt-un");
        assert_eq!(say(99), "quatre-vingt-dix-neuf");
        assert_eq!(say(280_000), "deux cent quatre-vingt mille");
        assert_eq!(say(80_000_200), "quatre-vingts millions deux cents");
        assert_eq!(French.cardinal(21, Form::Feminine).unwrap(), "vingt et une");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| French.ordinal(n, form).unwrap();
        assert_eq!(say(1, Form::Feminine), "première");
        assert_eq!(say(3, Form::Masculine), "troisième");
        assert_eq!(say(5, Form::Masculine), "cinquième");
        assert_eq!(say(80, Form::Masculine), "quatre-vingtième");
        assert_eq!(say(200, Form::Masculine), "deux centième");
        assert_eq!(upstream::ordinal(80).unwrap(), "quatre-vingtsième");
    }
}

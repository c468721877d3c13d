//! Portuguese numbers in the European spelling that the XTTS models were trained with.

use std::sync::LazyLock;

use regex::Regex;

use super::romance::Millions;
use super::{Form, Money, Noun, Numerals};

/// Number words of Portuguese.
pub struct Portuguese;

const ONES: [&str; 20] = [
    "zero",
    "um",
    "dois",
    "três",
    "quatro",
    "cinco",
    "seis",
    "sete",
    "oito",
    "nove",
    "dez",
    "onze",
    "doze",
    "treze",
    "catorze",
    "quinze",
    "dezasseis",
    "dezassete",
    "dezoito",
    "dezanove",
];
const TENS: [&str; 10] =
    ["", "", "vinte", "trinta", "quarenta", "cinquenta", "sessenta", "setenta", "oitenta", "noventa"];
const HUNDREDS: [&str; 10] = [
    "",
    "cento",
    "duzentos",
    "trezentos",
    "quatrocentos",
    "quinhentos",
    "seiscentos",
    "setecentos",
    "oitocentos",
    "novecentos",
];
/// Powers of a million; thousands come between them.
const SCALES: [(&str, &str); 5] = [
    ("", ""),
    ("milhão", "milhões"),
    ("bilião", "biliões"),
    ("trilião", "triliões"),
    ("quatrilião", "quatriliões"),
];
const ORDINALS: [[&str; 10]; 3] = [
    ["", "primeiro", "segundo", "terceiro", "quarto", "quinto", "sexto", "sétimo", "oitavo", "nono"],
    [
        "",
        "décimo",
        "vigésimo",
        "trigésimo",
        "quadragésimo",
        "quinquagésimo",
        "sexagésimo",
        "septuagésimo",
        "octogésimo",
        "nonagésimo",
    ],
    [
        "",
        "centésimo",
        "ducentésimo",
        "tricentésimo",
        "quadrigentésimo",
        "quingentésimo",
        "seiscentésimo",
        "septigentésimo",
        "octigentésimo",
        "nongentésimo",
    ],
];
const ORDINAL_SCALES: [&str; 6] =
    ["", "milésimo", "milionésimo", "milésimo milionésimo", "bilionésimo", "milésimo bilionésimo"];

fn below_thousand(n: usize) -> String {
    let mut parts = Vec::new();
    match (n / 100, n % 100) {
        (1, 0) => parts.push("cem"),
        (hundreds, rest) => {
            if hundreds > 0 {
                parts.push(HUNDREDS[hundreds]);
            }
            match (rest / 10, rest % 10) {
                (0, 0) => {}
                (0 | 1, _) => parts.push(ONES[rest]),
                (tens, 0) => parts.push(TENS[tens]),
                (tens, ones) => parts.extend([TENS[tens], ONES[ones]]),
            }
        }
    }
    parts.join(" e ")
}

fn below_million(n: usize) -> String {
    let mut parts = Vec::new();
    match n / 1000 {
        0 => {}
        1 => parts.push("mil".into()),
        thousands => parts.push(format!("{} mil", below_thousand(thousands))),
    }
    if !n.is_multiple_of(1000) {
        parts.push(below_thousand(n % 1000));
    }
    parts.join(" e ")
}

/// Joins every part by "e".
fn all_joined(n: u128) -> Option<String> {
    let words = Millions { zero: ONES[0], one: "um", scales: &SCALES, between: " e " };
    words.read(n, |group, _| below_million(group))
}

/// Removes the "e" after a scale word if hundreds with further digits follow: "mil cento e catorze", but "mil e duzentos".
fn drop_redundant_e(mut said: String) -> String {
    const SCALE_WORDS: [&str; 7] =
        ["mil", "milhão", "milhões", "mil milhões", "bilião", "biliões", "mil biliões"];
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        SCALE_WORDS
            .iter()
            .map(|word| {
                let pattern = format!(r"{word} e \w*entos? .*e");
                (Regex::new(&pattern).expect("constant patterns are valid"), *word)
            })
            .collect()
    });
    for (pattern, word) in PATTERNS.iter() {
        if pattern.is_match(&said) {
            said = said.replace(&format!("{word} e"), word);
        }
    }
    said
}

impl Numerals for Portuguese {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let said = upstream::cardinal(n)?;
        if form != Form::Feminine {
            return Some(said);
        }
        let said = said.replace("entos", "entas");
        Some(match (said.strip_suffix("um"), said.strip_suffix("dois")) {
            (Some(stem), _) => format!("{stem}uma"),
            (None, Some(stem)) => format!("{stem}duas"),
            (None, None) => said,
        })
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        let said = upstream::ordinal(n).or_else(|| self.cardinal(n, form))?;
        if form != Form::Feminine {
            return Some(said);
        }
        let words =
            said.split(' ').map(|word| word.strip_suffix('o').map_or(word.into(), |s| format!("{s}a")));
        Some(words.collect::<Vec<String>>().join(" "))
    }

    fn point(&self) -> &'static str {
        "vírgula"
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::two(M, "cêntimo", "cêntimos");
        static MONEY: Money = Money {
            units: [
                (Noun::two(M, "dólar", "dólares"), CENT),
                (Noun::two(Form::Feminine, "libra", "libras"), Noun::two(M, "péni", "pence")),
                (Noun::two(M, "euro", "euros"), CENT),
            ],
            and: " e ",
            of_millions: "de",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// Same as the correct reading.
    pub fn cardinal(n: u128) -> Option<String> {
        Some(drop_redundant_e(all_joined(n)?))
    }

    /// Applies the rule for "e" once more to the whole decimal: "mil duzentos vírgula sete".
    pub fn decimal(said: String) -> String {
        drop_redundant_e(said)
    }

    /// Digit by digit; silent at zero, `None` past 10^18.
    pub fn ordinal(n: u128) -> Option<String> {
        let (mut rest, mut index, mut parts) = (n, 0, Vec::new());
        let mut scale = "";
        while rest > 0 {
            let digit = (rest % 10) as usize;
            if index > 0 && index % 3 == 0 {
                scale = ORDINAL_SCALES.get(index / 3)?;
            }
            if digit > 0 {
                if !scale.is_empty() {
                    parts.push(scale);
                    scale = "";
                }
                parts.push(ORDINALS[index % 3][digit]);
            }
            rest /= 10;
            index += 1;
        }
        parts.reverse();
        let said = parts.join(" ");
        Some(match said.strip_prefix("primeiro ") {
            Some(tail) => tail.into(),
            None => said,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| Portuguese.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(1500), "mil e quinhentos");
        assert_eq!(say(1114), "mil cento e catorze");
        assert_eq!(say(100_200_210), "cem milhões duzentos mil duzentos e dez");
        assert_eq!(Portuguese.cardinal(222, Form::Feminine).unwrap(), "duzentas e vinte e duas");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Portuguese.ordinal(n, form).unwrap();
        assert_eq!(say(1, Form::Feminine), "primeira");
        assert_eq!(say(23, Form::Masculine), "vigésimo terceiro");
        assert_eq!(say(1000, Form::Masculine), "milésimo");
    }
}

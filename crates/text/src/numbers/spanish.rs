//! Spanish numbers: apocope before nouns and scale words, feminine hundreds, learned ordinals.

use super::romance::Millions;
use super::{Form, Money, Noun, Numerals};

/// Number words of Spanish.
pub struct Spanish;

const ONES: [&str; 30] = [
    "cero",
    "uno",
    "dos",
    "tres",
    "cuatro",
    "cinco",
    "seis",
    "siete",
    "ocho",
    "nueve",
    "diez",
    "once",
    "doce",
    "trece",
    "catorce",
    "quince",
    "dieciséis",
    "diecisiete",
    "dieciocho",
    "diecinueve",
    "veinte",
    "veintiuno",
    "veintidós",
    "veintitrés",
    "veinticuatro",
    "veinticinco",
    "veintiséis",
    "veintisiete",
    "veintiocho",
    "veintinueve",
];
const TENS: [&str; 10] =
    ["", "", "", "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"];
const HUNDREDS: [&str; 10] = [
    "",
    "ciento",
    "doscientos",
    "trescientos",
    "cuatrocientos",
    "quinientos",
    "seiscientos",
    "setecientos",
    "ochocientos",
    "novecientos",
];
/// Powers of a million; thousands come between them.
const SCALES: [(&str, &str); 5] = [
    ("", ""),
    ("millón", "millones"),
    ("billón", "billones"),
    ("trillón", "trillones"),
    ("cuatrillón", "cuatrillones"),
];

const ORDINAL_ONES: [&str; 10] =
    ["", "primero", "segundo", "tercero", "cuarto", "quinto", "sexto", "séptimo", "octavo", "noveno"];
const ORDINAL_TEENS: [&str; 10] = [
    "décimo",
    "undécimo",
    "duodécimo",
    "decimotercero",
    "decimocuarto",
    "decimoquinto",
    "decimosexto",
    "decimoséptimo",
    "decimoctavo",
    "decimonoveno",
];
const ORDINAL_TENS: [&str; 10] = [
    "",
    "",
    "vigésimo",
    "trigésimo",
    "cuadragésimo",
    "quincuagésimo",
    "sexagésimo",
    "septuagésimo",
    "octogésimo",
    "nonagésimo",
];
const ORDINAL_HUNDREDS: [&str; 10] = [
    "",
    "centésimo",
    "ducentésimo",
    "tricentésimo",
    "cuadringentésimo",
    "quingentésimo",
    "sexcentésimo",
    "septingentésimo",
    "octingentésimo",
    "noningentésimo",
];

fn below_hundred(n: usize) -> String {
    match (n, n / 10, n % 10) {
        (..30, _, _) => ONES[n].into(),
        (_, tens, 0) => TENS[tens].into(),
        (_, tens, ones) => format!("{} y {}", TENS[tens], ONES[ones]),
    }
}

fn below_thousand(n: usize) -> String {
    match (n / 100, n % 100) {
        (0, rest) => below_hundred(rest),
        (1, 0) => "cien".into(),
        (hundreds, 0) => HUNDREDS[hundreds].into(),
        (hundreds, rest) => format!("{} {}", HUNDREDS[hundreds], below_hundred(rest)),
    }
}

/// "uno" before a noun: "un", "veintiún", "una"; hundreds agree as well.
fn agree(words: String, form: Form) -> String {
    match form {
        Form::Alone => words,
        Form::Feminine => {
            let words = words.replace("cientos", "cientas").replace("quinientos", "quinientas");
            match words.strip_suffix("uno") {
                Some(stem) => format!("{stem}una"),
                None => words,
            }
        }
        Form::Masculine | Form::Neuter => {
            match (words.strip_suffix("veintiuno"), words.strip_suffix("uno")) {
                (Some(stem), _) => format!("{stem}veintiún"),
                (None, Some(stem)) => format!("{stem}un"),
                (None, None) => words,
            }
        }
    }
}

/// `before_mil` is the form of a number of thousands, `form` that of the rest.
fn below_million(n: usize, before_mil: Form, form: Form) -> String {
    let rest = |n| agree(below_thousand(n), form);
    match (n / 1000, n % 1000) {
        (0, low) => rest(low),
        (1, 0) => "mil".into(),
        (1, low) => format!("mil {}", rest(low)),
        (thousands, 0) => format!("{} mil", agree(below_thousand(thousands), before_mil)),
        (thousands, low) => format!("{} mil {}", agree(below_thousand(thousands), before_mil), rest(low)),
    }
}

/// Reads the groups of six digits with `group`, each followed by its scale word.
fn by_millions(n: u128, group: impl Fn(usize, bool) -> String) -> Option<String> {
    Millions { zero: ONES[0], one: "un", scales: &SCALES, between: " " }.read(n, group)
}

fn feminine(ordinal: &str) -> String {
    ordinal
        .split(' ')
        .map(|word| word.strip_suffix('o').map_or(word.into(), |stem| format!("{stem}a")))
        .collect::<Vec<_>>()
        .join(" ")
}

impl Numerals for Spanish {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let before_mil = if form == Form::Feminine { Form::Feminine } else { Form::Masculine };
        by_millions(n, |value, last| {
            if last {
                below_million(value, before_mil, form)
            } else {
                below_million(value, Form::Masculine, Form::Masculine)
            }
        })
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        // Past 1999 most speakers do not know the learned ordinals and use the cardinal.
        if n >= 2000 {
            return self.cardinal(n, form);
        }
        let n = n as usize;
        let mut parts: Vec<&str> = Vec::new();
        if n >= 1000 {
            parts.push("milésimo");
        }
        parts.push(ORDINAL_HUNDREDS[n / 100 % 10]);
        match (n / 10 % 10, n % 10) {
            (1, ones) => parts.push(ORDINAL_TEENS[ones]),
            (tens, ones) => parts.extend([ORDINAL_TENS[tens], ORDINAL_ONES[ones]]),
        }
        parts.retain(|part| !part.is_empty());
        let said = parts.join(" ");
        Some(if form == Form::Feminine { feminine(&said) } else { said })
    }

    fn point(&self) -> &'static str {
        "coma"
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        static MONEY: Money = Money {
            units: [
                (Noun::two(M, "dólar", "dólares"), Noun::two(M, "centavo", "centavos")),
                (Noun::two(Form::Feminine, "libra", "libras"), Noun::two(M, "penique", "peniques")),
                (Noun::two(M, "euro", "euros"), Noun::two(M, "céntimo", "céntimos")),
            ],
            and: " con ",
            of_millions: "de",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    const STEMS: [&str; 11] =
        ["", "primer", "segund", "tercer", "cuart", "quint", "sext", "séptim", "octav", "noven", "décim"];
    const TENS: [&str; 11] = [
        "",
        "décim",
        "vigésim",
        "trigésim",
        "quadragésim",
        "quincuagésim",
        "sexagésim",
        "septuagésim",
        "octogésim",
        "nonagésim",
        "centésim",
    ];
    const HUNDREDS: [&str; 11] = [
        "",
        "centésim",
        "ducentésim",
        "tricentésim",
        "cuadrigentésim",
        "quingentésim",
        "sexcentésim",
        "septigentésim",
        "octigentésim",
        "noningentésim",
        "milésim",
    ];
    const THOUSANDS: [&str; 6] = ["", "milésim", "millonésim", "billonésim", "trillonésim", "cuadrillonésim"];

    /// No apocope anywhere: "veintiuno mil".
    pub fn cardinal(n: u128) -> Option<String> {
        by_millions(n, |value, _| below_million(value, Form::Alone, Form::Alone))
    }

    /// Glued multiples ("dosmilésimo"), "décimoprimero"; zero is silent.
    pub fn ordinal(n: u128) -> Option<String> {
        let small = n.min(1000) as usize;
        let said = match n {
            0 => String::new(),
            1..=10 => format!("{}o", STEMS[small]),
            11 | 12 => format!("décimo{}", ordinal(n - 10)?),
            13..=100 => format!("{}o {}", TENS[small / 10], ordinal(n % 10)?),
            101..=1000 => format!("{}o {}", HUNDREDS[small / 100], ordinal(n % 100)?),
            1001..1_000_000_000_000_000_000 => {
                // The power comes from a floating-point logarithm, including its errors at exact powers.
                let power = ((n as f64).ln() / 1000f64.ln()) as u32;
                let unit = 1000u128.pow(power);
                let (high, low) = (n / unit, n % unit);
                let multiple = if high == 1 { String::new() } else { cardinal(high)? };
                format!("{multiple}{}o {}", THOUSANDS.get(power as usize)?, ordinal(low)?)
            }
            _ => cardinal(n)?,
        };
        Some(said.trim().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apocope_and_gender() {
        let say = |n, form| Spanish.cardinal(n, form).unwrap();
        assert_eq!(say(21_000, Form::Alone), "veintiún mil");
        assert_eq!(say(31_000_000, Form::Alone), "treinta y un millones");
        assert_eq!(say(1_000_000_000, Form::Alone), "mil millones");
        assert_eq!(say(521, Form::Feminine), "quinientas veintiuna");
        assert_eq!(say(21, Form::Masculine), "veintiún");
        assert_eq!(upstream::cardinal(21_000).unwrap(), "veintiuno mil");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Spanish.ordinal(n, form).unwrap();
        assert_eq!(say(1, Form::Feminine), "primera");
        assert_eq!(say(11, Form::Masculine), "undécimo");
        assert_eq!(say(42, Form::Feminine), "cuadragésima segunda");
        assert_eq!(upstream::ordinal(11).unwrap(), "décimoprimero");
        assert_eq!(upstream::ordinal(0).unwrap(), "");
    }
}

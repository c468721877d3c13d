//! Italian numbers: one word below a million, elided vowels, an accent on a final "tré".

use super::{Form, Money, Noun, Numerals};

/// Number words of Italian.
pub struct Italian;

const ONES: [&str; 20] = [
    "zero",
    "uno",
    "due",
    "tre",
    "quattro",
    "cinque",
    "sei",
    "sette",
    "otto",
    "nove",
    "dieci",
    "undici",
    "dodici",
    "tredici",
    "quattordici",
    "quindici",
    "sedici",
    "diciassette",
    "diciotto",
    "diciannove",
];
const TENS: [&str; 10] =
    ["", "", "venti", "trenta", "quaranta", "cinquanta", "sessanta", "settanta", "ottanta", "novanta"];
const ORDINALS: [&str; 20] = [
    "zero",
    "primo",
    "secondo",
    "terzo",
    "quarto",
    "quinto",
    "sesto",
    "settimo",
    "ottavo",
    "nono",
    "decimo",
    "undicesimo",
    "dodicesimo",
    "tredicesimo",
    "quattordicesimo",
    "quindicesimo",
    "sedicesimo",
    "diciassettesimo",
    "diciottesimo",
    "diciannovesimo",
];
const SCALES: [&str; 13] = [
    "",
    "",
    "milione",
    "miliardo",
    "bilione",
    "biliardo",
    "trilione",
    "triliardo",
    "quadrilione",
    "quadriliardo",
    "quintilione",
    "quintiliardo",
    "sestilione",
];

/// Elides vowels that meet between tens and ones: "ventuno", "trentotto".
fn elide(text: &str) -> String {
    text.replace("oo", "o").replace("ao", "o").replace("io", "o").replace("au", "u").replace("iu", "u")
}

fn below_hundred(n: usize) -> String {
    match (n / 10, n % 10) {
        (0 | 1, _) => ONES[n].into(),
        (tens, 0) => TENS[tens].into(),
        (tens, ones) => elide(&format!("{}{}", TENS[tens], ONES[ones])),
    }
}

fn below_thousand(n: usize) -> String {
    let rest = if n.is_multiple_of(100) { String::new() } else { below_hundred(n % 100) };
    match n / 100 {
        0 => rest,
        1 => format!("cento{rest}").replace("oo", "o"),
        hundreds => format!("{}cento{rest}", ONES[hundreds]).replace("oo", "o"),
    }
}

fn below_million(n: usize) -> String {
    let rest = below_thousand(n % 1000);
    match n / 1000 {
        0 => rest,
        1 => format!("mille{rest}"),
        thousands => format!("{}mila{rest}", below_thousand(thousands)),
    }
}

fn cardinal(n: u128) -> Option<String> {
    if n == 0 {
        return Some(ONES[0].into());
    }
    let mut said = match (n % 1_000_000) as usize {
        0 => String::new(),
        rest => below_million(rest),
    };
    let (mut high, mut power) = (n / 1_000_000, 2);
    while high > 0 {
        let group = (high % 1000) as usize;
        if group > 0 {
            let scale = SCALES.get(power)?;
            let counted = match group {
                1 => format!("un {scale}"),
                _ => format!("{} {}i", below_thousand(group), &scale[..scale.len() - 1]),
            };
            said = match (said.is_empty(), said.contains(" e ")) {
                (true, _) => counted,
                (false, true) => format!("{counted}, {said}"),
                (false, false) => format!("{counted} e {said}"),
            };
        }
        high /= 1000;
        power += 1;
    }
    Some(said.split(' ').map(accent).collect::<Vec<_>>().join(" "))
}

/// "tré" at the end of a compound and nowhere else.
fn accent(word: &str) -> String {
    match word.strip_suffix("tre") {
        Some(stem) if !stem.is_empty() => format!("{stem}tré"),
        _ => word.into(),
    }
}

/// Ordinal from 20 on, built from the spoken cardinal `said`.
fn ordinal_from(said: &str, n: u128) -> String {
    let teens = (11..20).contains(&(n % 100));
    let short = || {
        let mut chars = said.chars();
        chars.next_back();
        chars.as_str()
    };
    match n % 10 {
        3 if !teens => format!("{}eesimo", short()),
        6 if !teens => format!("{said}esimo"),
        _ if short().ends_with("mil") => format!("{}lesimo", short()),
        _ => format!("{}esimo", short()),
    }
}

impl Numerals for Italian {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        Some(match (n, form) {
            (1, Form::Masculine | Form::Neuter) => "un".into(),
            (1, Form::Feminine) => "una".into(),
            _ => cardinal(n)?,
        })
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        let said = match ORDINALS.get(n as usize) {
            Some(short) => (*short).into(),
            None => ordinal_from(&cardinal(n)?, n),
        };
        let said = said.strip_prefix("un ").map_or(said.clone(), str::to_owned);
        Some(match said.strip_suffix('o') {
            Some(stem) if form == Form::Feminine && n > 0 => format!("{stem}a"),
            _ => said,
        })
    }

    fn point(&self) -> &'static str {
        "virgola"
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::two(M, "centesimo", "centesimi");
        static MONEY: Money = Money {
            units: [
                (Noun::two(M, "dollaro", "dollari"), CENT),
                (Noun::two(Form::Feminine, "sterlina", "sterline"), Noun::two(M, "penny", "penny")),
                (Noun::two(M, "euro", "euro"), CENT),
            ],
            and: " e ",
            of_millions: "di",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// Vowels are elided where they should not be ("centodicotto"), and the accent is added and removed again at every level
    /// of the recursion ("centoventitre").
    pub fn cardinal(n: u128) -> Option<String> {
        let said = match n {
            0..20 => ONES[n as usize].into(),
            20..100 => elide(&format!("{}{}", TENS[n as usize / 10], rest_words(n % 10)?)),
            100..200 => elide(&format!("cento{}", rest_words(n % 100)?)),
            200..1000 => elide(&format!("{}cento{}", ONES[n as usize / 100], rest_words(n % 100)?)),
            1000..2000 => format!("mille{}", rest_words(n % 1000)?),
            2000..1_000_000 => format!("{}mila{}", cardinal(n / 1000)?, rest_words(n % 1000)?),
            _ => {
                let power = (n.ilog10() / 3) as usize;
                let unit = 1000u128.pow(power as u32);
                let scale = SCALES.get(power)?;
                let counted = match n / unit {
                    1 => format!("un {scale}"),
                    many => format!("{} {}i", cardinal(many)?, &scale[..scale.len() - 1]),
                };
                let rest = rest_words(n % unit)?;
                match (rest.is_empty(), rest.contains(" e ")) {
                    (true, _) => counted,
                    (false, true) => format!("{counted}, {rest}"),
                    (false, false) => format!("{counted} e {rest}"),
                }
            }
        };
        Some(toggle_accents(&said))
    }

    /// One more level of the recursion, around the words of a decimal.
    pub fn decimal(said: String) -> String {
        toggle_accents(&said)
    }

    fn toggle_accents(said: &str) -> String {
        said.split(' ').map(toggle_accent).collect::<Vec<_>>().join(" ")
    }

    fn rest_words(n: u128) -> Option<String> {
        if n == 0 { Some(String::new()) } else { cardinal(n) }
    }

    fn toggle_accent(word: &str) -> String {
        let plain = word.replace("tré", "tre");
        if word.ends_with("tre") { accent(&plain) } else { plain }
    }

    /// Built from that cardinal.
    pub fn ordinal(n: u128) -> Option<String> {
        match ORDINALS.get(n as usize) {
            Some(short) => Some((*short).into()),
            None => Some(ordinal_from(&cardinal(n)?, n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| Italian.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(28), "ventotto");
        assert_eq!(say(33), "trentatré");
        assert_eq!(say(23_003), "ventitremilatré");
        assert_eq!(say(118), "centodiciotto");
        assert_eq!(say(108), "centotto");
        assert_eq!(say(2_000_500), "due milioni e cinquecento");
        assert_eq!(say(123), "centoventitré");
        assert_eq!(upstream::cardinal(118).unwrap(), "centodicotto");
        assert_eq!(upstream::cardinal(123).unwrap(), "centoventitre");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Italian.ordinal(n, form).unwrap();
        assert_eq!(say(1, Form::Feminine), "prima");
        assert_eq!(say(23, Form::Masculine), "ventitreesimo");
        assert_eq!(say(2000, Form::Masculine), "duemillesimo");
        assert_eq!(say(1_000_000, Form::Masculine), "milionesimo");
    }
}

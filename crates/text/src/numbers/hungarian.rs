//! Hungarian numbers: one word with hyphens between groups past two thousand, "két" before a noun.

use super::{Form, Money, Noun, Numerals, Plural, digit_by_digit, replace_ending};

/// Number words of Hungarian.
pub struct Hungarian;

const ONES: [&str; 10] = ["nulla", "egy", "kettő", "három", "négy", "öt", "hat", "hét", "nyolc", "kilenc"];
/// Tens alone and before ones.
const TENS: [(&str, &str); 10] = [
    ("", ""),
    ("tíz", "tizen"),
    ("húsz", "huszon"),
    ("harminc", "harminc"),
    ("negyven", "negyven"),
    ("ötven", "ötven"),
    ("hatvan", "hatvan"),
    ("hetven", "hetven"),
    ("nyolcvan", "nyolcvan"),
    ("kilencven", "kilencven"),
];
const SCALES: [&str; 13] = [
    "",
    "ezer",
    "millió",
    "milliárd",
    "billió",
    "billiárd",
    "trillió",
    "trilliárd",
    "quadrillió",
    "quadrilliárd",
    "quintillió",
    "quintilliárd",
    "sextillió",
];
/// Fractional stems; with "ik" they are ordinals.
const STEMS: [(&str, &str); 21] = [
    ("nulla", "nullad"),
    ("egy", "egyed"),
    ("kettő", "ketted"),
    ("három", "harmad"),
    ("négy", "negyed"),
    ("öt", "ötöd"),
    ("hat", "hatod"),
    ("hét", "heted"),
    ("nyolc", "nyolcad"),
    ("kilenc", "kilenced"),
    ("tíz", "tized"),
    ("húsz", "huszad"),
    ("harminc", "harmincad"),
    ("negyven", "negyvened"),
    ("ötven", "ötvened"),
    ("hatvan", "hatvanad"),
    ("hetven", "hetvened"),
    ("nyolcvan", "nyolcvanad"),
    ("kilencven", "kilencvened"),
    ("száz", "század"),
    ("ezer", "ezred"),
];

/// Empty for zero. A lone two after hundreds is "két", as num2words writes it.
fn below_thousand(n: usize) -> String {
    let mut said = match n / 100 {
        0 => String::new(),
        1 => "száz".into(),
        2 => "kétszáz".into(),
        hundreds => format!("{}száz", ONES[hundreds]),
    };
    match (n / 10 % 10, n % 10) {
        (tens, 0) => said += TENS[tens].0,
        (0, 2) if n > 100 => said += "két",
        (tens, ones) => {
            said += TENS[tens].1;
            said += ONES[ones];
        }
    }
    said
}

/// A whole number; `two` is the reading of a group that equals two.
fn compose(n: u128, two: &str) -> Option<String> {
    if n < 1000 {
        return Some(if n == 2 { two.into() } else { below_thousand(n as usize) });
    }
    if n < 1_000_000 {
        let (thousands, rest) = (n / 1000, n % 1000);
        let head = if thousands == 1 { String::new() } else { compose(thousands, "két")? };
        let tail = compose(rest, "két")?;
        let hyphen = if n <= 2000 || tail.is_empty() { "" } else { "-" };
        return Some(format!("{head}ezer{hyphen}{tail}"));
    }
    let power = (n.ilog10() / 3) as usize;
    let unit = 1000u128.pow(power as u32);
    let tail = compose(n % unit, "két")?;
    let hyphen = if tail.is_empty() { "" } else { "-" };
    Some(format!("{}{}{hyphen}{tail}", compose(n / unit, "két")?, SCALES.get(power)?))
}

fn stem_of(cardinal: &str) -> Option<String> {
    replace_ending(cardinal, &STEMS)
}

impl Numerals for Hungarian {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let said = match n {
            0 => ONES[0].into(),
            _ => compose(n, "kettő")?,
        };
        // num2words writes "két" at the end of thousands; alone it is "kettő", before a noun always "két".
        let stem = said.strip_suffix("kettő").or_else(|| said.strip_suffix("két"));
        Some(match (stem, form) {
            (Some(stem), Form::Alone) => format!("{stem}kettő"),
            (Some(stem), _) => format!("{stem}két"),
            (None, _) => said,
        })
    }

    fn ordinal(&self, n: u128, _: Form) -> Option<String> {
        match n {
            1 => return Some("első".into()),
            2 => return Some("második".into()),
            _ => {}
        }
        let said = self.cardinal(n, Form::Alone)?;
        let stem = match (said.strip_suffix("illió"), said.strip_suffix("illiárd")) {
            (Some(head), _) => format!("{head}illiomod"),
            (None, Some(head)) => format!("{head}illiárdod"),
            (None, None) => stem_of(&said)?,
        };
        Some(stem + "ik")
    }

    fn point(&self) -> &'static str {
        "egész"
    }

    // Nouns stay singular after any number.
    fn plural(&self, _: u128) -> Plural {
        Plural::One
    }

    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let unit = match fraction.len() {
            1 => " tized",
            2 => " század",
            3 => " ezred",
            _ => "",
        };
        let tail = match unit {
            "" => digit_by_digit(self, fraction)?,
            _ => self.cardinal(fraction.parse().ok()?, Form::Neuter)?,
        };
        Some(format!("{} egész {tail}{unit}", self.cardinal(integer, Form::Alone)?))
    }

    fn money(&self) -> &'static Money {
        const N: Form = Form::Neuter;
        const CENT: Noun = Noun::two(N, "cent", "cent");
        static MONEY: Money = Money {
            units: [
                (Noun::two(N, "dollár", "dollár"), CENT),
                (Noun::two(N, "font", "font"), Noun::two(N, "penny", "penny")),
                (Noun::two(N, "euró", "euró"), CENT),
            ],
            and: " ",
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// "két" for every group that equals two, including the last.
    pub fn cardinal(n: u128) -> Option<String> {
        if n == 0 { Some(ONES[0].into()) } else { compose(n, "kettő") }
    }

    /// With a doubled m in "milliomod".
    pub fn ordinal(n: u128) -> Option<String> {
        match n {
            1 => return Some("első".into()),
            2 => return Some("második".into()),
            _ => {}
        }
        let said = cardinal(n)?;
        let stem = match (stem_of(&said), said.strip_suffix("illió"), said.strip_suffix("illiárd")) {
            (Some(stem), _, _) => stem,
            (None, Some(head), _) => format!("{head}milliomod"),
            (None, None, Some(head)) => format!("{head}milliárdod"),
            (None, None, None) => said,
        };
        Some(stem + "ik")
    }

    /// Tenths, hundredths and thousandths only.
    pub fn decimal(integer: u128, fraction: &str) -> Option<String> {
        let unit = match fraction.len() {
            1 => "tized",
            2 => "század",
            3 => "ezred",
            _ => return None,
        };
        Some(format!("{} egész {} {unit}", cardinal(integer)?, cardinal(fraction.parse().ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals_and_ordinals() {
        let say = |n, form| Hungarian.cardinal(n, form).unwrap();
        assert_eq!(say(1_995, Form::Alone), "ezerkilencszázkilencvenöt");
        assert_eq!(say(2_345, Form::Alone), "kétezer-háromszáznegyvenöt");
        assert_eq!(say(12, Form::Neuter), "tizenkét");
        assert_eq!(say(1002, Form::Alone), "ezerkettő");
        assert_eq!(say(102, Form::Alone), "százkettő");
        assert_eq!(say(102_000, Form::Alone), "százkétezer");
        assert_eq!(upstream::cardinal(102).unwrap(), "százkét");
        let order = |n| Hungarian.ordinal(n, Form::Alone).unwrap();
        assert_eq!(order(1), "első");
        assert_eq!(order(25), "huszonötödik");
        assert_eq!(order(1_000_000), "egymilliomodik");
        assert_eq!(Hungarian.decimal(12, "5").unwrap(), "tizenkettő egész öt tized");
    }
}

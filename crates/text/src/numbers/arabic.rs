//! Arabic numbers: numbers that disagree in gender with the noun they count, a dual, and three noun forms.

use super::{Form, Money, Noun, Numerals, triplets};

/// Number words of Arabic.
pub struct Arabic;

const ONES: [&str; 20] = [
    "صفر",
    "واحد",
    "اثنان",
    "ثلاثة",
    "أربعة",
    "خمسة",
    "ستة",
    "سبعة",
    "ثمانية",
    "تسعة",
    "عشرة",
    "أحد عشر",
    "اثنا عشر",
    "ثلاثة عشر",
    "أربعة عشر",
    "خمسة عشر",
    "ستة عشر",
    "سبعة عشر",
    "ثمانية عشر",
    "تسعة عشر",
];
/// Used before feminine nouns.
const FEMININE_ONES: [&str; 20] = [
    "صفر",
    "إحدى",
    "اثنتان",
    "ثلاث",
    "أربع",
    "خمس",
    "ست",
    "سبع",
    "ثمان",
    "تسع",
    "عشر",
    "إحدى عشرة",
    "اثنتا عشرة",
    "ثلاث عشرة",
    "أربع عشرة",
    "خمس عشرة",
    "ست عشرة",
    "سبع عشرة",
    "ثماني عشرة",
    "تسع عشرة",
];
const TENS: [&str; 10] = ["", "", "عشرون", "ثلاثون", "أربعون", "خمسون", "ستون", "سبعون", "ثمانون", "تسعون"];
const HUNDREDS: [&str; 10] =
    ["", "مائة", "مئتان", "ثلاثمائة", "أربعمائة", "خمسمائة", "ستمائة", "سبعمائة", "ثمانمائة", "تسعمائة"];
const SCALES: [&str; 10] =
    ["", "ألف", "مليون", "مليار", "تريليون", "كوادريليون", "كوينتليون", "سكستيليون", "سبتيليون", "أوكتيليون"];
const SCALE_PLURALS: [&str; 10] = [
    "",
    "آلاف",
    "ملايين",
    "مليارات",
    "تريليونات",
    "كوادريليونات",
    "كوينتليونات",
    "سكستيليونات",
    "سبتيليونات",
    "أوكتيليونات",
];
const ORDINALS: [&str; 20] = [
    "صفر",
    "أول",
    "ثاني",
    "ثالث",
    "رابع",
    "خامس",
    "سادس",
    "سابع",
    "ثامن",
    "تاسع",
    "عاشر",
    "حادي عشر",
    "ثاني عشر",
    "ثالث عشر",
    "رابع عشر",
    "خامس عشر",
    "سادس عشر",
    "سابع عشر",
    "ثامن عشر",
    "تاسع عشر",
];

const AND: &str = " و ";

fn below_hundred(n: usize, ones: &[&str; 20]) -> String {
    match (n / 10, n % 10) {
        (0 | 1, _) => ones[n].into(),
        (tens, 0) => TENS[tens].into(),
        (tens, one) => format!("{}{AND}{}", ones[one], TENS[tens]),
    }
}

fn below_thousand(n: usize, ones: &[&str; 20]) -> String {
    match (n / 100, n % 100) {
        (0, rest) => below_hundred(rest, ones),
        (hundreds, 0) => HUNDREDS[hundreds].into(),
        (hundreds, rest) => format!("{}{AND}{}", HUNDREDS[hundreds], below_hundred(rest, ones)),
    }
}

impl Numerals for Arabic {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        let ones = if form == Form::Feminine { &FEMININE_ONES } else { &ONES };
        let mut parts = Vec::new();
        for (group, power) in triplets(n) {
            let scale = *SCALES.get(power)?;
            parts.push(match (group, group % 100) {
                _ if power == 0 => below_thousand(group, ones),
                (1, _) => scale.into(),
                (2, _) => format!("{scale}ان"),
                (200, _) => format!("مئتا {scale}"),
                (_, 3..=10) => format!("{} {}", below_thousand(group, &ONES), SCALE_PLURALS[power]),
                (_, 11..=99) => format!("{} {scale}اً", below_thousand(group, &ONES)),
                _ => format!("{} {scale}", below_thousand(group, &ONES)),
            });
        }
        Some(parts.join(AND))
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n >= 100 {
            return self.cardinal(n, form);
        }
        let n = n as usize;
        let feminine = |word: &str| match word {
            _ if form != Form::Feminine => word.to_owned(),
            "أول" => "أولى".into(),
            _ => match word.split_once(' ') {
                Some((one, ten)) => format!("{one}ة {ten}ة"),
                None => format!("{word}ة"),
            },
        };
        Some(match (n / 10, n % 10) {
            (0 | 1, _) if n == 0 => ORDINALS[0].into(),
            (0 | 1, _) => feminine(ORDINALS[n]),
            (tens, 0) => TENS[tens].into(),
            (tens, 1) => format!("{}{AND}{}", feminine("حادي"), TENS[tens]),
            (tens, one) => format!("{}{AND}{}", feminine(ORDINALS[one]), TENS[tens]),
        })
    }

    fn point(&self) -> &'static str {
        "فاصلة"
    }

    /// One and two are expressed by the noun itself; three to ten take the plural, eleven to ninety-nine the singular
    /// accusative ([`Noun::many`]), hundreds the plain singular.
    fn count(&self, n: u128, noun: &Noun) -> Option<String> {
        let feminine = noun.form == Form::Feminine;
        Some(match (n, n % 100) {
            (1, _) => format!("{} {}", noun.one, if feminine { "واحدة" } else { "واحد" }),
            // A word that ends in a long u has no dual.
            (2, _) if !noun.one.ends_with('و') => noun
                .one
                .split(' ')
                .map(|word| match word.strip_suffix('ة') {
                    Some(stem) => format!("{stem}تان"),
                    None => format!("{word}ان"),
                })
                .collect::<Vec<_>>()
                .join(" "),
            (200, _) => format!("مئتا {}", noun.one),
            (_, 3..=10) => format!("{} {}", self.cardinal(n, noun.form)?, noun.few),
            (_, 11..=99) => format!("{} {}", self.cardinal(n, noun.form)?, noun.many),
            _ => format!("{} {}", self.cardinal(n, noun.form)?, noun.one),
        })
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::four(M, "سنت", "سنتات", "سنتاً", "سنت");
        static MONEY: Money = Money {
            units: [
                (Noun::four(M, "دولار", "دولارات", "دولاراً", "دولار"), CENT),
                (
                    Noun::four(M, "جنيه إسترليني", "جنيهات إسترلينية", "جنيهاً إسترلينياً", "جنيه إسترليني"),
                    Noun::four(M, "بنس", "بنسات", "بنساً", "بنس"),
                ),
                (Noun::two(M, "يورو", "يورو"), CENT),
            ],
            and: AND,
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// The number with its endings glued as num2words does it; empty for zero. `ones` are the unit words.
    fn compose(n: u128, ones: &[&str; 20]) -> Option<String> {
        let mut said = String::new();
        for &(group, power) in triplets(n).iter().rev() {
            let scale = *SCALES.get(power)?;
            let words = group_words(group, power, n, ones)?;
            if power > 0 {
                if !said.is_empty() {
                    said = format!("و {said}");
                }
                said = match group {
                    1 | 2 => said,
                    3..=10 => format!("{} {said}", SCALE_PLURALS[power]),
                    _ if group % 100 == 1 || said.is_empty() => format!("{scale} {said}"),
                    _ => format!("{scale}اً {said}"),
                };
            }
            said = format!("{words} {said}");
        }
        Some(said)
    }

    fn group_words(group: usize, power: usize, n: u128, ones: &[&str; 20]) -> Option<String> {
        // Only the last group of a number agrees with the counted noun.
        let ones = if power == 0 { ones } else { &ONES };
        let (hundreds, rest) = (group / 100, group % 100);
        let mut said = match (hundreds, rest) {
            (2, 0) => "مئتا".into(),
            (0, _) | (_, 0) => HUNDREDS[hundreds].to_owned(),
            _ => format!("{}{AND}", HUNDREDS[hundreds]),
        };
        let scale = *SCALES.get(power)?;
        match rest {
            0 => {}
            2 if power > 0 && hundreds == 0 => {
                let alone = n == 2 * 1000u128.pow(power as u32);
                said = format!("{scale}{}", if alone { "ا" } else { "ان" });
            }
            1 if power > 0 => said += scale,
            _ => said += &below_hundred(rest, ones),
        }
        Some(said)
    }

    /// The cardinal; two hundred and two thousand lose their endings.
    pub fn cardinal(n: u128) -> Option<String> {
        if n == 0 { Some(ONES[0].into()) } else { Some(compose(n, &ONES)?.trim().into()) }
    }

    /// A decimal keeps two digits, counted as feminine hundredths: "12.5" is twelve and fifty.
    pub fn decimal(integer: u128, hundredths: usize) -> Option<String> {
        let mut said = compose(integer, &ONES)?;
        if hundredths > 0 {
            said += &format!(" , {} ", below_hundred(hundredths, &FEMININE_ONES));
        }
        Some(said.trim().into())
    }

    /// Every currency is read as the Saudi riyal of a hundred halalas; amounts below one halala are silent.
    pub fn riyals(integer: u128, hundredths: usize) -> Option<String> {
        let mut said = compose(integer, &ONES)?;
        if integer > 0 {
            said += match (integer, integer % 100) {
                (2, _) => "ريالان",
                (_, 3..=10) => "ريالات",
                (_, 11..=99) => "ريالاً",
                _ => "ريال",
            };
        }
        if hundredths > 0 {
            let unit = match hundredths {
                2 => "هللتان",
                3..=10 => "هللات",
                _ => "هللة",
            };
            said += &format!("{AND}{} {unit}", below_hundred(hundredths, &FEMININE_ONES));
        }
        Some(said)
    }

    /// Real ordinals to nineteen; then cardinals, feminine below a hundred. Zero is silent.
    pub fn ordinal(n: u128) -> Option<String> {
        match n {
            0 => Some(String::new()),
            1 => Some("اول".into()),
            2..=19 => Some(ORDINALS[n as usize].into()),
            20..=99 => Some(compose(n, &FEMININE_ONES)?.trim().into()),
            _ => cardinal(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n| Arabic.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(200), "مئتان");
        assert_eq!(say(2000), "ألفان");
        assert_eq!(say(3005), "ثلاثة آلاف و خمسة");
        assert_eq!(say(1_234), "ألف و مئتان و أربعة و ثلاثون");
        assert_eq!(upstream::cardinal(2000).unwrap(), "ألفا");
    }

    #[test]
    fn counted_nouns() {
        let (dollar, cent) = &Arabic.money().units[0];
        assert_eq!(Arabic.count(1, dollar).unwrap(), "دولار واحد");
        assert_eq!(Arabic.count(2, cent).unwrap(), "سنتان");
        assert_eq!(Arabic.count(5, dollar).unwrap(), "خمسة دولارات");
        assert_eq!(Arabic.count(20, dollar).unwrap(), "عشرون دولاراً");
        assert_eq!(Arabic.count(100, dollar).unwrap(), "مائة دولار");
    }
}

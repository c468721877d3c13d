//! Polish numbers: three plural forms, gender at one and two, ordinals that inflect in their last two words.

use super::slavic::{BelowThousand, LastGroup, WestOrdinals, last_group, west_plural};
use super::{Form, Money, Noun, Numerals, Plural, fraction_as_number, triplets};

/// Number words of Polish.
pub struct Polish;

const ONES: [&str; 10] =
    ["zero", "jeden", "dwa", "trzy", "cztery", "pięć", "sześć", "siedem", "osiem", "dziewięć"];
const TEENS: [&str; 10] = [
    "dziesięć",
    "jedenaście",
    "dwanaście",
    "trzynaście",
    "czternaście",
    "piętnaście",
    "szesnaście",
    "siedemnaście",
    "osiemnaście",
    "dziewiętnaście",
];
const TENS: [&str; 10] = [
    "",
    "",
    "dwadzieścia",
    "trzydzieści",
    "czterdzieści",
    "pięćdziesiąt",
    "sześćdziesiąt",
    "siedemdziesiąt",
    "osiemdziesiąt",
    "dziewięćdziesiąt",
];
const HUNDREDS: [&str; 10] = [
    "",
    "sto",
    "dwieście",
    "trzysta",
    "czterysta",
    "pięćset",
    "sześćset",
    "siedemset",
    "osiemset",
    "dziewięćset",
];
/// Scale words; all but the first add "y" for a few and "ów" for many.
const SCALES: [&str; 13] = [
    "",
    "tysiąc",
    "milion",
    "miliard",
    "bilion",
    "biliard",
    "trylion",
    "tryliard",
    "kwadrylion",
    "kwadryliard",
    "kwintylion",
    "kwintyliard",
    "sekstylion",
];
const ORDINAL_ONES: [&str; 20] = [
    "zerowy",
    "pierwszy",
    "drugi",
    "trzeci",
    "czwarty",
    "piąty",
    "szósty",
    "siódmy",
    "ósmy",
    "dziewiąty",
    "dziesiąty",
    "jedenasty",
    "dwunasty",
    "trzynasty",
    "czternasty",
    "piętnasty",
    "szesnasty",
    "siedemnasty",
    "osiemnasty",
    "dziewiętnasty",
];
const ORDINAL_TENS: [&str; 10] = [
    "",
    "",
    "dwudziesty",
    "trzydziesty",
    "czterdziesty",
    "pięćdziesiąty",
    "sześćdziesiąty",
    "siedemdziesiąty",
    "osiemdziesiąty",
    "dziewięćdziesiąty",
];
const ORDINAL_HUNDREDS: [&str; 10] = [
    "",
    "setny",
    "dwusetny",
    "trzysetny",
    "czterysetny",
    "pięćsetny",
    "sześćsetny",
    "siedemsetny",
    "osiemsetny",
    "dziewięćsetny",
];
/// Genitive stems glued before "tysięczny": dwu-, dwudziesto-, stu-.
const STEM_ONES: [&str; 20] = [
    "",
    "jedno",
    "dwu",
    "trzy",
    "cztero",
    "pięcio",
    "sześcio",
    "siedmio",
    "ośmio",
    "dziewięcio",
    "dziesięcio",
    "jedenasto",
    "dwunasto",
    "trzynasto",
    "czternasto",
    "piętnasto",
    "szesnasto",
    "siedemnasto",
    "osiemnasto",
    "dziewiętnasto",
];
const STEM_TENS: [&str; 10] = [
    "",
    "",
    "dwudziesto",
    "trzydziesto",
    "czterdziesto",
    "pięćdziesięcio",
    "sześćdziesięcio",
    "siedemdziesięcio",
    "osiemdziesięcio",
    "dziewięćdziesięcio",
];
const STEM_HUNDREDS: [&str; 10] = [
    "",
    "stu",
    "dwustu",
    "trzystu",
    "czterystu",
    "pięćset",
    "sześćset",
    "siedemset",
    "osiemset",
    "dziewięćset",
];
const ORDINAL_SCALES: [&str; 5] = ["", "tysięczny", "milionowy", "miliardowy", "bilionowy"];

const ORDINALS: WestOrdinals =
    WestOrdinals { ones: ORDINAL_ONES, tens: ORDINAL_TENS, hundreds: ORDINAL_HUNDREDS };

/// Only the last word distinguishes genders: see [`Polish::cardinal`](Numerals::cardinal).
const BELOW_THOUSAND: BelowThousand =
    BelowThousand { hundreds: HUNDREDS, tens: TENS, teens: TEENS, ones: |ones, _| ONES[ones] };

fn cardinal_words(n: u128) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for (group, power) in triplets(n) {
        if power == 0 || group > 1 {
            BELOW_THOUSAND.push(group, Form::Alone, &mut words);
        }
        if power > 0 {
            let scale = SCALES.get(power)?;
            words.push(match (power, west_plural(group as u128)) {
                (_, Plural::One) => (*scale).into(),
                (1, Plural::Few) => "tysiące".into(),
                (1, Plural::Many) => "tysięcy".into(),
                (_, Plural::Few) => format!("{scale}y"),
                (_, Plural::Many) => format!("{scale}ów"),
            });
        }
    }
    Some(words)
}

/// Changes an ordinal's words from the masculine nominative to another ending: "ego" gives "trzeciego", "dwudziestego".
pub fn inflect(ordinal: &str, ending: &str) -> String {
    let inflected = ordinal.split(' ').map(|word| {
        let adjective = ORDINAL_ONES.contains(&word)
            || ORDINAL_TENS.contains(&word)
            || ORDINAL_HUNDREDS.contains(&word)
            || ORDINAL_SCALES.iter().any(|scale| !scale.is_empty() && word.ends_with(scale));
        match (adjective, word.strip_suffix('y'), word.strip_suffix("gi"), word.strip_suffix('i')) {
            (true, Some(stem), _, _) => format!("{stem}{ending}"),
            // After k and g an "i" stays before "e": drugi, druga, drugiego.
            (true, _, Some(stem), _) if ending.starts_with('e') => format!("{stem}gi{ending}"),
            (true, _, Some(stem), _) => format!("{stem}g{ending}"),
            (true, _, _, Some(stem)) => format!("{stem}i{ending}"),
            _ => word.into(),
        }
    });
    inflected.collect::<Vec<String>>().join(" ")
}

impl Numerals for Polish {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let mut words = cardinal_words(n)?;
        let Some(last) = words.last_mut() else { return Some(ONES[0].into()) };
        match (n, last.as_str(), form) {
            (1, _, Form::Feminine) => *last = "jedna".into(),
            (1, _, Form::Neuter) => *last = "jedno".into(),
            (_, "dwa", Form::Feminine) => *last = "dwie".into(),
            _ => {}
        }
        Some(words.join(" "))
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ORDINAL_ONES[0].into());
        }
        let last = last_group(n);
        let mut words = cardinal_words(last.head)?;
        if last.power > 0 {
            let (hundreds, rest) = (last.group / 100, last.group % 100);
            let stem = match (last.group, rest) {
                (1, _) => String::new(),
                (_, 0..20) => format!("{}{}", STEM_HUNDREDS[hundreds], STEM_ONES[rest]),
                _ => format!("{}{}{}", STEM_HUNDREDS[hundreds], STEM_TENS[rest / 10], STEM_ONES[rest % 10]),
            };
            words.push(format!("{stem}{}", ORDINAL_SCALES.get(last.power)?));
        } else {
            ORDINALS.push(last.group, &HUNDREDS, &mut words);
        }
        let said = words.join(" ");
        Some(match form {
            Form::Feminine => inflect(&said, "a"),
            Form::Neuter => inflect(&said, "e"),
            _ => said,
        })
    }

    fn point(&self) -> &'static str {
        "przecinek"
    }

    fn plural(&self, n: u128) -> Plural {
        west_plural(n)
    }

    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let fraction = fraction_as_number(self, fraction, Form::Alone)?;
        Some(format!("{} {} {fraction}", self.cardinal(integer, Form::Alone)?, self.point()))
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::four(M, "cent", "centy", "centów", "centa");
        static MONEY: Money = Money {
            units: [
                (Noun::four(M, "dolar", "dolary", "dolarów", "dolara"), CENT),
                (
                    Noun::four(M, "funt", "funty", "funtów", "funta"),
                    Noun::four(M, "pens", "pensy", "pensów", "pensa"),
                ),
                (Noun::two(Form::Neuter, "euro", "euro"), CENT),
            ],
            and: " i ",
            of_millions: "",
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
        Polish.cardinal(n, Form::Alone)
    }

    /// num2words has an incomplete table of stems before "tysięczny": some are missing (no reading at all), some
    /// misspelt, and compounds use full ordinals there.
    pub fn ordinal(n: u128) -> Option<String> {
        if n == 0 {
            return None;
        }
        let LastGroup { head, group: last, power } = last_group(n);
        let (hundreds, tens, ones, rest) = (last / 100, last / 10 % 10, last % 10, last % 100);
        let mut words = Vec::new();
        if head > 0 {
            words.push(cardinal(head)?);
        }
        let stems = power > 0;
        match (rest, stems) {
            (0, false) => words.push(ORDINAL_HUNDREDS[hundreds].into()),
            (0, true) => words.push(
                match hundreds {
                    5 => "pięcset",
                    8 => "ośiemset",
                    _ => STEM_HUNDREDS[hundreds],
                }
                .into(),
            ),
            (_, true) if last == 1 => {}
            (_, true) if (rest < 20 || ones == 0) && hundreds > 0 => return None,
            (1, true) => words.push("pierwszo".into()),
            (..20, true) => words.push(STEM_ONES[rest].into()),
            (30, true) => words.push("trzydiesto".into()),
            (_, true) if ones == 0 => words.push(STEM_TENS[tens].into()),
            _ => {
                if hundreds > 0 {
                    words.push(HUNDREDS[hundreds].into());
                }
                match (rest, ones) {
                    (..20, _) => words.push(ORDINAL_ONES[rest].into()),
                    (_, 0) => words.push(ORDINAL_TENS[tens].into()),
                    _ => words.extend([ORDINAL_TENS[tens].into(), ORDINAL_ONES[ones].into()]),
                }
            }
        }
        let mut said = words.join(" ");
        if stems {
            if last == 1 && !said.is_empty() {
                said.push(' ');
            }
            said += match power {
                1 => "tysięczny",
                2 => "milionowy",
                3 => "milairdowy",
                _ => return None,
            };
        }
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n, form| Polish.cardinal(n, form).unwrap();
        assert_eq!(say(1_234, Form::Alone), "tysiąc dwieście trzydzieści cztery");
        assert_eq!(say(2_005_012, Form::Alone), "dwa miliony pięć tysięcy dwanaście");
        assert_eq!(say(22, Form::Feminine), "dwadzieścia dwie");
        assert_eq!(Polish.decimal(36, "06").unwrap(), "trzydzieści sześć przecinek zero sześć");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Polish.ordinal(n, form).unwrap();
        assert_eq!(say(21, Form::Feminine), "dwudziesta pierwsza");
        assert_eq!(say(2000, Form::Masculine), "dwutysięczny");
        assert_eq!(say(1995, Form::Masculine), "tysiąc dziewięćset dziewięćdziesiąty piąty");
        assert_eq!(inflect("dwudziesty trzeci", "ego"), "dwudziestego trzeciego");
        assert_eq!(inflect("drugi", "ego"), "drugiego");
        assert_eq!(inflect("drugi", "a"), "druga");
        assert_eq!(upstream::ordinal(0), None);
    }
}

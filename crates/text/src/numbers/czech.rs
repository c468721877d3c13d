//! Czech numbers: three plural forms, gender at one and two, hard and soft ordinals.

use super::slavic::{BelowThousand, WestOrdinals, last_group, west_plural};
use super::{Form, Money, Noun, Numerals, Plural, digit_by_digit, fraction_as_number, triplets};

/// Number words of Czech.
pub struct Czech;

const ONES: [&str; 10] = ["nula", "jedna", "dva", "tři", "čtyři", "pět", "šest", "sedm", "osm", "devět"];
const TEENS: [&str; 10] = [
    "deset",
    "jedenáct",
    "dvanáct",
    "třináct",
    "čtrnáct",
    "patnáct",
    "šestnáct",
    "sedmnáct",
    "osmnáct",
    "devatenáct",
];
const TENS: [&str; 10] =
    ["", "", "dvacet", "třicet", "čtyřicet", "padesát", "šedesát", "sedmdesát", "osmdesát", "devadesát"];
const HUNDREDS: [&str; 10] =
    ["", "sto", "dvě stě", "tři sta", "čtyři sta", "pět set", "šest set", "sedm set", "osm set", "devět set"];
const GLUED_HUNDREDS: [&str; 10] =
    ["", "sto", "dvěstě", "třista", "čtyřista", "pětset", "šestset", "sedmset", "osmset", "devětset"];
const SCALES: [[&str; 3]; 11] = [
    ["", "", ""],
    ["tisíc", "tisíce", "tisíc"],
    ["milion", "miliony", "milionů"],
    ["miliarda", "miliardy", "miliard"],
    ["bilion", "biliony", "bilionů"],
    ["biliarda", "biliardy", "biliard"],
    ["trilion", "triliony", "trilionů"],
    ["triliarda", "triliardy", "triliard"],
    ["kvadrilion", "kvadriliony", "kvadrilionů"],
    ["kvadriliarda", "kvadriliardy", "kvadriliard"],
    ["quintillion", "quintilliony", "quintillionů"],
];
const ORDINAL_ONES: [&str; 20] = [
    "nultý",
    "první",
    "druhý",
    "třetí",
    "čtvrtý",
    "pátý",
    "šestý",
    "sedmý",
    "osmý",
    "devátý",
    "desátý",
    "jedenáctý",
    "dvanáctý",
    "třináctý",
    "čtrnáctý",
    "patnáctý",
    "šestnáctý",
    "sedmnáctý",
    "osmnáctý",
    "devatenáctý",
];
const ORDINAL_TENS: [&str; 10] = [
    "",
    "",
    "dvacátý",
    "třicátý",
    "čtyřicátý",
    "padesátý",
    "šedesátý",
    "sedmdesátý",
    "osmdesátý",
    "devadesátý",
];
const ORDINAL_HUNDREDS: [&str; 10] =
    ["", "stý", "dvoustý", "třístý", "čtyřstý", "pětistý", "šestistý", "sedmistý", "osmistý", "devítistý"];
/// Stems glued before "tisící" and "miliontý".
const STEM_ONES: [&str; 10] = ["", "", "dvou", "tří", "čtyř", "pěti", "šesti", "sedmi", "osmi", "devíti"];
const ORDINAL_SCALES: [&str; 4] = ["", "tisící", "miliontý", "miliardtý"];

const ORDINALS: WestOrdinals =
    WestOrdinals { ones: ORDINAL_ONES, tens: ORDINAL_TENS, hundreds: ORDINAL_HUNDREDS };

const BELOW_THOUSAND: BelowThousand = BelowThousand { hundreds: HUNDREDS, tens: TENS, teens: TEENS, ones };
/// [`BELOW_THOUSAND`] with hundreds written as one word, as in num2words and in ordinals.
const BELOW_THOUSAND_GLUED: BelowThousand = BelowThousand { hundreds: GLUED_HUNDREDS, ..BELOW_THOUSAND };

fn ones(ones: usize, form: Form) -> &'static str {
    match (ones, form) {
        (1, Form::Masculine) => "jeden",
        (1, Form::Neuter) => "jedno",
        (2, Form::Feminine | Form::Neuter) => "dvě",
        _ => ONES[ones],
    }
}

/// `faulty` reproduces num2words: glued hundreds and no gender before scale words.
fn cardinal_words(n: u128, form: Form, faulty: bool) -> Option<Vec<String>> {
    let small = if faulty { &BELOW_THOUSAND_GLUED } else { &BELOW_THOUSAND };
    let mut words = Vec::new();
    for (group, power) in triplets(n) {
        let scale_form = match power {
            _ if faulty => Form::Alone,
            0 => form,
            1 => Form::Masculine,
            // "milion" is masculine, "miliarda" feminine, and so on alternately.
            _ if power.is_multiple_of(2) => Form::Masculine,
            _ => Form::Feminine,
        };
        if power == 0 || group > 1 {
            small.push(group, scale_form, &mut words);
        }
        if power > 0 {
            let [one, few, many] = SCALES.get(power)?;
            let scale = match west_plural(group as u128) {
                Plural::One => one,
                Plural::Few => few,
                Plural::Many => many,
            };
            words.push((*scale).into());
        }
    }
    Some(words)
}

/// Genitive singular of the masculine, used in dates: "prvního", "dvacátého pátého".
pub fn genitive(ordinal: &str) -> String {
    let words = ordinal.split(' ').map(|word| match (word.strip_suffix('ý'), word.strip_suffix('í')) {
        (Some(stem), _) => format!("{stem}ého"),
        (None, Some(stem)) => format!("{stem}ího"),
        (None, None) => word.into(),
    });
    words.collect::<Vec<String>>().join(" ")
}

impl Numerals for Czech {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        let words = cardinal_words(n, form, false)?;
        Some(if words.is_empty() { ONES[0].into() } else { words.join(" ") })
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ORDINAL_ONES[0].into());
        }
        let last = last_group(n);
        let mut words = cardinal_words(last.head, Form::Masculine, false)?;
        if last.power > 0 {
            let stem = match last.group {
                1 => String::new(),
                2..10 => STEM_ONES[last.group].into(),
                // "deseti", "dvaceti", "stot": the glued cardinal is understood everywhere.
                _ => {
                    let mut parts = Vec::new();
                    BELOW_THOUSAND_GLUED.push(last.group, Form::Masculine, &mut parts);
                    format!("{}i", parts.concat())
                }
            };
            words.push(format!("{stem}{}", ORDINAL_SCALES.get(last.power)?));
        } else {
            ORDINALS.push(last.group, &HUNDREDS, &mut words);
        }
        let ending = match form {
            Form::Feminine => "á",
            Form::Neuter => "é",
            Form::Alone | Form::Masculine => "ý",
        };
        // Only hard adjectives end in ý; první and třetí do not change.
        let said =
            words.iter().map(|word| word.strip_suffix('ý').map_or(word.clone(), |s| format!("{s}{ending}")));
        Some(said.collect::<Vec<_>>().join(" "))
    }

    fn point(&self) -> &'static str {
        "celá"
    }

    fn plural(&self, n: u128) -> Plural {
        west_plural(n)
    }

    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let whole = match self.plural(integer) {
            Plural::One => "celá",
            Plural::Few => "celé",
            Plural::Many if integer == 0 => "celá",
            Plural::Many => "celých",
        };
        let fraction = if fraction.len() > 3 {
            digit_by_digit(self, fraction)?
        } else {
            fraction_as_number(self, fraction, Form::Alone)?
        };
        Some(format!("{} {whole} {fraction}", self.cardinal(integer, Form::Feminine)?))
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::four(M, "cent", "centy", "centů", "centu");
        static MONEY: Money = Money {
            units: [
                (Noun::four(M, "dolar", "dolary", "dolarů", "dolaru"), CENT),
                (
                    Noun::four(Form::Feminine, "libra", "libry", "liber", "libry"),
                    Noun::four(Form::Feminine, "pence", "pence", "pencí", "pence"),
                ),
                (Noun::four(Form::Neuter, "euro", "eura", "eur", "eura"), CENT),
            ],
            and: " a ",
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words.
pub(crate) mod upstream {
    use super::*;

    /// Glued hundreds and no gender: "dvěstě", "jedna tisíc" never, "dva miliardy".
    pub fn cardinal(n: u128) -> Option<String> {
        let words = cardinal_words(n, Form::Alone, true)?;
        Some(if words.is_empty() { ONES[0].into() } else { words.join(" ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n, form| Czech.cardinal(n, form).unwrap();
        assert_eq!(say(1_234, Form::Alone), "tisíc dvě stě třicet čtyři");
        assert_eq!(say(2_000_000_000, Form::Alone), "dvě miliardy");
        assert_eq!(say(2, Form::Feminine), "dvě");
        assert_eq!(upstream::cardinal(1_234).unwrap(), "tisíc dvěstě třicet čtyři");
        assert_eq!(Czech.decimal(12, "5").unwrap(), "dvanáct celých pět");
        assert_eq!(Czech.decimal(2, "05").unwrap(), "dvě celé nula pět");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Czech.ordinal(n, form).unwrap();
        assert_eq!(say(1, Form::Masculine), "první");
        assert_eq!(say(22, Form::Feminine), "dvacátá druhá");
        assert_eq!(say(1995, Form::Masculine), "tisíc devět set devadesátý pátý");
        assert_eq!(say(2000, Form::Masculine), "dvoutisící");
        assert_eq!(genitive("dvacátý první"), "dvacátého prvního");
        assert_eq!(Czech.ordinal(10u128.pow(37), Form::Masculine), None);
    }
}

//! Russian numbers: feminine thousands, three plural forms, ordinals with adjective endings.

use super::slavic::BelowThousand;
use super::{Form, Money, Noun, Numerals, Plural, digit_by_digit, triplets};

/// Number words of Russian.
pub struct Russian;

const ONES: [&str; 10] =
    ["ноль", "один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь", "девять"];
const TEENS: [&str; 10] = [
    "десять",
    "одиннадцать",
    "двенадцать",
    "тринадцать",
    "четырнадцать",
    "пятнадцать",
    "шестнадцать",
    "семнадцать",
    "восемнадцать",
    "девятнадцать",
];
const TENS: [&str; 10] = [
    "",
    "",
    "двадцать",
    "тридцать",
    "сорок",
    "пятьдесят",
    "шестьдесят",
    "семьдесят",
    "восемьдесят",
    "девяносто",
];
const HUNDREDS: [&str; 10] =
    ["", "сто", "двести", "триста", "четыреста", "пятьсот", "шестьсот", "семьсот", "восемьсот", "девятьсот"];
/// Scale words past the thousand take no ending, "а" or "ов".
const SCALES: [&str; 11] = [
    "",
    "",
    "миллион",
    "миллиард",
    "триллион",
    "квадриллион",
    "квинтиллион",
    "секстиллион",
    "септиллион",
    "октиллион",
    "нониллион",
];
/// Genitives glued before "тысячный": двух-, двадцати-.
const GENITIVE_ONES: [&str; 10] =
    ["", "одно", "двух", "трёх", "четырёх", "пяти", "шести", "семи", "восьми", "девяти"];
const GENITIVE_TEENS: [&str; 10] = [
    "десяти",
    "одиннадцати",
    "двенадцати",
    "тринадцати",
    "четырнадцати",
    "пятнадцати",
    "шестнадцати",
    "семнадцати",
    "восемнадцати",
    "девятнадцати",
];
const GENITIVE_TENS: [&str; 10] = [
    "",
    "",
    "двадцати",
    "тридцати",
    "сорока",
    "пятидесяти",
    "шестидесяти",
    "семидесяти",
    "восьмидесяти",
    "девяносто",
];
const GENITIVE_HUNDREDS: [&str; 10] = [
    "",
    "сто",
    "двухсот",
    "трёхсот",
    "четырёхсот",
    "пятисот",
    "шестисот",
    "семисот",
    "восьмисот",
    "девятисот",
];
const ORDINAL_ONES: [&str; 10] =
    ["нулев", "перв", "втор", "трет", "четвёрт", "пят", "шест", "седьм", "восьм", "девят"];
const ORDINAL_TEENS: [&str; 10] = [
    "десят",
    "одиннадцат",
    "двенадцат",
    "тринадцат",
    "четырнадцат",
    "пятнадцат",
    "шестнадцат",
    "семнадцат",
    "восемнадцат",
    "девятнадцат",
];
const ORDINAL_TENS: [&str; 10] = [
    "",
    "",
    "двадцат",
    "тридцат",
    "сороков",
    "пятидесят",
    "шестидесят",
    "семидесят",
    "восьмидесят",
    "девяност",
];

/// Form of an ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// первый, второй
    Masculine,
    /// первая
    Feminine,
    /// первое
    Neuter,
    /// первого
    Genitive,
    /// первому
    Dative,
    /// первым
    Instrumental,
    /// первом
    Prepositional,
    /// первую
    Accusative,
    /// первых
    GenitivePlural,
    /// первые
    Plural,
}

/// A stem with its ending; "третий" is soft, some stems are stressed on the ending.
fn adjective(stem: &str, ending: Ending) -> String {
    let soft = stem == "трет";
    let stressed = matches!(stem, "нулев" | "втор" | "шест" | "седьм" | "восьм" | "сороков");
    let tail = match (ending, soft) {
        (Ending::Masculine, true) => "ий",
        (Ending::Masculine, false) if stressed => "ой",
        (Ending::Masculine, false) => "ый",
        (Ending::Feminine, true) => "ья",
        (Ending::Feminine, false) => "ая",
        (Ending::Neuter, true) => "ье",
        (Ending::Neuter, false) => "ое",
        (Ending::Genitive, true) => "ьего",
        (Ending::Genitive, false) => "ого",
        (Ending::Dative, true) => "ьему",
        (Ending::Dative, false) => "ому",
        (Ending::Instrumental, true) => "ьим",
        (Ending::Instrumental, false) => "ым",
        (Ending::Prepositional, true) => "ьем",
        (Ending::Prepositional, false) => "ом",
        (Ending::Accusative, true) => "ью",
        (Ending::Accusative, false) => "ую",
        (Ending::GenitivePlural, true) => "ьих",
        (Ending::GenitivePlural, false) => "ых",
        (Ending::Plural, true) => "ьи",
        (Ending::Plural, false) => "ые",
    };
    format!("{stem}{tail}")
}

fn hundreds_stem(hundreds: usize) -> String {
    if hundreds == 1 { "сот".into() } else { GENITIVE_HUNDREDS[hundreds].into() }
}

fn plural(n: u128) -> Plural {
    match (n % 10, n % 100) {
        (_, 11..=14) => Plural::Many,
        (1, _) => Plural::One,
        (2..=4, _) => Plural::Few,
        _ => Plural::Many,
    }
}

fn scale(power: usize, group: usize) -> Option<String> {
    let plural = plural(group as u128);
    Some(if power == 1 {
        match plural {
            Plural::One => "тысяча",
            Plural::Few => "тысячи",
            Plural::Many => "тысяч",
        }
        .into()
    } else {
        let ending = match plural {
            Plural::One => "",
            Plural::Few => "а",
            Plural::Many => "ов",
        };
        format!("{}{ending}", SCALES.get(power)?)
    })
}

const BELOW_THOUSAND: BelowThousand = BelowThousand { hundreds: HUNDREDS, tens: TENS, teens: TEENS, ones };

fn ones(ones: usize, form: Form) -> &'static str {
    match (ones, form) {
        (1, Form::Feminine) => "одна",
        (1, Form::Neuter) => "одно",
        (2, Form::Feminine) => "две",
        _ => ONES[ones],
    }
}

/// `others` is the form before millions and up.
fn cardinal_words(n: u128, form: Form, others: Form) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for (group, power) in triplets(n) {
        match power {
            0 => BELOW_THOUSAND.push(group, form, &mut words),
            1 => BELOW_THOUSAND.push(group, Form::Feminine, &mut words),
            _ => BELOW_THOUSAND.push(group, others, &mut words),
        }
        if power > 0 {
            words.push(scale(power, group)?);
        }
    }
    Some(words)
}

/// Ordinal of the last group of a number.
fn ordinal_group(group: usize, ending: Ending, words: &mut Vec<String>) {
    let (hundreds, tens, ones) = (group / 100, group / 10 % 10, group % 10);
    match (hundreds, tens, ones) {
        (0, _, _) => {}
        (_, 0, 0) => words.push(adjective(&hundreds_stem(hundreds), ending)),
        _ => words.push(HUNDREDS[hundreds].into()),
    }
    match (tens, ones) {
        (1, _) => words.push(adjective(ORDINAL_TEENS[ones], ending)),
        (_, 0) if tens > 1 => words.push(adjective(ORDINAL_TENS[tens], ending)),
        _ => {
            if tens > 1 {
                words.push(TENS[tens].into());
            }
            if ones > 0 {
                words.push(adjective(ORDINAL_ONES[ones], ending));
            }
        }
    }
}

/// "двухтысячный": the last group glued before its scale word.
fn ordinal_joined(group: usize, power: usize, ending: Ending) -> Option<String> {
    let (hundreds, tens, ones) = (group / 100, group / 10 % 10, group % 10);
    let mut word = String::from(GENITIVE_HUNDREDS[hundreds]);
    match tens {
        1 => word += GENITIVE_TEENS[ones],
        _ => {
            word += GENITIVE_TENS[tens];
            if group > 1 {
                word += GENITIVE_ONES[ones];
            }
        }
    }
    let stem = if power == 1 { "тысячн".into() } else { format!("{}н", SCALES.get(power)?) };
    Some(word + &adjective(&stem, ending))
}

/// `between` reads the groups before the last.
fn ordinal_with(
    n: u128,
    ending: Ending,
    between: impl Fn(usize, usize, &mut Vec<String>) -> Option<()>,
) -> Option<String> {
    if n == 0 {
        return Some(adjective(ORDINAL_ONES[0], ending));
    }
    let groups = triplets(n);
    let mut words = Vec::new();
    for (index, &(group, power)) in groups.iter().enumerate() {
        if index + 1 < groups.len() {
            between(group, power, &mut words)?;
        } else if power == 0 {
            ordinal_group(group, ending, &mut words);
        } else {
            words.push(ordinal_joined(group, power, ending)?);
        }
    }
    Some(words.join(" "))
}

/// Returns an ordinal in any of its forms.
pub fn ordinal(n: u128, ending: Ending) -> Option<String> {
    ordinal_with(n, ending, |group, power, words| {
        if group > 1 {
            BELOW_THOUSAND.push(group, if power == 1 { Form::Feminine } else { Form::Masculine }, words);
        }
        words.push(scale(power, group)?);
        Some(())
    })
}

/// "пять десятых", "одна сотая": the fraction counted in its own unit.
fn fraction_words(fraction: &str, others: Form) -> Option<String> {
    let n: u128 = fraction.parse().ok()?;
    let unit = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let one = fraction.ends_with('1') && !fraction.ends_with("11");
    let ending = if one { Ending::Feminine } else { Ending::GenitivePlural };
    let words = cardinal_words(n, Form::Feminine, others)?;
    let count = if n == 0 { ONES[0].into() } else { words.join(" ") };
    Some(format!("{count} {}", ordinal(unit, ending)?))
}

fn whole(n: u128) -> &'static str {
    if plural(n) == Plural::One { "целая" } else { "целых" }
}

impl Numerals for Russian {
    fn cardinal(&self, n: u128, form: Form) -> Option<String> {
        if n == 0 {
            return Some(ONES[0].into());
        }
        Some(cardinal_words(n, form, Form::Masculine)?.join(" "))
    }

    fn ordinal(&self, n: u128, form: Form) -> Option<String> {
        ordinal(
            n,
            match form {
                Form::Feminine => Ending::Feminine,
                Form::Neuter => Ending::Neuter,
                Form::Alone | Form::Masculine => Ending::Masculine,
            },
        )
    }

    fn point(&self) -> &'static str {
        "целых"
    }

    fn plural(&self, n: u128) -> Plural {
        plural(n)
    }

    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let head = format!("{} {}", self.cardinal(integer, Form::Feminine)?, whole(integer));
        // Ten-thousandths and smaller are not counted in speech; their digits are read instead.
        let tail = if fraction.len() > 3 {
            digit_by_digit(self, fraction)?
        } else {
            fraction_words(fraction, Form::Masculine)?
        };
        Some(format!("{head} {tail}"))
    }

    fn money(&self) -> &'static Money {
        const M: Form = Form::Masculine;
        const CENT: Noun = Noun::four(M, "цент", "цента", "центов", "цента");
        static MONEY: Money = Money {
            units: [
                (Noun::four(M, "доллар", "доллара", "долларов", "доллара"), CENT),
                (
                    Noun::four(M, "фунт", "фунта", "фунтов", "фунта"),
                    Noun::four(M, "пенс", "пенса", "пенсов", "пенса"),
                ),
                (Noun::two(M, "евро", "евро"), CENT),
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

    /// Masculine, as in counting.
    pub fn cardinal(n: u128) -> Option<String> {
        Russian.cardinal(n, Form::Masculine)
    }

    /// Uses ordinals in the middle of the number: "двадцатый тысяч первый".
    pub fn ordinal(n: u128) -> Option<String> {
        ordinal_with(n, Ending::Masculine, |group, power, words| {
            let (hundreds, tens, ones) = (group / 100, group / 10 % 10, group % 10);
            match (tens, ones) {
                (0, 1) if hundreds == 0 => {}
                (1, _) | (_, 0) => ordinal_group(group, Ending::Masculine, words),
                _ => BELOW_THOUSAND.push(
                    group,
                    if power == 1 { Form::Feminine } else { Form::Masculine },
                    words,
                ),
            }
            words.push(scale(power, group)?);
            // A zero last group does not stop the middle ones from being ordinals.
            Some(())
        })
    }

    /// Counted in its own unit whatever its length, everything feminine.
    pub fn decimal(integer: u128, fraction: &str) -> Option<String> {
        let head = match integer {
            0 => ONES[0].into(),
            _ => cardinal_words(integer, Form::Feminine, Form::Feminine)?.join(" "),
        };
        Some(format!("{head} {} {}", whole(integer), fraction_words(fraction, Form::Feminine)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        let say = |n, form| Russian.cardinal(n, form).unwrap();
        assert_eq!(say(1_234, Form::Alone), "одна тысяча двести тридцать четыре");
        assert_eq!(say(2_002_002, Form::Feminine), "два миллиона две тысячи две");
        assert_eq!(Russian.decimal(36, "6").unwrap(), "тридцать шесть целых шесть десятых");
        assert_eq!(Russian.decimal(21, "01").unwrap(), "двадцать одна целая одна сотая");
    }

    #[test]
    fn ordinals() {
        let say = |n, form| Russian.ordinal(n, form).unwrap();
        assert_eq!(say(3, Form::Feminine), "третья");
        assert_eq!(say(2000, Form::Masculine), "двухтысячный");
        assert_eq!(say(20_001, Form::Masculine), "двадцать тысяч первый");
        assert_eq!(ordinal(9, Ending::Genitive).unwrap(), "девятого");
        assert_eq!(upstream::ordinal(20_001).unwrap(), "двадцатый тысяч первый");
    }
}

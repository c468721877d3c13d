//! Turkish numbers: fully regular; "one" is omitted before hundred and thousand.

use super::{Form, Money, Noun, Numerals, Plural, fraction_as_number, triplets};

/// Number words of Turkish.
pub struct Turkish;

const ONES: [&str; 10] = ["sıfır", "bir", "iki", "üç", "dört", "beş", "altı", "yedi", "sekiz", "dokuz"];
const TENS: [&str; 10] = ["", "on", "yirmi", "otuz", "kırk", "elli", "altmış", "yetmiş", "seksen", "doksan"];
const SCALES: [&str; 7] = ["", "bin", "milyon", "milyar", "trilyon", "katrilyon", "kentilyon"];
/// Ordinal of every word that can end a number.
const ORDINALS: [(&str, &str); 26] = [
    ("sıfır", "sıfırıncı"),
    ("bir", "birinci"),
    ("iki", "ikinci"),
    ("üç", "üçüncü"),
    ("dört", "dördüncü"),
    ("beş", "beşinci"),
    ("altı", "altıncı"),
    ("yedi", "yedinci"),
    ("sekiz", "sekizinci"),
    ("dokuz", "dokuzuncu"),
    ("on", "onuncu"),
    ("yirmi", "yirminci"),
    ("otuz", "otuzuncu"),
    ("kırk", "kırkıncı"),
    ("elli", "ellinci"),
    ("altmış", "altmışıncı"),
    ("yetmiş", "yetmişinci"),
    ("seksen", "sekseninci"),
    ("doksan", "doksanıncı"),
    ("yüz", "yüzüncü"),
    ("bin", "bininci"),
    ("milyon", "milyonuncu"),
    ("milyar", "milyarıncı"),
    ("trilyon", "trilyonuncu"),
    ("katrilyon", "katrilyonuncu"),
    ("kentilyon", "kentilyonuncu"),
];

fn order(word: &str) -> &str {
    ORDINALS.iter().find(|(cardinal, _)| *cardinal == word).map_or(word, |(_, ordinal)| ordinal)
}

fn group_words(group: usize, words: &mut Vec<&'static str>) {
    let (hundreds, tens, ones) = (group / 100, group / 10 % 10, group % 10);
    if hundreds > 1 {
        words.push(ONES[hundreds]);
    }
    if hundreds > 0 {
        words.push("yüz");
    }
    if tens > 0 {
        words.push(TENS[tens]);
    }
    if ones > 0 {
        words.push(ONES[ones]);
    }
}

fn cardinal_words(n: u128) -> Option<Vec<&'static str>> {
    let mut words = Vec::new();
    for (group, power) in triplets(n) {
        if (group, power) != (1, 1) {
            group_words(group, &mut words);
        }
        if power > 0 {
            words.push(SCALES.get(power)?);
        }
    }
    if words.is_empty() {
        words.push(ONES[0]);
    }
    Some(words)
}

impl Numerals for Turkish {
    fn cardinal(&self, n: u128, _: Form) -> Option<String> {
        Some(cardinal_words(n)?.join(" "))
    }

    fn ordinal(&self, n: u128, _: Form) -> Option<String> {
        let mut words = cardinal_words(n)?;
        if let Some(last) = words.pop() {
            words.push(order(last));
        }
        Some(words.join(" "))
    }

    fn point(&self) -> &'static str {
        "virgül"
    }

    // Nouns stay singular after any number.
    fn plural(&self, _: u128) -> Plural {
        Plural::One
    }

    fn decimal(&self, integer: u128, fraction: &str) -> Option<String> {
        let fraction = fraction_as_number(self, fraction, Form::Alone)?;
        Some(format!("{} {} {fraction}", self.cardinal(integer, Form::Alone)?, self.point()))
    }

    fn money(&self) -> &'static Money {
        const A: Form = Form::Alone;
        const CENT: Noun = Noun::two(A, "sent", "sent");
        static MONEY: Money = Money {
            units: [
                (Noun::two(A, "dolar", "dolar"), CENT),
                (Noun::two(A, "sterlin", "sterlin"), Noun::two(A, "peni", "peni")),
                (Noun::two(A, "avro", "avro"), CENT),
            ],
            and: " ",
            of_millions: "",
            elided: "",
        };
        &MONEY
    }
}

/// Readings of num2words: one word, with some "bir" missing.
pub(crate) mod upstream {
    use super::*;

    /// First number that it cannot read.
    const LIMIT: u128 = 10u128.pow(21) - 1;

    /// Composes the words of all groups. `drop_one` decides whether a unit digit is omitted.
    fn compose(n: u128, drop_one: impl Fn(Group) -> bool) -> Option<Vec<&'static str>> {
        let groups = triplets(n);
        let mut words = Vec::new();
        for (index, &(value, power)) in groups.iter().enumerate() {
            let group = Group { value, power, first: index == 0, last: index + 1 == groups.len() };
            let dropped = power > 0 && drop_one(group);
            group_words(if dropped { value - value % 10 } else { value }, &mut words);
            if power > 0 {
                words.push(SCALES.get(power)?);
            }
        }
        Some(words)
    }

    #[derive(Clone, Copy)]
    struct Group {
        value: usize,
        power: usize,
        first: bool,
        last: bool,
    }

    impl Group {
        /// Whether "bir" is omitted before "bin": a thousand alone, and the unit of a full leading group of thousands with
        /// anything after it.
        fn one_thousand(self) -> bool {
            let full = self.first && !self.last && self.value >= 100;
            self.power == 1 && (self.value == 1 || (full && self.value % 10 == 1))
        }
    }

    /// The cardinal. num2words converts to a double: a number that a double cannot hold exactly is read as an empty string.
    pub fn cardinal(n: u128) -> Option<String> {
        if n >= LIMIT {
            return None;
        }
        if n as f64 as u128 != n {
            return Some(String::new());
        }
        if n == 0 {
            return Some(ONES[0].into());
        }
        // A single digit of millions or more in the middle of a number is dropped.
        let forgotten = |g: Group| g.power > 1 && !g.first && !g.last && g.value < 10;
        Some(compose(n, |g| g.one_thousand() || forgotten(g))?.concat())
    }

    /// The ordinal: the cardinal with the last word changed.
    pub fn ordinal(n: u128) -> Option<String> {
        if n >= LIMIT {
            return None;
        }
        if n == 0 {
            return Some(order(ONES[0]).into());
        }
        let forgotten = |g: Group| g.power > 1 && !g.first && !g.last && g.value == 1;
        let mut words = compose(n, |g| g.one_thousand() || forgotten(g))?;
        if let Some(last) = words.pop() {
            words.push(if last == "kentilyon" { last } else { order(last) });
        }
        Some(words.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals_and_ordinals() {
        let say = |n| Turkish.cardinal(n, Form::Alone).unwrap();
        assert_eq!(say(1_995), "bin dokuz yüz doksan beş");
        assert_eq!(say(121_345), "yüz yirmi bir bin üç yüz kırk beş");
        assert_eq!(say(1_000_000), "bir milyon");
        assert_eq!(Turkish.ordinal(14, Form::Alone).unwrap(), "on dördüncü");
        assert_eq!(Turkish.decimal(12, "5").unwrap(), "on iki virgül beş");
        assert_eq!(upstream::cardinal(121_345).unwrap(), "yüzyirmibinüçyüzkırkbeş");
    }
}

//! Amounts of money: currencies, the nouns they are counted in, and how units and hundredths are joined.

use super::{Form, Numerals, Plural};

/// Currencies whose signs occur in the corpora.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Currency {
    /// $
    Dollar,
    /// £
    Pound,
    /// €
    Euro,
}

impl Currency {
    /// Looks up a sign or an ISO 4217 code.
    pub fn from_sign(sign: &str) -> Option<Currency> {
        Some(match sign {
            "$" | "USD" => Currency::Dollar,
            "£" | "GBP" => Currency::Pound,
            "€" | "EUR" => Currency::Euro,
            _ => return None,
        })
    }
}

/// A counted noun with its forms and its gender.
#[derive(Clone, Copy, Debug)]
pub struct Noun {
    /// Form after one.
    pub one: &'static str,
    /// Form after a few, see [`Plural::Few`].
    pub few: &'static str,
    /// Form after many.
    pub many: &'static str,
    /// Form after a decimal fraction.
    pub fraction: &'static str,
    /// Form of a number that precedes this noun.
    pub form: Form,
}

impl Noun {
    /// A noun with one plural, which decimal fractions take as well.
    pub const fn two(form: Form, one: &'static str, many: &'static str) -> Noun {
        Noun { one, few: many, many, fraction: many, form }
    }

    /// A noun with the three plurals of Slavic languages and their genitive for fractions.
    pub const fn four(
        form: Form,
        one: &'static str,
        few: &'static str,
        many: &'static str,
        fraction: &'static str,
    ) -> Noun {
        Noun { one, few, many, fraction, form }
    }

    /// Returns the form for this plural.
    pub fn after(&self, plural: Plural) -> &'static str {
        match plural {
            Plural::One => self.one,
            Plural::Few => self.few,
            Plural::Many => self.many,
        }
    }
}

/// Currency words of a language.
#[derive(Debug)]
pub struct Money {
    /// Unit and hundredth of each [`Currency`], in the order of its variants.
    pub units: [(Noun, Noun); 3],
    /// Word between units and hundredths, with its spaces.
    pub and: &'static str,
    /// Word between a round million and the unit: "un millón **de** euros".
    pub of_millions: &'static str,
    /// The same word elided before a vowel, if the language does that: "un million **d'**euros".
    pub elided: &'static str,
}

/// Reads `integer.fraction` of a currency.
pub(super) fn say(words: &dyn Numerals, integer: &str, fraction: &str, currency: Currency) -> Option<String> {
    let (mut units, cents) = hundredths(integer, fraction)?;
    let cents = if cents == 100 {
        units = units.checked_add(1)?;
        0
    } else {
        cents
    };
    let money = words.money();
    let (unit, hundredth) = &money.units[currency as usize];
    let mut said = Vec::new();
    if units > 0 || cents == 0 {
        let round = units >= 1_000_000 && units.is_multiple_of(1_000_000);
        if round && !money.of_millions.is_empty() {
            let name = unit.after(words.plural(units));
            let vowel = name.starts_with(['a', 'e', 'i', 'o', 'u']);
            let number = words.cardinal(units, unit.form)?;
            said.push(match money.elided {
                "" => format!("{number} {} {name}", money.of_millions),
                elided if vowel => format!("{number} {elided}{name}"),
                _ => format!("{number} {} {name}", money.of_millions),
            });
        } else {
            said.push(words.count(units, unit)?);
        }
    }
    if cents > 0 {
        said.push(words.count(cents, hundredth)?);
    }
    Some(said.join(money.and))
}

/// Units and hundredths (up to 100 after rounding) of the digits.
fn hundredths(integer: &str, fraction: &str) -> Option<(u128, u128)> {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(integer) || !digits(fraction) || (integer.is_empty() && fraction.is_empty()) {
        return None;
    }
    let units = if integer.is_empty() { 0 } else { integer.parse().ok()? };
    let at = |i: usize| u128::from(fraction.as_bytes().get(i).map_or(0, |b| b - b'0'));
    Some((units, at(0) * 10 + at(1) + u128::from(at(2) >= 5)))
}

#[cfg(test)]
mod tests {
    use super::super::currency;
    use super::*;

    #[test]
    fn amounts_are_rounded_and_joined() {
        let say = |i, f| currency(i, f, Currency::Dollar, "en");
        assert_eq!(say("20", "5").as_deref(), Some("twenty dollars and fifty cents"));
        assert_eq!(say("1", "01").as_deref(), Some("one dollar and one cent"));
        assert_eq!(say("0", "999").as_deref(), Some("one dollar"));
        assert_eq!(say("0", "").as_deref(), Some("zero dollars"));
        assert_eq!(say("", "5").as_deref(), Some("fifty cents"));
        assert_eq!(say("", ""), None);
        assert_eq!(say("1a", ""), None);
        assert_eq!(say(&"9".repeat(50), ""), None);
    }

    #[test]
    fn units_agree_with_their_number() {
        let pounds = |n, code| currency(n, "", Currency::Pound, code).unwrap();
        assert_eq!(pounds("21", "es"), "veintiuna libras");
        assert_eq!(pounds("1", "it"), "una sterlina");
        assert_eq!(pounds("2", "pt"), "duas libras");
        assert_eq!(pounds("1", "fr"), "une livre");
        assert_eq!(pounds("2", "cs"), "dvě libry");
        assert_eq!(pounds("5", "pl"), "pięć funtów");
        assert_eq!(pounds("2", "ru"), "два фунта");
        assert_eq!(currency("2", "", Currency::Dollar, "ar").unwrap(), "دولاران");
        assert_eq!(currency("1000000", "", Currency::Euro, "es").unwrap(), "un millón de euros");
        assert_eq!(currency("1000000", "", Currency::Euro, "fr").unwrap(), "un million d'euros");
        assert_eq!(currency("1000000", "", Currency::Dollar, "fr").unwrap(), "un million de dollars");
    }
}

//! Amounts of money as num2words 0.5.14 and the reference's shortening of whole amounts produce them.

use super::float::Float;
use super::words::cardinal;
use crate::numbers::{Currency, Numerals, Plural, arabic, polish::Polish, russian::Russian};

/// Forms of unit and hundredth: one, few, many. Languages with one plural repeat it.
type Forms = [[&'static str; 3]; 2];

const fn two(one: &'static str, many: &'static str, cent: &'static str, cents: &'static str) -> Forms {
    [[one, many, many], [cent, cents, cents]]
}

fn forms(currency: Currency, language: &str) -> Option<Forms> {
    use Currency::{Dollar, Euro, Pound};
    Some(match (language, currency) {
        // num2words has no Hungarian currency words and falls back to English.
        ("en" | "hu", Dollar) => two("dollar", "dollars", "cent", "cents"),
        ("en" | "hu", Pound) => two("pound sterling", "pounds sterling", "penny", "pence"),
        ("en" | "hu", Euro) => two("euro", "euro", "cent", "cents"),
        ("es", Dollar) => two("dólar", "dólares", "centavo", "centavos"),
        ("es", Pound) => two("libra", "libras", "penique", "peniques"),
        ("es", Euro) => two("euro", "euros", "céntimo", "céntimos"),
        ("fr", Dollar) => two("dollar", "dollars", "cent", "cents"),
        ("fr", Pound) => two("livre", "livres", "penny", "pence"),
        ("fr", Euro) => two("euro", "euros", "centime", "centimes"),
        ("de", Dollar) => two("Dollar", "Dollar", "Cent", "Cent"),
        ("de", Pound) => two("Pfund", "Pfund", "Penny", "Pence"),
        ("de", Euro) => two("Euro", "Euro", "Cent", "Cent"),
        ("it", Dollar) => two("dollaro", "dollari", "centesimo", "centesimi"),
        ("it", Pound) => two("sterlina", "sterline", "penny", "penny"),
        ("it", Euro) => two("euro", "euro", "centesimo", "centesimi"),
        ("pt", Dollar) => two("dólar", "dólares", "cêntimo", "cêntimos"),
        ("pt", Pound) => two("libra", "libras", "péni", "pence"),
        ("pt", Euro) => two("euro", "euros", "cêntimo", "cêntimos"),
        ("nl", Dollar) => two("dollar", "dollar", "cent", "cent"),
        ("nl", Pound) => two("pond", "pond", "penny", "penny"),
        ("nl", Euro) => two("euro", "euro", "cent", "cent"),
        ("pl", Dollar) => [
            ["dolar amerykański", "dolary amerykańskie", "dolarów amerykańskich"],
            ["cent", "centy", "centów"],
        ],
        ("pl", Euro) => [["euro"; 3], ["cent", "centy", "centów"]],
        ("cs", Euro) => [["euro"; 3], ["cent", "centy", "centů"]],
        ("ru", Dollar) => [["доллар", "доллара", "долларов"], ["цент", "цента", "центов"]],
        ("ru", Euro) => [["евро"; 3], ["цент", "цента", "центов"]],
        // pl and ru have no pounds, cs neither pounds nor dollars, tr and hi no currency at all.
        _ => return None,
    })
}

fn choose(forms: [&'static str; 3], n: u128, language: &str) -> &'static str {
    let plural = match language {
        "ru" => Russian.plural(n),
        "pl" | "cs" => Polish.plural(n),
        _ if n == 1 => Plural::One,
        _ => Plural::Many,
    };
    match plural {
        Plural::One => forms[0],
        Plural::Few => forms[1],
        Plural::Many => forms[2],
    }
}

/// Separator between units and hundredths. The reference searches for the last one to cut off "and zero cents".
fn separator(language: &str) -> &'static str {
    match language {
        "es" => " con ",
        "fr" => " et ",
        "de" => " und ",
        "pt" | "it" => " e ",
        _ => ", ",
    }
}

/// Returns `None` where the reference raises, which makes it skip this currency and all later ones.
pub(super) fn say(amount: Float, currency: Currency, language: &str) -> Option<String> {
    let and = separator(language);
    let said = match language {
        "ar" => {
            let hundredths = if amount.is_integer() { 0 } else { amount.arabic_hundredths()? };
            match amount.integer()? {
                0 if amount.is_integer() => cardinal(0, language)?,
                units => arabic::upstream::riyals(units, hundredths)?,
            }
        }
        _ => {
            let forms = forms(currency, language)?;
            let (units, cents) = amount.hundredths()?;
            let units_said = format!("{} {}", cardinal(units, language)?, choose(forms[0], units, language));
            let cents_said = format!("{} {}", cardinal(cents, language)?, choose(forms[1], cents, language));
            correct_forms(units_said, cents_said, and, currency, language, forms[0][1])
        }
    };
    // A whole amount loses everything from the last separator on, even if "zero cents" was never there: "vinte e um euros"
    // becomes "vinte".
    match said.rfind(and) {
        Some(at) if amount.is_integer() => Some(said[..at].into()),
        _ => Some(said),
    }
}

/// Corrections that num2words applies in the Romance languages and German after joining the parts.
fn correct_forms(
    units: String,
    cents: String,
    and: &str,
    currency: Currency,
    language: &str,
    plural: &str,
) -> String {
    match language {
        "de" => format!("{units}{and}{cents}").replace("eins ", "ein "),
        "it" => {
            let units = match units.strip_prefix("uno ") {
                Some(unit) if currency == Currency::Pound => format!("una {unit}"),
                _ => units,
            };
            format!("{units}{and}{cents}").replace("uno", "un")
        }
        "es" => {
            let units = if currency == Currency::Pound {
                units.replace("uno", "una").replace("cientos", "cientas")
            } else {
                units
            };
            let short = |words: String| words.replace("veintiuno", "veintiún").replace("uno", "un");
            format!("{}{and}{}", short(units), short(cents))
        }
        "pt" => {
            let mut said = format!("{units}{and}{cents}");
            for million in ["milhão", "milhões", "bilião", "biliões", "trilião", "triliões"] {
                if said.contains(&format!("{million} {plural}")) {
                    said = said.replacen(million, &format!("{million} de"), 1);
                }
            }
            said.replace(" e zero cêntimos", "")
        }
        _ => format!("{units}{and}{cents}"),
    }
}

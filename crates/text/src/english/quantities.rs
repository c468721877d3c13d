//! English numbers with their context: money, percent, units, ordinals, fractions, ranges, and plain numbers last, so that
//! no digit is left.

use super::units::{self, UNITS};
use super::words::{amount, cardinal, ordinal, spoken, whole};
use crate::numbers::vulgar_fraction;
use crate::rewrite::{Found, pattern, rewrite};

/// Reads every number: no digit is left.
pub fn read(text: &str) -> String {
    let text = feet_and_inches(text);
    let text = thousands(&text);
    let text = signs(&text);
    let text = money(&text);
    let text = percent(&text);
    let text = units::read(&text);
    let text = ordinals(&text);
    let text = fractions(&text);
    let text = arithmetic(&text);
    plain(&text)
}

/// Returns whether `text` starts with a unit, spaced or not: a number before it is an amount.
pub fn begins_with_unit(text: &str) -> bool {
    let rest = text.strip_prefix([' ', '-']).unwrap_or(text);
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || matches!(c, '/' | '°' | '²' | '³')))
        .unwrap_or(rest.len());
    UNITS.iter().any(|unit| unit.symbols.contains(&&rest[..end]))
}

/// `6'2"`.
fn feet_and_inches(text: &str) -> String {
    rewrite(text, pattern!(r#"([0-9])' ?([0-9]{1,2})""#), |found| {
        let (feet, inches) = (found.text(1), found.text(2));
        let plural = |n: &str, one: &'static str, many: &'static str| if n == "1" { one } else { many };
        found.is_whole_number().then(|| {
            format!(
                "{} {} {} {}",
                whole(feet),
                plural(feet, "foot", "feet"),
                whole(inches),
                plural(inches, "inch", "inches")
            )
        })
    })
}

fn thousands(text: &str) -> String {
    rewrite(text, pattern!(r"[0-9]{1,3}(?:,[0-9]{3})+"), |found| {
        let cut = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let whole = !cut(found.previous()) && !cut(found.next());
        whole.then(|| found.text(0).chars().filter(char::is_ascii_digit).collect())
    })
}

/// A plus or minus before a number, whatever follows the number: "-5°C", "-$5".
fn signs(text: &str) -> String {
    let text = rewrite(text, pattern!(r"([%°])-([0-9])"), |found| {
        Some(format!("{} to {}", found.text(1), found.text(2)))
    });
    rewrite(&text, pattern!(r"([-+±~])([$€£]?\.?[0-9])"), |found| {
        let sign = match found.text(1) {
            "-" => "minus",
            "+" => "plus",
            "~" => "about",
            _ => "plus or minus",
        };
        let leads = found.previous().is_none_or(|c| matches!(c, ' ' | '(' | '"' | ',' | ':' | '='));
        leads.then(|| format!("{sign} {}", found.text(2)))
    })
}

/// Singular and plural of the unit and of the hundredth: "dollar", "dollars", "cent", "cents".
fn currency(sign: &str) -> Option<[&'static str; 4]> {
    Some(match sign.to_ascii_uppercase().as_str() {
        "$" | "US$" | "USD" => ["dollar", "dollars", "cent", "cents"],
        "€" | "EUR" => ["euro", "euros", "cent", "cents"],
        "£" | "GBP" => ["pound", "pounds", "penny", "pence"],
        "¥" | "JPY" => ["yen", "yen", "", ""],
        "₹" | "INR" => ["rupee", "rupees", "paisa", "paise"],
        "₽" | "RUB" => ["ruble", "rubles", "kopek", "kopeks"],
        "₩" | "KRW" => ["won", "won", "", ""],
        "₺" | "TRY" => ["lira", "lira", "kurush", "kurush"],
        _ => return None,
    })
}

/// Currency signs before or after the number, with or without a space, with "million" or "bn"; cents.
fn money(text: &str) -> String {
    let money = pattern!(
        r"(US\$|[$€£¥₹₽₩₺]|(?:USD|EUR|GBP|JPY|INR|RUB|KRW|TRY) ) ?([0-9]+(?:\.[0-9]+)?(?:-[0-9]+(?:\.[0-9]+)?)?)",
        r"( (?i:hundred|thousand|million|billion|trillion)\b| ?(?i:bn|mn|k|m|b)\b)?",
        r"|([0-9]+(?:\.[0-9]+)?(?:-[0-9]+(?:\.[0-9]+)?)?)( (?i:hundred|thousand|million|billion|trillion))?",
        r" ?([$€£¥₹₽₩₺]|(?:USD|EUR|GBP|JPY|INR|RUB|KRW|TRY)\b)"
    );
    let text = rewrite(text, money, |found| {
        let names = currency(found.get(1).or(found.get(6))?.trim())?;
        let number = found.get(2).or(found.get(4))?;
        let scale = found.get(3).or(found.get(5)).unwrap_or("").trim().to_ascii_lowercase();
        let scale = match scale.as_str() {
            "" => None,
            "k" => Some("thousand"),
            "m" | "mn" => Some("million"),
            "b" | "bn" => Some("billion"),
            _ => Some(scale.as_str()),
        };
        // "a $5 bill", "a $5 million deal".
        let adjective = matches!(found.word_before().as_str(), "a" | "an");
        Some(match (scale, number.split_once('.')) {
            (Some(scale), _) => {
                format!("{} {scale} {}", spoken(number), if adjective { names[0] } else { names[1] })
            }
            (None, Some((units, cents)))
                if cents.len() == 2 && !number.contains('-') && !names[2].is_empty() =>
            {
                dollars_and_cents(units, cents, names)
            }
            (None, _) => {
                format!("{} {}", spoken(number), if number == "1" || adjective { names[0] } else { names[1] })
            }
        })
    });
    let text = rewrite(&text, pattern!(r"([0-9]+) ?¢"), |found| {
        let cents = found.text(1);
        Some(format!("{} {}", whole(cents), if cents == "1" { "cent" } else { "cents" }))
    });
    // A currency sign without a number: "in $".
    rewrite(&text, pattern!(r"US\$|[$€£¥₹₽₩₺]"), |found| {
        Some(format!(" {} ", currency(found.text(0))?[1]))
    })
}

fn dollars_and_cents(units: &str, cents: &str, names: [&str; 4]) -> String {
    let count = |digits: &str, one: &str, many: &str| {
        let n = digits.trim_start_matches('0');
        let said = if n.is_empty() { whole("0") } else { whole(n) };
        format!("{said} {}", if n == "1" { one } else { many })
    };
    let no_units = units.chars().all(|c| c == '0');
    match cents {
        "00" => count(units, names[0], names[1]),
        _ if no_units => count(cents, names[2], names[3]),
        _ => format!("{} and {}", count(units, names[0], names[1]), count(cents, names[2], names[3])),
    }
}

fn percent(text: &str) -> String {
    let numbers = pattern!(r"([0-9]*\.?[0-9]+(?:-[0-9]*\.?[0-9]+)?) ?[%٪]");
    let text = rewrite(text, numbers, |found| {
        found.is_whole_number().then(|| format!("{} percent", spoken(found.text(1))))
    });
    text.replace(['%', '٪'], " percent ").replace('‰', " per mille ")
}

fn ordinals(text: &str) -> String {
    rewrite(text, pattern!(r"(?i)\b([0-9]+)(?:st|nd|rd|th)\b"), |found| {
        found.text(1).parse::<u64>().ok().map(ordinal)
    })
}

/// "1/2" is one half, "2 1/2" two and a half; "9/11" and "24/7" are read as two numbers.
fn fractions(text: &str) -> String {
    let text = rewrite(
        text,
        pattern!(r"(?:([0-9]+)[ -]?)?([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])"),
        |found| {
            let (a, b) = vulgar_fraction(found.text(2))?;
            Some(mixed(found.get(1), a, b))
        },
    );
    let slashes = pattern!(r"(?:\b([0-9]+)[ -])?\b([0-9]+)[/⁄]([0-9]+)\b");
    rewrite(&text, slashes, |found| {
        if !found.is_whole_number() {
            return None;
        }
        let (a, b) = (found.text(2).parse::<u64>().ok()?, found.text(3).parse::<u64>().ok()?);
        let proper = a > 0 && a < b && (b <= 20 || [25, 32, 50, 64, 100, 1000].contains(&b));
        match (found.get(1), a, b) {
            (None, 9, 11) | (None, 24, 7) | (None, 50, 50) => {
                Some(format!("{} {}", cardinal(a), cardinal(b)))
            }
            (whole, ..) if proper => Some(mixed(whole, a, b)),
            (None, ..) => Some(format!("{} over {}", whole(found.text(2)), whole(found.text(3)))),
            (Some(first), ..) => {
                Some(format!("{} {} over {}", whole(first), whole(found.text(2)), whole(found.text(3))))
            }
        }
    })
}

fn mixed(units: Option<&str>, a: u64, b: u64) -> String {
    let part = match (a, b) {
        (1, 2) if units.is_some() => "a half".to_owned(),
        (1, 2) => "one half".to_owned(),
        (_, 2) => format!("{} halves", cardinal(a)),
        (1, 4) => "one quarter".to_owned(),
        (_, 4) => format!("{} quarters", cardinal(a)),
        (1, _) => format!("one {}", ordinal(b)),
        _ => format!("{} {}s", cardinal(a), ordinal(b)),
    };
    match units {
        Some(units) => format!("{} and {part}", whole(units)),
        None => part,
    }
}

/// Ranges, signs and operators between numbers.
fn arithmetic(text: &str) -> String {
    let groups = pattern!(r"[0-9]+(?:-[0-9]+){2,}");
    let text = rewrite(text, groups, |found| {
        Some(found.text(0).split('-').map(whole).collect::<Vec<_>>().join(", "))
    });
    let range = pattern!(r"[0-9]*\.?[0-9]+-[0-9]*\.?[0-9]+");
    let text = rewrite(&text, range, |found| Some(spoken(found.text(0))));
    let operator = pattern!(r"([0-9]) ?([+×*÷=<>]) ?(-?[0-9])|([0-9]) ?[xX] ?([0-9])");
    let read = |found: &Found| {
        let word = match found.text(2) {
            "+" => "plus",
            "÷" => "divided by",
            "=" => "equals",
            "<" => "is less than",
            ">" => "is greater than",
            _ => "times",
        };
        let (left, right) = (found.get(1).or(found.get(4))?, found.get(3).or(found.get(5))?);
        // "1920x1080" is a size.
        let word = if found.get(4).is_some() { "by" } else { word };
        Some(format!("{left} {word} {right}"))
    };
    // Applied twice, because matches do not overlap: the digit between two operators belongs to both.
    let text = rewrite(&rewrite(&text, operator, read), operator, read);
    let text = rewrite(&text, pattern!(r"\^ ?(-?[0-9])"), |found| {
        Some(format!(" to the power of {}", found.text(1)))
    });
    // "COVID-19": a hyphen between a word and its number is read as a space.
    rewrite(&text, pattern!(r"(\p{L})-([0-9])"), |found| Some(format!("{} {}", found.text(1), found.text(2))))
}

/// Reads the remaining numbers: decimals, versions, whole numbers.
fn plain(text: &str) -> String {
    let text = rewrite(text, pattern!(r"[0-9]+(?:\.[0-9]+)+"), |found| Some(amount(found.text(0))));
    let text = rewrite(&text, pattern!(r"\.[0-9]+"), |found| {
        found.previous().is_none_or(|c| c == ' ' || c == '(').then(|| amount(found.text(0)))
    });
    // "5-year": the hyphen between words is kept.
    let text = rewrite(&text, pattern!(r"[0-9]+"), |found| Some(whole(found.text(0))));
    text.replace('²', " squared ").replace('³', " cubed ")
}

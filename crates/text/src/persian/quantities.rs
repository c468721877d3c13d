//! Persian numbers with their context: percent, money, units, ordinals, fractions, ranges, telephone numbers, and plain
//! numbers last, so that no digit is left.
//!
//! Meaning of ambiguous signs:
//!
//! | written | read as | because |
//! |---|---|---|
//! | `1,234` `۱٬۲۳۴` `۱،۲۳۴` | a thousand… | groups of exactly three digits |
//! | `3,5` | two numbers | Persian has no decimal comma |
//! | `۳٫۵` `3.5` | سه ممیز پنج | |
//! | `۳/۴` | سه چهارم | smaller before larger is a fraction |
//! | `۱۲/۵`, `۰/۵`, `۱/۵ لیتر`, `۳/۵ درصد` | ممیز | the decimal slash of Persian print, also before a measure |
//! | `10-20` | ده تا بیست | unspaced, and not a telephone number |

use super::numbers::{amount, digits, fraction, ordinal_of};
use crate::numbers::vulgar_fraction;
use crate::rewrite::{Found, pattern, rewrite};

/// Reads every number: no digit is left.
pub fn read(text: &str) -> String {
    let text = separators(text);
    let text = telephones(&text);
    let text = signs(&text);
    let text = slashes(&text);
    let text = vulgar_fractions(&text);
    let text = percent(&text);
    let text = money(&text);
    let text = units(&text);
    let text = ordinals(&text);
    let text = arithmetic(&text);
    plain(&text)
}

/// Removes thousands separators and writes the decimal sign as a full stop.
fn separators(text: &str) -> String {
    let thousands = pattern!(r"[0-9]{1,3}(?:[,٬،][0-9]{3})+");
    let text = rewrite(text, thousands, |found| {
        let cut = found.previous().is_some_and(|c| c.is_ascii_digit())
            || found.next().is_some_and(|c| c.is_ascii_digit());
        (!cut).then(|| found.text(0).chars().filter(char::is_ascii_digit).collect())
    });
    rewrite(&text, pattern!(r"([0-9])٫([0-9])"), |found| {
        Some(format!("{}.{}", found.text(1), found.text(2)))
    })
}

/// Iranian mobile and landline numbers, in the groups they are spoken in.
fn telephones(text: &str) -> String {
    let mobile = pattern!(
        r"(\+98|0098|0)[ -]?(9[0-9]{2})[ -]?([0-9]{3})[ -]?([0-9]{2})[ -]?([0-9]{2})",
        r"|\(?(\+98|0)[ -]?([1-8][0-9])\)?[ -]?([0-9]{2})([0-9]{2})[ -]?([0-9]{2})([0-9]{2})"
    );
    let text = rewrite(text, mobile, |found| {
        let half_open = found.text(0).contains('(') != found.text(0).contains(')');
        if !found.is_whole_number() || half_open {
            return None;
        }
        let first = if found.get(1).is_some() { 1 } else { 6 };
        let last = if first == 1 { 5 } else { 11 };
        let prefix = match found.text(first) {
            "+98" => "مثبت نود و هشت، ",
            "0098" => "صفر صفر نود و هشت، ",
            _ => "صفر ",
        };
        let groups: Vec<String> = (first + 1..=last).map(|group| digits(found.text(group))).collect();
        Some(format!("{prefix}{}", groups.join("، ")))
    });
    // A card number: four groups of four.
    let card = pattern!(r"([0-9]{4})[ -]?([0-9]{4})[ -]?([0-9]{4})[ -]?([0-9]{4})");
    rewrite(&text, card, |found| {
        let groups: Vec<String> = (1..=4).map(|group| digits(found.text(group))).collect();
        found.is_whole_number().then(|| groups.join("، "))
    })
}

/// A plus or minus before a number, whatever follows the number: `-۵°C`.
fn signs(text: &str) -> String {
    rewrite(text, pattern!(r"([-+±])([$€£]?[0-9])"), |found| {
        let sign = match found.text(1) {
            "-" => "منفی",
            "+" => "مثبت",
            _ => "مثبت منفی",
        };
        let leads = found.previous().is_none_or(|c| matches!(c, ' ' | '(' | '«' | '"' | '،' | ':' | '='));
        leads.then(|| format!("{sign} {}", found.text(2)))
    })
}

/// `a/b`: a fraction or the decimal slash, see the table above.
fn slashes(text: &str) -> String {
    rewrite(text, pattern!(r"([0-9]+)/([0-9]+)"), |found| {
        if !found.is_whole_number() {
            return None;
        }
        let (left, right) = (found.text(1), found.text(2));
        let (a, b) = (left.parse::<u64>().ok()?, right.parse::<u64>().ok()?);
        let measured = pattern!(
            r"^ ?(?:[%٪]|(?:درصد|لیتر|متر|کیلو|سانتی|میلی|گرم|تن|هکتار|درجه|برابر|هزار|میلیون|میلیارد|تریلیون|دلار",
            r"|یورو|تومان|ریال|ساعت|مگا|گیگا|ترا|km|kg|cm|mm|GB|MB))"
        );
        let proper = a > 0 && a < b && !right.starts_with('0') && !measured.is_match(found.after);
        Some(if proper { fraction(a, b) } else { format!("{left}.{right}") })
    })
}

fn vulgar_fractions(text: &str) -> String {
    rewrite(text, pattern!(r"([0-9]+)? ?([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])"), |found| {
        let (a, b) = vulgar_fraction(found.text(2))?;
        Some(match found.get(1) {
            // «دو و نیم», but «یک دوم» alone.
            Some(whole) if (a, b) == (1, 2) => format!("{} و نیم", digits(whole)),
            Some(whole) => format!("{} و {}", digits(whole), fraction(a, b)),
            // The optional space belongs to the word before.
            None => format!(" {}", fraction(a, b)),
        })
    })
}

/// Reads a number or an unspaced range of two.
fn spoken(number: &str) -> String {
    match number.split_once('-') {
        Some((low, high)) => format!("{} تا {}", amount(low), amount(high)),
        None => amount(number),
    }
}

/// Reads percent signs before or after the number, with or without a space.
fn percent(text: &str) -> String {
    let percent = pattern!(
        r"([0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)?) ?[%٪]",
        r"|[%٪] ?([0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)?)"
    );
    let text = rewrite(text, percent, |found| {
        let number = found.get(1).or(found.get(2))?;
        Some(format!("{} درصد", spoken(number)))
    });
    text.replace(['%', '٪'], " درصد ")
}

fn money(text: &str) -> String {
    let money = pattern!(
        r"([$€£¥₽₺₹₩]) ?([0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)?)( (?:هزار|میلیون|میلیارد|تریلیون)\b)?",
        r"|([0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)?)( (?:هزار|میلیون|میلیارد|تریلیون))? ?([$€£¥₽₺₹₩])"
    );
    let text = rewrite(text, money, |found| {
        let sign = found.get(1).or(found.get(6))?;
        let number = found.get(2).or(found.get(4))?;
        let scale = found.get(3).or(found.get(5)).unwrap_or("");
        let (unit, cent) = currency(sign);
        // Two decimals are cents, unless they are decimals of a million.
        if let (Some((whole, cents)), "") = (number.split_once('.'), scale)
            && cents.len() == 2
            && !number.contains('-')
            && !cent.is_empty()
        {
            let cents_words = format!("{} {cent}", digits(cents.trim_start_matches('0')));
            return Some(match (whole.trim_start_matches('0'), cents) {
                (_, "00") => format!("{} {unit}", digits(whole)),
                ("", _) => cents_words,
                _ => format!("{} {unit} و {cents_words}", digits(whole)),
            });
        }
        Some(format!("{}{scale} {unit}", spoken(number)))
    });
    rewrite(&text, pattern!(r"[$€£¥₽₺₹₩]"), |found| {
        Some(format!(" {} ", currency(found.text(0)).0))
    })
}

fn currency(sign: &str) -> (&'static str, &'static str) {
    match sign {
        "$" => ("دلار", "سنت"),
        "€" => ("یورو", "سنت"),
        "£" => ("پوند", "پنس"),
        "¥" => ("ین", ""),
        "₽" => ("روبل", ""),
        "₺" => ("لیر", ""),
        "₹" => ("روپیه", ""),
        _ => ("وون", ""),
    }
}

fn units(text: &str) -> String {
    let units = pattern!(
        r"([0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)?) ?",
        r"(km/h|kmh|kph|m/s|mph|km²|km³|km2|m²|m³|m2|m3|cm²|cm³|km|cm|mm|nm|m|kg|mg|g|ml|mL|L|l|kWh|kW|MW|W|V|mAh",
        r"|THz|GHz|MHz|kHz|KHz|Hz|TB|GB|MB|KB|kB|Gbps|Mbps|dB|ft|lb|oz|ha|min|sec|ms|s|h|°[CcFf]?|º[CcFf]?)"
    );
    let text = rewrite(text, units, |found| {
        let apart = !found.next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '²' | '³' | '/'));
        apart.then(|| format!("{} {}", spoken(found.text(1)), unit(found.text(2))))
    });
    rewrite(&text, pattern!(r"[°º]([CcFf]\b)?"), |found| Some(format!(" {} ", unit(found.text(0)))))
}

fn unit(symbol: &str) -> &'static str {
    match symbol {
        "km/h" | "kmh" | "kph" => "کیلومتر بر ساعت",
        "m/s" => "متر بر ثانیه",
        "mph" => "مایل بر ساعت",
        "km²" | "km2" => "کیلومتر مربع",
        "km³" => "کیلومتر مکعب",
        "m²" | "m2" => "متر مربع",
        "m³" | "m3" => "متر مکعب",
        "cm²" => "سانتی‌متر مربع",
        "cm³" => "سانتی‌متر مکعب",
        "km" => "کیلومتر",
        "m" => "متر",
        "cm" => "سانتی‌متر",
        "mm" => "میلی‌متر",
        "nm" => "نانومتر",
        "kg" => "کیلوگرم",
        "g" => "گرم",
        "mg" => "میلی‌گرم",
        "L" | "l" => "لیتر",
        "ml" | "mL" => "میلی‌لیتر",
        "kWh" => "کیلووات ساعت",
        "kW" => "کیلووات",
        "MW" => "مگاوات",
        "W" => "وات",
        "V" => "ولت",
        "mAh" => "میلی‌آمپر ساعت",
        "THz" => "تراهرتز",
        "GHz" => "گیگاهرتز",
        "MHz" => "مگاهرتز",
        "kHz" | "KHz" => "کیلوهرتز",
        "Hz" => "هرتز",
        "TB" => "ترابایت",
        "GB" => "گیگابایت",
        "MB" => "مگابایت",
        "KB" | "kB" => "کیلوبایت",
        "Gbps" => "گیگابیت بر ثانیه",
        "Mbps" => "مگابیت بر ثانیه",
        "dB" => "دسی‌بل",
        "ft" => "فوت",
        "lb" => "پوند",
        "oz" => "اونس",
        "ha" => "هکتار",
        "min" => "دقیقه",
        "sec" | "s" => "ثانیه",
        "ms" => "میلی‌ثانیه",
        "h" => "ساعت",
        "°C" | "°c" | "ºC" | "ºc" => "درجه سانتی‌گراد",
        "°F" | "°f" | "ºF" | "ºf" => "درجه فارنهایت",
        _ => "درجه",
    }
}

/// `۲م`, `۲ام`, `۲‌ام`, `۲۱ ام`, `۵مین`, `۵ امین`; also with the vowel spelled out: `۲وم`.
fn ordinals(text: &str) -> String {
    let ordinals = pattern!(r"([0-9]+)(?:\x{200c}?(ومین|امین|مین|وم|ام|م)| (امین|ام))");
    rewrite(text, ordinals, |found| {
        let apart = !found.next().is_some_and(|c| c.is_alphanumeric() || c == '\u{200c}');
        let suffix = found.get(2).or(found.get(3))?;
        let plural = if suffix.ends_with("ین") { "ین" } else { "" };
        (apart && found.is_whole_number()).then(|| format!("{}{plural}", ordinal_of(digits(found.text(1)))))
    })
}

/// Ranges, signs and operators between numbers.
fn arithmetic(text: &str) -> String {
    // A house number or a part number: more than two groups are not a range.
    let groups = pattern!(r"[0-9]+(?:-[0-9]+){2,}");
    let text = rewrite(text, groups, |found| {
        Some(found.text(0).split('-').map(digits).collect::<Vec<_>>().join("، "))
    });
    let range = pattern!(r"([0-9]+(?:\.[0-9]+)*)-([0-9]+(?:\.[0-9]+)*)");
    let text = rewrite(&text, range, |found| {
        // After a Latin letter it is a model number: «a-10-20».
        found.previous().is_none_or(|c| c != '-').then(|| spoken(found.text(0)))
    });
    let operator = pattern!(r"([0-9]) ?([+×*÷=<>]) ?(-?[0-9])");
    let read = |found: &Found| {
        let word = match found.text(2) {
            "+" => "به علاوه",
            "×" | "*" => "ضربدر",
            "÷" => "تقسیم بر",
            "=" => "مساوی",
            "<" => "کوچک‌تر از",
            _ => "بزرگ‌تر از",
        };
        Some(format!("{} {word} {}", found.text(1), found.text(3)))
    };
    // Applied twice, because matches do not overlap: the digit between two operators belongs to both.
    let text = rewrite(&rewrite(&text, operator, read), operator, read);
    // «covid-19»: a hyphen between a word and its number is read as a space.
    rewrite(&text, pattern!(r"(\p{L})-([0-9])"), |found| Some(format!("{} {}", found.text(1), found.text(2))))
}

/// Reads the remaining numbers: decimals, versions, whole numbers.
fn plain(text: &str) -> String {
    let text = rewrite(text, pattern!(r"[0-9]+(?:\.[0-9]+)+"), |found| Some(amount(found.text(0))));
    let text = rewrite(&text, pattern!(r"\.([0-9]+)"), |found| {
        // «.۵» alone is a decimal; after a letter the dot ends a sentence with a missing space.
        let leads = found.previous().is_none_or(|c| c == ' ' || c == '(');
        leads.then(|| amount(found.text(0)))
    });
    let text = rewrite(&text, pattern!(r"[0-9]+"), |found| Some(digits(found.text(0))));
    text.replace('²', " به توان دو ").replace('³', " به توان سه ")
}

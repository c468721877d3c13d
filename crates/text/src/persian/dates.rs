//! Dates and times of day in Persian.
//!
//! A date has a four-digit year, first or last, separated by `/`, `-` or `.`: 1200 to 1599 is a solar Hijri year, 1600 to
//! 2199 a Gregorian one. If the year is last, the day comes before the month, as is usual in Persian, unless only the other
//! order is a valid date.

use super::numbers::{amount, cardinal, ordinal};
use crate::rewrite::{pattern, rewrite};

const SOLAR: [&str; 12] =
    ["فروردین", "اردیبهشت", "خرداد", "تیر", "مرداد", "شهریور", "مهر", "آبان", "آذر", "دی", "بهمن", "اسفند"];
const GREGORIAN: [&str; 12] = [
    "ژانویه",
    "فوریه",
    "مارس",
    "آوریل",
    "مه",
    "ژوئن",
    "ژوئیه",
    "اوت",
    "سپتامبر",
    "اکتبر",
    "نوامبر",
    "دسامبر",
];

/// Reads every date and time; other digits are left unchanged.
pub fn read(text: &str) -> String {
    let text = week_days(text);
    let text = full_dates(&text);
    let text = month_and_year(&text);
    let text = days_of_months(&text);
    let text = eras(&text);
    let text = times(&text);
    ratios(&text)
}

/// `۳شنبه` is a day, not three Saturdays.
fn week_days(text: &str) -> String {
    rewrite(text, pattern!(r"([1-5])[ \x{200c}]?شنبه"), |found| {
        let day = match found.text(1) {
            "1" => "یک\u{200c}شنبه",
            "2" => "دوشنبه",
            "3" => "سه\u{200c}شنبه",
            "4" => "چهارشنبه",
            _ => "پنج\u{200c}شنبه",
        };
        found.is_separate().then(|| day.to_owned())
    })
}

fn full_dates(text: &str) -> String {
    // A two-digit year comes first and cannot be a day: ۹۹/۱۲/۲۹.
    let short = pattern!(r"([3-9][0-9])/([0-9]{1,2})/([0-9]{1,2})");
    let text = rewrite(text, short, |found| {
        let number = |group: usize| found.get(group).and_then(|digits| digits.parse::<u64>().ok());
        let (year, month, day) = (number(1)?, number(2)?, number(3)?);
        if year < 32 || !found.is_whole_number() {
            return None;
        }
        let said = date(1300 + year, month, day)?;
        Some(said.replace(&cardinal(1300 + year), &cardinal(year)))
    });
    let dates = pattern!(
        r"([0-9]{4})(?:/([0-9]{1,2})/|-([0-9]{1,2})-|\.([0-9]{1,2})\.)([0-9]{1,2})",
        r"|([0-9]{1,2})(?:/([0-9]{1,2})/|-([0-9]{1,2})-|\.([0-9]{1,2})\.)([0-9]{4})"
    );
    rewrite(&text, dates, |found| {
        if !found.is_whole_number() {
            return None;
        }
        let number = |group: usize| found.get(group).and_then(|digits| digits.parse::<u64>().ok());
        match number(1) {
            Some(year) => date(year, number(2).or(number(3)).or(number(4))?, number(5)?),
            None => {
                let (first, second) = (number(6)?, number(7).or(number(8)).or(number(9))?);
                let year = number(10)?;
                date(year, second, first).or_else(|| date(year, first, second))
            }
        }
    })
}

fn date(year: u64, month: u64, day: u64) -> Option<String> {
    let name = month_name(year, month)?;
    let solar_autumn = year < 1600 && month > 6;
    let days = if solar_autumn { 30 } else { 31 };
    (1..=days).contains(&day).then(|| format!("{} {name} {}", ordinal(day), cardinal(year)))
}

fn month_name(year: u64, month: u64) -> Option<&'static str> {
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    match year {
        1200..1600 => SOLAR.get(index).copied(),
        1600..2200 => GREGORIAN.get(index).copied(),
        _ => None,
    }
}

/// `۱۴۰۳/۰۵`, `۱۲/۱۴۰۳`.
fn month_and_year(text: &str) -> String {
    let months = pattern!(r"([0-9]{4})/([0-9]{2})|([0-9]{1,2})/([0-9]{4})");
    rewrite(text, months, |found| {
        let number = |group: usize| found.get(group).and_then(|digits| digits.parse::<u64>().ok());
        let (year, month) = (number(1).or(number(4))?, number(2).or(number(3))?);
        let name = month_name(year, month)?;
        found.is_whole_number().then(|| format!("{name} {}", cardinal(year)))
    })
}

/// `۲۲ بهمن` is «بیست و دوم بهمن».
fn days_of_months(text: &str) -> String {
    let days = pattern!(
        r"([0-9]{1,2})(?:[\x{200c} ]?(?:ام|م))?[\x{200c} ]?",
        r"(فروردین|اردیبهشت|خرداد|تیر|مرداد|شهریور|مهر|آبان|آذر|دی|بهمن|اسفند",
        r"|ژانویه|فوریه|مارس|آوریل|آپریل|مه|می|ژوئن|ژوئیه|جولای|اوت|آگوست|سپتامبر|اکتبر|نوامبر|دسامبر)"
    );
    let text = rewrite(text, days, |found| {
        let day = found.text(1).parse::<u64>().ok().filter(|day| (1..=31).contains(day))?;
        let next = found.next();
        let rest = found.after.trim_start_matches([' ', '\u{200c}']);
        let whole_word =
            !next.is_some_and(char::is_alphanumeric) && (next != Some('\u{200c}') || rest.starts_with("ماه"));
        let month = match found.text(2) {
            // May, unless it is the prefix of a verb: «۵ می روم».
            "می" if rest.starts_with(char::is_alphabetic) && !rest.starts_with("ماه") => return None,
            "می" => "مه",
            month => month,
        };
        // Squares and streets are named after the cardinal: «میدان هفده شهریور».
        let named = ["خیابان", "میدان", "بلوار", "بیمارستان", "پارک", "شهرک", "کوی", "ورزشگاه", "مدرسه"]
            .contains(&found.word_before().as_str());
        let said = if named { cardinal(day) } else { ordinal(day) };
        (whole_word && found.is_whole_number()).then(|| format!("{said} {month}"))
    });
    rewrite(&text, pattern!(r"\bمی ([0-9]{4})\b"), |found| Some(format!("مه {}", found.text(1))))
}

/// `۲۰۲۴ م`, `۱۴۰۳ ه.ش`, `۵۰۰ ق.م`.
fn eras(text: &str) -> String {
    let eras = pattern!(r"([0-9]{1,4}) ?(ه\.? ?ش|ه\.? ?ق|ق\.? ?م|م)\b");
    rewrite(text, eras, |found| {
        let year = found.text(1).parse::<u64>().ok()?;
        let era = match found.text(2).trim_start_matches('ه') {
            "م" if year >= 1000 => "میلادی",
            // «۱۰م» is the tenth.
            "م" => return None,
            rest if rest.ends_with('ش') => "هجری شمسی",
            rest if rest.starts_with('ق') && rest.ends_with('م') => "قبل از میلاد",
            _ => "هجری قمری",
        };
        found.is_whole_number().then(|| format!("{} {era}", cardinal(year)))
    })
}

/// `۱۴:۳۰` is «چهارده و سی دقیقه»; a full hour adds the word for hour.
fn times(text: &str) -> String {
    let range = pattern!(r"([0-9]{1,2}:[0-9]{2}) ?- ?([0-9]{1,2}:[0-9]{2})");
    let text = &rewrite(text, range, |found| Some(format!("{} تا {}", found.text(1), found.text(2))));
    let times = pattern!(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?: ?(ق\.? ?ظ|ب\.? ?ظ)\b)?");
    rewrite(text, times, |found| {
        let number = |group: usize| found.get(group).map(str::parse::<u64>).transpose().ok();
        let (hour, minute, second) = (number(1)??, number(2)??, number(3)?);
        if hour > 24 || minute > 59 || second.is_some_and(|s| s > 59) || !found.is_whole_number() {
            return None;
        }
        let mut words = Vec::new();
        words.push(match (minute, second.unwrap_or(0), found.word_before().as_str()) {
            (0, 0, "ساعت") => cardinal(hour),
            (0, 0, _) => format!("ساعت {}", cardinal(hour)),
            _ => cardinal(hour),
        });
        if minute > 0 {
            words.push(format!("{} دقیقه", cardinal(minute)));
        }
        if let Some(second) = second.filter(|&s| s > 0) {
            words.push(format!("{} ثانیه", cardinal(second)));
        }
        let part = match found.get(4).and_then(|part| part.chars().next()) {
            Some('ق') => " قبل از ظهر",
            Some(_) => " بعد از ظهر",
            None => "",
        };
        Some(format!("{}{part}", words.join(" و ")))
    })
}

/// A remaining colon between numbers is a ratio: `۳:۱`.
fn ratios(text: &str) -> String {
    rewrite(text, pattern!(r"([0-9]+) ?: ?([0-9]+)"), |found| {
        found.is_whole_number().then(|| format!("{} به {}", amount(found.text(1)), amount(found.text(2))))
    })
}

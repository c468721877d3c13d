//! Dates, years, decades and times of day in English, read the American way: 3/5/2024 is the fifth of March.

use super::words::{amount, cardinal, ordinal, plural, year};
use crate::rewrite::{Found, pattern, rewrite};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Reads every date and time; other digits are left unchanged.
pub fn read(text: &str) -> String {
    let text = month_abbreviations(text);
    let text = numeric_dates(&text);
    let text = spelled_dates(&text);
    let text = times(&text);
    let text = decades(&text);
    years(&text)
}

/// "Sept. 3", "3 Jan 2020", "Dec. 1999": a month is abbreviated only next to a number.
fn month_abbreviations(text: &str) -> String {
    let before = pattern!(r"(?i)\b(jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.? ([0-9])");
    let text = rewrite(text, before, |found| Some(format!("{} {}", month(found.text(1))?, found.text(2))));
    let after = pattern!(
        r"(?i)\b([0-9]{1,2}(?:st|nd|rd|th)?) (jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.?"
    );
    rewrite(&text, after, |found| Some(format!("{} {}", found.text(1), month(found.text(2))?)))
}

fn month(short: &str) -> Option<&'static str> {
    let short = short.to_ascii_lowercase();
    let short = short.get(..3)?;
    MONTHS.iter().copied().find(|name| name.to_ascii_lowercase().starts_with(short))
}

fn numeric_dates(text: &str) -> String {
    let iso = pattern!(r"([0-9]{4})(?:-([0-9]{1,2})-|/([0-9]{1,2})/|\.([0-9]{1,2})\.)([0-9]{1,2})");
    let text = rewrite(text, iso, |found| {
        let number = |group: usize| found.get(group).and_then(|digits| digits.parse::<u64>().ok());
        let month = number(2).or(number(3)).or(number(4))?;
        if found.is_whole_number() { date(number(1)?, month, number(5)?) } else { None }
    });
    let american =
        pattern!(r"([0-9]{1,2})(?:/([0-9]{1,2})/|-([0-9]{1,2})-|\.([0-9]{1,2})\.)([0-9]{4}|[0-9]{2})");
    rewrite(&text, american, |found| {
        let number = |group: usize| found.get(group).and_then(|digits| digits.parse::<u64>().ok());
        let (first, second) = (number(1)?, number(2).or(number(3)).or(number(4))?);
        let year = match (found.text(5).len(), number(5)?) {
            // A two-digit year needs slashes: 1-2-30 may be anything.
            (2, _) if found.get(2).is_none() => return None,
            (2, short @ ..50) => 2000 + short,
            (2, short) => 1900 + short,
            (_, long) => long,
        };
        if !found.is_whole_number() {
            return None;
        }
        date(year, first, second).or_else(|| date(year, second, first))
    })
}

fn date(in_year: u64, month: u64, day: u64) -> Option<String> {
    let name = MONTHS.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let plausible = (1..=31).contains(&day) && (1000..2200).contains(&in_year);
    plausible.then(|| format!("{name} {}, {}", ordinal(day), year(in_year)))
}

/// "May 3, 1999", "May 3rd", "3 May 1999".
fn spelled_dates(text: &str) -> String {
    let days = pattern!(
        r"(?i)\b(january|february|march|april|may|june|july|august|september|october|november|december)",
        r" ([0-9]{1,2})-([0-9]{1,2})\b"
    );
    let text = &rewrite(text, days, |found| {
        let day = |group: usize| found.text(group).parse::<u64>().ok().filter(|day| (1..=31).contains(day));
        let (from, to) = (day(2)?, day(3)?);
        found.is_whole_number().then(|| format!("{} {} to {}", found.text(1), ordinal(from), ordinal(to)))
    });
    let month_first = pattern!(
        r"(?i)\b(january|february|march|april|may|june|july|august|september|october|november|december)",
        r" ([0-9]{1,2})(?:st|nd|rd|th)?\b(?:(,? )([0-9]{4})\b)?"
    );
    let text = rewrite(text, month_first, |found| {
        let day = found.text(2).parse::<u64>().ok().filter(|day| (1..=31).contains(day))?;
        let cut =
            found.after.starts_with([':', '%', '/']) || found.get(4).is_none() && !found.is_whole_number();
        let said = format!("{} {}", found.text(1), ordinal(day));
        match found.get(4).and_then(|digits| digits.parse::<u64>().ok()) {
            _ if cut => None,
            Some(n) => Some(format!("{said}, {}", year(n))),
            None => Some(said),
        }
    });
    let day_first = pattern!(
        r"(?i)\b(the )?([0-9]{1,2})(?:st|nd|rd|th)?( of)? ",
        r"(january|february|march|april|may|june|july|august|september|october|november|december)\b",
        r"(?:(,? )([0-9]{4})\b)?"
    );
    rewrite(&text, day_first, |found| {
        let day = found.text(2).parse::<u64>().ok().filter(|day| (1..=31).contains(day))?;
        // "2 may be enough": after a number, lower-case "may" is more often the verb than the month.
        if found.text(4) == "may" && found.get(6).is_none()
            || found.before.ends_with(['.', ':', '/', '-', '$'])
        {
            return None;
        }
        let said = format!("the {} of {}", ordinal(day), found.text(4));
        Some(match found.get(6).and_then(|digits| digits.parse::<u64>().ok()) {
            Some(n) => format!("{said}, {}", year(n)),
            None => said,
        })
    })
}

/// "9:30 am" is "nine thirty a m", "14:05" "fourteen oh five", "9:00" "nine o'clock".
fn times(text: &str) -> String {
    let range = pattern!(r"([0-9]{1,2}:[0-9]{2}) ?- ?([0-9]{1,2}:[0-9]{2})");
    let text = &rewrite(text, range, |found| Some(format!("{} to {}", found.text(1), found.text(2))));
    let times = pattern!(r"(?i)\b([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?: ?([ap])\.?m\b\.?)?");
    let text = rewrite(text, times, |found| {
        let number = |group: usize| found.get(group).map(str::parse::<u64>).transpose().ok();
        let (hour, minute, second) = (number(1)??, number(2)??, number(3)?);
        if hour > 24 || minute > 59 || second.is_some_and(|s| s > 59) || !found.is_whole_number() {
            return None;
        }
        let mut said = cardinal(hour);
        match (minute, found.get(4), second) {
            (0, None, None) if hour == 0 => return Some("midnight".to_owned()),
            (0, None, None) => {
                let rest = found.after.trim_start().as_bytes();
                let told = rest.len() >= 7 && rest[..7].eq_ignore_ascii_case(b"o'clock");
                said.push_str(if told { "" } else { " o'clock" });
            }
            (0, Some(_), None) => {}
            (1..10, ..) => said.push_str(&format!(" oh {}", cardinal(minute))),
            _ => said.push_str(&format!(" {}", cardinal(minute))),
        }
        if let Some(second) = second {
            said.push_str(&format!(" and {} second{}", cardinal(second), if second == 1 { "" } else { "s" }));
        }
        Some(format!("{said}{}", half(found, 4)))
    });
    let hours = pattern!(r"(?i)\b([0-9]{1,2}) ?([ap])(?:\.m\.|\.m\b|m\b\.?)");
    let text = rewrite(&text, hours, |found| {
        let hour = found.text(1).parse::<u64>().ok().filter(|hour| (1..=12).contains(hour))?;
        found.is_whole_number().then(|| format!("{}{}", cardinal(hour), half(found, 2)))
    });
    // A remaining colon between numbers is a ratio or a score: "3:1".
    rewrite(&text, pattern!(r"([0-9]+) ?: ?([0-9]+)"), |found| {
        found.is_whole_number().then(|| format!("{} to {}", amount(found.text(1)), amount(found.text(2))))
    })
}

/// " a m" or " p m", with a full stop if the abbreviation's also ends the sentence.
fn half(found: &Found, group: usize) -> String {
    let Some(half) = found.get(group) else { return String::new() };
    let ends = found.text(0).ends_with('.')
        && (found.after.is_empty() || found.after.starts_with(' ') && next_is_upper(found.after));
    format!(" {} m{}", half.to_ascii_lowercase(), if ends { "." } else { "" })
}

fn next_is_upper(text: &str) -> bool {
    text.trim_start().chars().next().is_some_and(char::is_uppercase)
}

/// "the 1990s", "the '90s".
fn decades(text: &str) -> String {
    let decades = pattern!(r"\b([0-9]{2})([0-9]0)'?s\b|'?\b([2-9]0)'?s\b");
    rewrite(text, decades, |found| {
        if let Some(tens) = found.get(3) {
            return Some(plural(&cardinal(tens.parse().ok()?)));
        }
        let (century, decade) = (found.text(1).parse::<u64>().ok()?, found.text(2).parse::<u64>().ok()?);
        Some(match (century, decade) {
            (10 | 20, 0) => plural(&cardinal(century * 100)),
            (_, 0) => format!("{} hundreds", cardinal(century)),
            _ => format!("{} {}", cardinal(century), plural(&cardinal(decade))),
        })
    })
}

/// Words that mark the following number as a year rather than a count.
const YEAR_WORDS: [&str; 25] = [
    "in", "since", "by", "of", "from", "until", "till", "before", "after", "during", "year", "years",
    "circa", "c", "around", "between", "ad", "spring", "summer", "autumn", "fall", "winter", "late", "early",
    "to",
];

/// Reads four-digit numbers without a separator: 1100 to 2099 are years, earlier ones only after a word that says so.
/// Numbers with a unit or currency are left to their own rules.
fn years(text: &str) -> String {
    let range = pattern!(r"\b(1[0-9]{3}|20[0-9]{2})-(1[0-9]{3}|20[0-9]{2}|[0-9]{2})\b");
    let text = rewrite(text, range, |found| {
        let (from, to) = (found.text(1).parse::<u64>().ok()?, found.text(2));
        let until = to.parse::<u64>().ok()?;
        let ordered = if to.len() == 4 { until > from } else { until > from % 100 };
        let said = if to.len() == 4 { year(until) } else { cardinal(until) };
        (ordered && is_bare(found)).then(|| format!("{} to {said}", year(from)))
    });
    let years = pattern!(r"\b(1[0-9]{3}|20[0-9]{2})\b( ?(?:A\.D\.|AD|B\.C\.E\.|BCE|B\.C\.|BC|C\.E\.|CE)\b)?");
    let text = rewrite(&text, years, |found| {
        let n = found.text(1).parse::<u64>().ok()?;
        let told = found.get(2).is_some() || YEAR_WORDS.contains(&found.word_before().as_str());
        let counted = found.after.starts_with(" percent");
        ((n >= 1100 || told) && is_bare(found) && !counted)
            .then(|| format!("{}{}", year(n), era(found.text(2))))
    });
    let eras = pattern!(r"\b([0-9]{1,4}) ?(A\.D\.|AD\b|B\.C\.E\.|BCE\b|B\.C\.|BC\b|CE\b)");
    rewrite(&text, eras, |found| {
        let n = found.text(1).parse::<u64>().ok()?;
        found.is_whole_number().then(|| format!("{}{}", year(n), era(found.text(2))))
    })
}

fn era(written: &str) -> String {
    let letters: Vec<String> = written
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|c| format!(" {}", c.to_ascii_lowercase()))
        .collect();
    letters.concat()
}

/// Whether the number is on its own: not part of another number, and without currency or unit.
fn is_bare(found: &Found) -> bool {
    let money = |c: char| matches!(c, '$' | '€' | '£' | '¥' | '₹' | '₽' | '₩' | '¢' | '%' | '°');
    let before = found.previous().is_some_and(|c| money(c) || c == '#' || c == '+')
        || found.before.trim_end().ends_with(money);
    let after =
        found.after.trim_start().starts_with(money) || super::quantities::begins_with_unit(found.after);
    found.is_whole_number() && found.is_separate() && !before && !after
}

//! Numbers in words, as far as the demo sentences need them: integers below a million. The cleaners in [`myxtts_text`]
//! handle everything else, but the demo must not change when they improve.

use super::Language;

#[rustfmt::skip]
const ENGLISH_SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const ENGLISH_TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
#[rustfmt::skip]
const PERSIAN_SMALL: [&str; 20] = [
    "صفر",
    "یک",
    "دو",
    "سه",
    "چهار",
    "پنج",
    "شش",
    "هفت",
    "هشت",
    "نه",
    "ده",
    "یازده",
    "دوازده",
    "سیزده",
    "چهارده",
    "پانزده",
    "شانزده",
    "هفده",
    "هجده",
    "نوزده",
];
const PERSIAN_TENS: [&str; 10] = ["", "", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود"];
const PERSIAN_HUNDREDS: [&str; 10] =
    ["", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد"];

/// Replaces every run of digits, in any of the three scripts, with words.
pub(crate) fn spell_out(text: &str, language: Language) -> String {
    let mut out = String::with_capacity(text.len());
    let mut digits = Vec::new();
    for character in text.chars().map(Some).chain([None]) {
        if let Some(digit) = character.and_then(digit) {
            digits.push(digit);
            continue;
        }
        if !digits.is_empty() {
            out.push_str(&in_words(&digits, language));
            digits.clear();
        }
        out.extend(character);
    }
    out
}

/// Every English word used in spelled-out numbers.
pub(crate) fn english_words() -> impl Iterator<Item = &'static str> {
    ENGLISH_SMALL
        .into_iter()
        .chain(ENGLISH_TENS)
        .chain(["hundred", "thousand"])
        .filter(|word| !word.is_empty())
}

fn digit(character: char) -> Option<u32> {
    let zero = match character {
        '0'..='9' => '0',
        '۰'..='۹' => '۰',
        '٠'..='٩' => '٠',
        _ => return None,
    };
    Some(character as u32 - zero as u32)
}

fn in_words(digits: &[u32], language: Language) -> String {
    let (one_by_one, speller): (&[&str; 20], fn(u32) -> String) = match language {
        Language::English => (&ENGLISH_SMALL, english),
        Language::Persian => (&PERSIAN_SMALL, persian),
    };
    if digits.len() > 6 || (digits.len() > 1 && digits[0] == 0) {
        // Not a quantity: a telephone number, or too long to count.
        let words: Vec<&str> = digits.iter().map(|&digit| one_by_one[digit as usize]).collect();
        return words.join(" ");
    }
    speller(digits.iter().fold(0, |number, digit| 10 * number + digit))
}

fn english(number: u32) -> String {
    let (thousands, hundreds, rest) = (number / 1000, number / 100 % 10, number % 100);
    let mut words = Vec::new();
    if thousands > 0 {
        words.push(format!("{} thousand", english(thousands)));
    }
    if hundreds > 0 {
        words.push(format!("{} hundred", ENGLISH_SMALL[hundreds as usize]));
    }
    match (rest / 10, rest % 10) {
        (0, 0) if number > 0 => {}
        (0 | 1, _) => words.push(ENGLISH_SMALL[rest as usize].to_owned()),
        (tens, 0) => words.push(ENGLISH_TENS[tens as usize].to_owned()),
        (tens, ones) => {
            words.push(format!("{}-{}", ENGLISH_TENS[tens as usize], ENGLISH_SMALL[ones as usize]));
        }
    }
    words.join(" ")
}

fn persian(number: u32) -> String {
    let (thousands, hundreds, rest) = (number / 1000, number / 100 % 10, number % 100);
    let mut words = Vec::new();
    match thousands {
        0 => {}
        1 => words.push("هزار".to_owned()),
        _ => words.push(format!("{} هزار", persian(thousands))),
    }
    if hundreds > 0 {
        words.push(PERSIAN_HUNDREDS[hundreds as usize].to_owned());
    }
    if rest >= 20 {
        words.push(PERSIAN_TENS[(rest / 10) as usize].to_owned());
        if rest % 10 > 0 {
            words.push(PERSIAN_SMALL[(rest % 10) as usize].to_owned());
        }
    } else if rest > 0 || number == 0 {
        words.push(PERSIAN_SMALL[rest as usize].to_owned());
    }
    words.join(" و ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_words() {
        let english = |text| spell_out(text, Language::English);
        assert_eq!(english("3 apples at 21, or 0?"), "three apples at twenty-one, or zero?");
        assert_eq!(english("12345"), "twelve thousand three hundred forty-five");
        assert_eq!(english("007 and 1234567"), "zero zero seven and one two three four five six seven");
        let persian = |text| spell_out(text, Language::Persian);
        assert_eq!(persian("۳ سیب، ٢١ انار"), "سه سیب، بیست و یک انار");
        assert_eq!(persian("۱۰۲۵"), "هزار و بیست و پنج");
        assert_eq!(persian("1100"), "هزار و صد");
        assert_eq!(persian("0"), "صفر");
    }
}

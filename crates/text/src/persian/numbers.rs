//! Persian numbers as words: cardinals, ordinals, decimals, and digits read one by one or in groups.

const UNITS: [&str; 20] = [
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
const TENS: [&str; 10] = ["", "ده", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود"];
const HUNDREDS: [&str; 10] = ["", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد"];
const SCALES: [&str; 7] = ["", "هزار", "میلیون", "میلیارد", "تریلیون", "کوادریلیون", "کوینتیلیون"];

/// Word between the parts of a number.
const AND: &str = " و ";

/// `1403` -> «هزار و چهارصد و سه».
pub fn cardinal(n: u64) -> String {
    if n == 0 {
        return UNITS[0].to_owned();
    }
    let mut parts = Vec::new();
    let mut rest = n;
    for scale in SCALES {
        let group = rest % 1000;
        rest /= 1000;
        if group > 0 {
            parts.push(match scale {
                "" => below_thousand(group as usize),
                // A single thousand is spoken without "one", a single million with it.
                "هزار" if group == 1 => scale.to_owned(),
                _ => format!("{} {scale}", below_thousand(group as usize)),
            });
        }
    }
    parts.reverse();
    parts.join(AND)
}

fn below_thousand(n: usize) -> String {
    let mut parts = Vec::with_capacity(3);
    if n >= 100 {
        parts.push(HUNDREDS[n / 100]);
    }
    match n % 100 {
        0 => {}
        small @ 1..20 => parts.push(UNITS[small]),
        rest => {
            parts.push(TENS[rest / 10]);
            if rest % 10 > 0 {
                parts.push(UNITS[rest % 10]);
            }
        }
    }
    parts.join(AND)
}

/// `21` -> «بیست و یکم».
pub fn ordinal(n: u64) -> String {
    ordinal_of(cardinal(n))
}

/// Ordinal of a number that is already in words.
pub fn ordinal_of(words: String) -> String {
    if let Some(stem) = words.strip_suffix("سه") {
        format!("{stem}سوم")
    } else if words.ends_with("سی") {
        // سیم would be a wire.
        format!("{words}\u{200c}ام")
    } else {
        format!("{words}م")
    }
}

/// Reads digits: leading zeros one by one, the rest as a number; digit by digit beyond the largest scale word.
pub fn digits(digits: &str) -> String {
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    let mut words = Vec::new();
    if significant.is_empty() {
        words.extend(std::iter::repeat_n(UNITS[0].to_owned(), digits.len()));
    } else if zeros > 2 || (zeros > 0 && significant.len() > 4) || significant.len() > 18 {
        return one_by_one(digits);
    } else {
        words.extend(std::iter::repeat_n(UNITS[0].to_owned(), zeros));
        match significant.parse() {
            Ok(n) => words.push(cardinal(n)),
            Err(_) => return one_by_one(digits),
        }
    }
    words.join(" ")
}

/// `0912` -> «صفر نه یک دو».
pub fn one_by_one(digits: &str) -> String {
    let words: Vec<&str> =
        digits.chars().filter_map(|c| c.to_digit(10)).map(|digit| UNITS[digit as usize]).collect();
    words.join(" ")
}

/// Whole and fractional digits: `3`, `05` -> «سه ممیز صفر پنج».
pub fn decimal(whole: &str, fraction: &str) -> String {
    let whole = if whole.is_empty() { "0" } else { whole };
    // Fractions finer than thousandths are not spoken as a number.
    let fraction = if fraction.len() > 3 { one_by_one(fraction) } else { digits(fraction) };
    format!("{} ممیز {fraction}", digits(whole))
}

/// Reads `12`, `12.5` or `1.2.3`: a number in ASCII digits without thousands separators.
pub fn amount(number: &str) -> String {
    let mut parts = number.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(whole), None, _) => digits(whole),
        (Some(whole), Some(fraction), None) => decimal(whole, fraction),
        // A version or an address.
        _ => number.split('.').map(digits).collect::<Vec<_>>().join(" نقطه "),
    }
}

/// `1`, `4` -> «یک چهارم».
pub fn fraction(numerator: u64, denominator: u64) -> String {
    format!("{} {}", cardinal(numerator), ordinal(denominator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cardinals() {
        for (n, words) in [
            (0, "صفر"),
            (10, "ده"),
            (18, "هجده"),
            (21, "بیست و یک"),
            (100, "صد"),
            (101, "صد و یک"),
            (250, "دویست و پنجاه"),
            (999, "نهصد و نود و نه"),
            (1000, "هزار"),
            (1001, "هزار و یک"),
            (2024, "دو هزار و بیست و چهار"),
            (21_000, "بیست و یک هزار"),
            (1_000_000, "یک میلیون"),
            (1_001_000, "یک میلیون و هزار"),
            (3_450_000_000, "سه میلیارد و چهارصد و پنجاه میلیون"),
            (2_000_000_000_000, "دو تریلیون"),
        ] {
            assert_eq!(cardinal(n), words);
        }
        assert!(cardinal(u64::MAX).starts_with("هجده کوینتیلیون و "));
    }

    #[test]
    fn ordinals() {
        for (n, words) in [
            (1, "یکم"),
            (2, "دوم"),
            (3, "سوم"),
            (4, "چهارم"),
            (10, "دهم"),
            (23, "بیست و سوم"),
            (30, "سی\u{200c}ام"),
            (31, "سی و یکم"),
            (100, "صدم"),
            (130, "صد و سی\u{200c}ام"),
            (1000, "هزارم"),
        ] {
            assert_eq!(ordinal(n), words);
        }
    }

    #[test]
    fn decimals_and_long_numbers() {
        assert_eq!(amount("3.5"), "سه ممیز پنج");
        assert_eq!(amount("3.05"), "سه ممیز صفر پنج");
        assert_eq!(amount("0.125"), "صفر ممیز صد و بیست و پنج");
        assert_eq!(amount("3.1416"), "سه ممیز یک چهار یک شش");
        assert_eq!(amount("2.00"), "دو ممیز صفر صفر");
        assert_eq!(amount("1.2.3"), "یک نقطه دو نقطه سه");
        assert_eq!(amount("007"), "صفر صفر هفت");
        assert_eq!(amount("0012345"), "صفر صفر یک دو سه چهار پنج");
        assert_eq!(amount(&"9".repeat(30)).split(' ').count(), 30);
    }
}

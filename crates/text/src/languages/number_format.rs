//! Parses written numbers: which dots and commas group thousands and which one is the decimal sign.

/// Number format of a language.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberFormat {
    /// Decimal sign; the other one of dot and comma groups thousands.
    pub(super) point: char,
    /// Whether thousands may be grouped by plain spaces ("1 234").
    pub(super) spaces: bool,
    /// Whether exactly three digits after a single decimal sign are still thousands. For languages whose texts mix both
    /// conventions ("1,234" in Russian).
    pub(super) lenient: bool,
}

/// A parsed number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParsedNumber {
    /// Digits of a whole number.
    Integer(String),
    /// Digits on both sides of the decimal sign.
    Decimal(String, String),
    /// Not a number: a version, an address, a date in an unknown format. Holds the runs of digits.
    Parts(Vec<String>),
}

/// Parses a run of digits, dots and commas that starts and ends with a digit.
pub(super) fn parse(text: &str, writing: NumberFormat) -> ParsedNumber {
    let pieces: Vec<&str> = text.split(['.', ',']).collect();
    let signs: Vec<char> = text.chars().filter(|c| matches!(c, '.' | ',')).collect();
    let parts =
        || ParsedNumber::Parts(pieces.iter().filter(|p| !p.is_empty()).map(|p| (*p).to_owned()).collect());
    if pieces.iter().any(|piece| piece.is_empty()) {
        return parts();
    }
    let grouped = |pieces: &[&str]| {
        pieces[0].len() <= 3 && !pieces[0].starts_with('0') && pieces[1..].iter().all(|p| p.len() == 3)
    };
    let decimal = |whole: &[&str]| ParsedNumber::Decimal(whole.concat(), pieces[pieces.len() - 1].to_owned());
    match signs.as_slice() {
        [] => ParsedNumber::Integer(text.to_owned()),
        [sign] if (*sign != writing.point || writing.lenient) && grouped(&pieces) => {
            ParsedNumber::Integer(pieces.concat())
        }
        [_] => decimal(&pieces[..1]),
        [first, rest @ ..] if rest.iter().all(|sign| sign == first) => {
            if grouped(&pieces) {
                ParsedNumber::Integer(pieces.concat())
            } else {
                parts()
            }
        }
        // Groups with one separator, the fraction after the other.
        [groups @ .., last] if groups.iter().all(|sign| *sign == groups[0] && sign != last) => {
            let whole = &pieces[..pieces.len() - 1];
            if grouped(whole) { decimal(whole) } else { parts() }
        }
        _ => parts(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMA: NumberFormat = NumberFormat { point: ',', spaces: false, lenient: false };

    fn integer(text: &str) -> ParsedNumber {
        ParsedNumber::Integer(text.into())
    }

    fn decimal(whole: &str, fraction: &str) -> ParsedNumber {
        ParsedNumber::Decimal(whole.into(), fraction.into())
    }

    #[test]
    fn distinguishes_thousands_and_decimal_separators() {
        assert_eq!(parse("1.234", COMMA), integer("1234"));
        assert_eq!(parse("1.234.567", COMMA), integer("1234567"));
        assert_eq!(parse("2.0", COMMA), decimal("2", "0"));
        assert_eq!(parse("12,5", COMMA), decimal("12", "5"));
        assert_eq!(parse("1,234", COMMA), decimal("1", "234"));
        assert_eq!(parse("0.123", COMMA), decimal("0", "123"));
        assert_eq!(parse("1.234,56", COMMA), decimal("1234", "56"));
        assert_eq!(parse("1,234.56", COMMA), decimal("1234", "56"));
        assert_eq!(parse("1,234", NumberFormat { lenient: true, ..COMMA }), integer("1234"));
        assert_eq!(parse("1.2.3", COMMA), ParsedNumber::Parts(vec!["1".into(), "2".into(), "3".into()]));
        assert_eq!(parse("1,,2", COMMA), ParsedNumber::Parts(vec!["1".into(), "2".into()]));
    }
}

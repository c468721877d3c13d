//! Decimal numbers as a Python float: the reference parses them as one, so its shortest spelling, digits and rounding
//! matter.

/// A non-negative finite double with Python's formatting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float(f64);

impl Float {
    /// `float(text)`. `None` where Python raises, and for infinity, on which every later step raises.
    pub(super) fn parse(text: &str) -> Option<Float> {
        text.parse().ok().filter(|value: &f64| value.is_finite()).map(Float)
    }

    pub(super) fn is_integer(self) -> bool {
        self.0.fract() == 0.0
    }

    /// `int(value)`.
    pub(super) fn integer(self) -> Option<u128> {
        (self.0 < 3e38).then_some(self.0 as u128)
    }

    /// Shortest decimal digits that round-trip, and the power of ten of the first.
    fn shortest(self) -> (String, i32) {
        let split = |text: &str| {
            let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
            (digits.replace('.', ""), exponent.parse().unwrap_or(0))
        };
        let (digits, exponent) = split(&format!("{:e}", self.0));
        // Of two spellings of that length Python takes the nearer, and the even one on a tie.
        let nearest = format!("{:.*e}", digits.len() - 1, self.0);
        if nearest.parse() == Ok(self.0) { split(&nearest) } else { (digits, exponent) }
    }

    /// Digits on both sides of the point of `str(value)`; `None` where Python writes an exponent.
    pub(super) fn sides(self) -> Option<(u128, String)> {
        let (digits, exponent) = self.shortest();
        if self.0 != 0.0 && !(-4..16).contains(&exponent) {
            return None;
        }
        let fraction = match usize::try_from(exponent) {
            Ok(whole) if digits.len() > whole + 1 => digits[whole + 1..].to_owned(),
            Ok(_) => "0".into(),
            Err(_) => "0".repeat((-1 - exponent) as usize) + &digits,
        };
        Some((self.integer()?, fraction))
    }

    /// The fraction as num2words computes it: as many digits as the shortest spelling has, from a product of floats that is
    /// rounded only if it is within a hundredth of a whole number.
    pub(super) fn fraction_digits(self) -> Option<String> {
        let (digits, exponent) = self.shortest();
        let python_digits = if (-4..16).contains(&exponent) {
            // "2.0": one digit even if there is no fraction.
            (digits.len() as i32 - 1 - exponent).max(1)
        } else {
            (digits.len() as i32 - 1 - exponent).abs()
        };
        let precision = usize::try_from(python_digits).ok()?;
        let scale: f64 = format!("1e{precision}").parse().ok()?;
        let product = (self.0 - self.0.trunc()).abs() * scale;
        let rounded = product.round_ties_even();
        let value = if (rounded - product).abs() < 0.01 { rounded } else { product.floor() };
        if !value.is_finite() {
            return None;
        }
        let mut text = format!("{value:0precision$.0}");
        text.truncate(precision);
        Some(text)
    }

    /// Units and hundredths, rounded half up from the exact binary value.
    pub(super) fn hundredths(self) -> Option<(u128, u128)> {
        // Python's decimal context holds 28 digits, two of them after the point.
        if self.0 >= 1e26 {
            return None;
        }
        let exact = format!("{:.60}", self.0);
        let (units, fraction) = exact.split_once('.')?;
        let (units, cents): (u128, u128) = (units.parse().ok()?, fraction[..2].parse().ok()?);
        let up = u128::from(fraction.as_bytes()[2] >= b'5');
        let total = units * 100 + cents + up;
        Some((total / 100, total % 100))
    }

    /// Two digits after the point, truncated after rounding to nine: how num2words reads a fraction in Arabic.
    pub(super) fn arabic_hundredths(self) -> Option<usize> {
        let nine = ((self.0 - self.0.trunc()) * 1e9).round_ties_even();
        let digits = format!("{nine:09.0}");
        let mut digits = digits.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Some(0);
        }
        digits += "00";
        digits[..2].parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_match_python_str() {
        let sides = |text: &str| Float::parse(text).unwrap().sides();
        assert_eq!(sides("12.50"), Some((12, "5".into())));
        assert_eq!(sides("2.0"), Some((2, "0".into())));
        assert_eq!(sides("0.0"), Some((0, "0".into())));
        assert_eq!(sides("0.0005"), Some((0, "0005".into())));
        assert_eq!(sides("0.00001"), None);
        assert_eq!(sides("10000000000000000.5"), None);
        assert_eq!(sides("1000000.25"), Some((1_000_000, "25".into())));
        assert_eq!(sides("80101021200118.13"), Some((80_101_021_200_118, "12".into())));
    }

    #[test]
    fn cents_are_rounded_half_up_on_the_exact_value() {
        let cents = |text: &str| Float::parse(text).unwrap().hundredths();
        assert_eq!(cents("0.125"), Some((0, 13)));
        assert_eq!(cents("1.005"), Some((1, 0)));
        assert_eq!(cents("2.999"), Some((3, 0)));
    }
}

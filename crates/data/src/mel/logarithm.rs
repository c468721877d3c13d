//! A natural logarithm that the compiler can vectorise; the standard library's is one call per value.

/// `ln(x)` for positive, normal `x`, within 2e-6 absolute for the range of mels.
///
/// x = 2^e * m with m around 1; ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172, for which five terms of the series
/// leave an error below 1e-9.
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    const SQRT_HALF: i32 = std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32;
    let bits = x.to_bits() as i32;
    let exponent = (bits - SQRT_HALF) >> 23;
    let m = f32::from_bits((bits - (exponent << 23)) as u32);
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let series = 1.0 + s2 * (1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0))));
    exponent as f32 * std::f32::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_matches_the_standard_logarithm() {
        let mut x = 5e-7f32;
        while x < 1e8 {
            let (ours, exact) = (f64::from(ln(x)), f64::from(x).ln());
            assert!((ours - exact).abs() < 2e-6, "ln({x}) = {exact}, not {ours}");
            x *= 1.000_3;
        }
        assert_eq!(ln(1.0), 0.0);
    }
}

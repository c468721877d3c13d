//! Sine and exponential from additions and multiplications only. Those in `std` use the platform's mathematics library and
//! may differ in the last bit between machines; the demo corpus must not.

use std::f64::consts::{LN_2, TAU};

/// `sin(2 pi t)`.
pub fn sine(turns: f64) -> f64 {
    // Reduce to [-1/2, 1/2] turns, then mirror into [-1/4, 1/4], where the series is short.
    let mut t = turns - (turns + 0.5).floor();
    if t > 0.25 {
        t = 0.5 - t;
    } else if t < -0.25 {
        t = -0.5 - t;
    }
    let x = t * TAU;
    let square = x * x;
    // Taylor series up to x^17: the first omitted term is below 1e-13 at a quarter turn.
    let mut term = x;
    let mut sum = x;
    let mut n = 1.0;
    while n < 16.0 {
        term *= -square / ((n + 1.0) * (n + 2.0));
        sum += term;
        n += 2.0;
    }
    sum
}

/// `cos(2 pi t)`.
pub fn cosine(turns: f64) -> f64 {
    sine(turns + 0.25)
}

/// `e^x` for the moderate x of filters and decibels; saturates far outside.
pub fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let power = (x / LN_2).round();
    let rest = x - power * LN_2;
    // |rest| < 0.35: the term after x^13 is below 1e-17.
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..=13 {
        term *= rest / f64::from(n);
        sum += term;
    }
    // The clamp above keeps the exponent in the range of normal numbers.
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// The ratio of frequencies `semitones` apart.
pub fn semitones(semitones: f64) -> f64 {
    exp(semitones * (LN_2 / 12.0))
}

/// The ratio of amplitudes `decibels` apart.
pub fn decibels(decibels: f64) -> f64 {
    exp(decibels * (std::f64::consts::LN_10 / 20.0))
}

/// Smoothstep: from 0 to 1 with flat ends for `x` from 0 to 1; constant outside.
pub fn ease(x: f64) -> f64 {
    let x = x.clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

/// Linear interpolation from `a` to `b` by `share`.
pub fn blend(a: f64, b: f64, share: f64) -> f64 {
    a + (b - a) * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_exponential_agree_with_the_platform() {
        for i in -4000..4000 {
            let t = f64::from(i) * 0.001_37;
            assert!((sine(t) - (t * TAU).sin()).abs() < 1e-12, "sine of {t} turns");
            assert!((cosine(t) - (t * TAU).cos()).abs() < 1e-12, "cosine of {t} turns");
            let x = t * 3.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "e to the {x}");
        }
        assert!((semitones(12.0) - 2.0).abs() < 1e-14);
        assert!((decibels(-20.0) - 0.1).abs() < 1e-15);
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite());
    }
}

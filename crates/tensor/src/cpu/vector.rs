//! Arithmetic over long slices: split over the cores, with wide registers where the CPU has them.

use rayon::prelude::*;

/// Elements a core processes at a time; shorter slices stay on the calling thread.
const PIECE: usize = 1 << 14;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn with_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Runs `f` compiled for the widest registers of the CPU: AVX-512, or AVX2 and FMA. Loops inside `f` must be inlined into it.
#[inline(always)]
pub fn wide<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features were just detected.
        return unsafe { with_avx512(f) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the features were just detected.
        return unsafe { with_avx2(f) };
    }
    f()
}

/// Calls `f(x, y)` for every pair of elements.
#[inline(always)]
fn update(x: &[f32], y: &mut [f32], f: impl Fn(f32, &mut f32) + Sync) {
    let piece = |(x, y): (&[f32], &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for (y, &x) in y.iter_mut().zip(x) {
                    f(x, y);
                }
            },
        );
    };
    if x.len() <= PIECE {
        return piece((x, y));
    }
    x.par_chunks(PIECE).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// Calls `f(a, b, y)` for every triple of elements.
#[inline(always)]
fn update2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32, &mut f32) + Sync) {
    let piece = |((a, b), y): ((&[f32], &[f32]), &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    f(a, b, y);
                }
            },
        );
    };
    if y.len() <= PIECE {
        return piece(((a, b), y));
    }
    a.par_chunks(PIECE).zip(b.par_chunks(PIECE)).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// `y = f(x)`.
pub fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    update(
        x,
        y,
        #[inline(always)]
        |x, y| *y = f(x),
    );
}

/// `y *= f(x)`.
pub fn multiply_map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    update(
        x,
        y,
        #[inline(always)]
        |x, y| *y *= f(x),
    );
}

/// `y = f(a, b)`.
pub fn map2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    update2(
        a,
        b,
        y,
        #[inline(always)]
        |a, b, y| *y = f(a, b),
    );
}

/// `y += f(a, b)`.
pub fn add_map2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    update2(
        a,
        b,
        y,
        #[inline(always)]
        |a, b, y| *y += f(a, b),
    );
}

/// Calls `f(row index, row)` for every row of `columns` elements, with rows split over the cores.
pub fn each_row(y: &mut [f32], columns: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if y.is_empty() {
        return;
    }
    let rows = (PIECE / columns.max(1)).max(1);
    y.par_chunks_mut(rows * columns).enumerate().for_each(|(i, piece)| {
        for (j, row) in piece.chunks_mut(columns).enumerate() {
            wide(
                #[inline(always)]
                || f(i * rows + j, row),
            );
        }
    });
}

/// Adds the column sums of `x` (rows of `columns`) to `sums`. Rows are split at fixed positions and parts added in
/// order, so the number of threads does not change the bits.
pub fn add_column_sums(x: &[f32], columns: usize, sums: &mut [f32]) {
    let rows = (4 * PIECE / columns.max(1)).max(1);
    let parts: Vec<Vec<f32>> = x
        .par_chunks(rows * columns)
        .map(|piece| {
            let mut part = vec![0f32; columns];
            wide(
                #[inline(always)]
                || {
                    for row in piece.chunks_exact(columns) {
                        for (s, &v) in part.iter_mut().zip(row) {
                            *s += v;
                        }
                    }
                },
            );
            part
        })
        .collect();
    for part in parts {
        for (s, v) in sums.iter_mut().zip(part) {
            *s += v;
        }
    }
}

/// `Σ f(x)` in sixteen running sums: a fixed order on every machine that still vectorises. Differs from
/// `reduce::sum` in the order of the last additions, and therefore in the bits.
#[inline(always)]
pub fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (pieces, rest) = x.as_chunks::<16>();
    let mut sums = [0f32; 16];
    for piece in pieces {
        for (s, &x) in sums.iter_mut().zip(piece) {
            *s += f(x);
        }
    }
    for (s, &x) in sums.iter_mut().zip(rest) {
        *s += f(x);
    }
    sums.iter().sum()
}

/// `Σ f(a, b)`, ordered as in `sum`.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0f32; 16];
    for (a, b) in a.iter().zip(b) {
        for ((s, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *s += f(a, b);
        }
    }
    for ((s, &a), &b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
        *s += f(a, b);
    }
    sums.iter().sum()
}

/// `Σ f(a, b, c)`, ordered as in `sum`.
#[inline(always)]
pub fn sum3(a: &[f32], b: &[f32], c: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest), (c, c_rest)) =
        (a.as_chunks::<16>(), b.as_chunks::<16>(), c.as_chunks::<16>());
    let mut sums = [0f32; 16];
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for (((s, &a), &b), &c) in sums.iter_mut().zip(a).zip(b).zip(c) {
            *s += f(a, b, c);
        }
    }
    for (((s, &a), &b), &c) in sums.iter_mut().zip(a_rest).zip(b_rest).zip(c_rest) {
        *s += f(a, b, c);
    }
    sums.iter().sum()
}

/// `Σ x²` in f64, in sixteen running sums.
#[inline(always)]
pub fn sum_squares(x: &[f32]) -> f64 {
    let (pieces, rest) = x.as_chunks::<16>();
    let mut sums = [0f64; 16];
    for piece in pieces {
        for (s, &x) in sums.iter_mut().zip(piece) {
            *s += f64::from(x) * f64::from(x);
        }
    }
    for (s, &x) in sums.iter_mut().zip(rest) {
        *s += f64::from(x) * f64::from(x);
    }
    sums.iter().sum()
}

/// `c0 + x (c1 + x (c2 + ..))`.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients.into_iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// `e^x`, within 2 ulp, in a form compilers vectorise. Results below 1.2e-38 are not produced.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Added to a value below 2^22, it leaves the nearest integer in the low bits: rounding and conversion for the
    /// price of an addition.
    const ROUND: f32 = 12_582_912.0;
    // Not `max` and `min`, which would drop a NaN.
    let x = x.clamp(-87.3, 88.7);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    // ln 2 in two parts: the first has few bits, so its product with n is exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = polynomial(r, [1.0, 1.0, 0.5, 0.166_666_55, 0.041_665_8, 0.008_369_9, 0.001_394_3]);
    p * f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23))
}

/// `e^x`, and exactly zero for minus infinity, so that masked elements contribute nothing.
#[inline(always)]
pub fn exp_or_zero(x: f32) -> f32 {
    if x == f32::NEG_INFINITY { 0.0 } else { exp(x) }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent with absolute error below 2e-7 and relative error below 3e-7: by `exp`, or by a polynomial
/// where that cancels.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let near = polynomial(x * x, [-0.333_333, 0.133_319_59, -0.053_786_684, 0.020_805_383, -0.005_905_866]);
    let far = 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
    if x.abs() < 0.6 { x + x * (x * x * near) } else { far }
}

/// 2 sqrt(2 / pi): the tanh form of GELU is `x sigmoid(2 z)`.
const GELU: f32 = 1.595_769_2;

/// GELU by its tanh approximation.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    x * sigmoid(GELU * (x + 0.044_715 * x * x * x))
}

/// The derivative of `gelu_tanh`.
#[inline(always)]
pub fn gelu_tanh_slope(x: f32) -> f32 {
    let s = sigmoid(GELU * (x + 0.044_715 * x * x * x));
    s + x * s * (1.0 - s) * GELU * (1.0 + 0.134_145 * x * x)
}

/// The error function with absolute error below 2e-7: a polynomial near zero, further out `1 - e^p` with a
/// polynomial for the logarithm of the complement. Both were fitted for this function, to well below the rounding
/// of f32.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    const NEAR: [f32; 6] = [
        std::f32::consts::FRAC_2_SQRT_PI,
        -0.376_123_76,
        0.112_811_34,
        -0.026_750_918,
        0.004_977_8,
        -0.000_593_838_17,
    ];
    const FAR: [f32; 7] = [
        -0.000_177_493_03,
        -1.127_749_6,
        -0.637_059_75,
        -0.104_037_374,
        0.022_277_094,
        -0.003_055_609_5,
        0.000_197_181_94,
    ];
    let z = x.abs();
    let near = x * polynomial(x * x, NEAR);
    // Beyond 4 it is 1 in f32, outside the range the polynomial was fitted for.
    let far = 1.0 - exp(polynomial(if z > 4.0 { 4.0 } else { z }, FAR));
    if z < 0.9 { near } else { far.copysign(x) }
}

/// GELU by the error function.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The derivative of `gelu_erf`.
#[inline(always)]
pub fn gelu_erf_slope(x: f32) -> f32 {
    let density = exp(-0.5 * x * x) * 0.398_942_3;
    0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * density
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_over_its_whole_range() {
        for i in -8700..8800 {
            let x = i as f32 / 100.0;
            let truth = f64::from(x).exp();
            let error = (f64::from(exp(x)) - truth).abs() / truth;
            assert!(error < 3e-7, "exp({x}): relative error {error}");
        }
    }

    #[test]
    fn nan_stays_nan() {
        let functions: [fn(f32) -> f32; 7] =
            [exp, exp_or_zero, sigmoid, tanh, erf, gelu_tanh, gelu_erf_slope];
        for (i, f) in functions.into_iter().enumerate() {
            assert!(f(f32::NAN).is_nan(), "function {i} hides a NaN");
        }
        assert_eq!(exp_or_zero(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn tanh_is_close_and_odd() {
        for i in -2000..2001 {
            let x = i as f32 / 150.0;
            let truth = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - truth).abs();
            assert!(error <= 2.5e-7 && error <= 4e-7 * truth.abs(), "tanh({x}): error {error}");
        }
    }

    /// By its series, and by a continued fraction of the complement where the series cancels.
    fn true_erf(x: f64) -> f64 {
        let z = x.abs();
        let value = if z < 3.0 {
            let (mut term, mut sum, mut n) = (z, z, 0.0);
            while term.abs() > 1e-16 {
                n += 1.0;
                term *= -z * z / n;
                sum += term / (2.0 * n + 1.0);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..40).rev().fold(z, |f, k| z + 0.5 * f64::from(k) / f);
            1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
        };
        value.copysign(x)
    }

    #[test]
    fn erf_is_close_everywhere() {
        for (x, y) in
            [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265), (3.5, 0.999_999_257)]
        {
            assert!((true_erf(x) - y).abs() < 1e-9, "the reference value at {x} is wrong");
        }
        for i in -6000..6001 {
            let x = i as f32 / 1000.0;
            let error = (f64::from(erf(x)) - true_erf(f64::from(x))).abs();
            assert!(error < 2e-7, "erf({x}): error {error}");
        }
        assert_eq!((erf(f32::INFINITY), erf(f32::NEG_INFINITY)), (1.0, -1.0));
    }

    #[test]
    fn slopes_agree_with_differences() {
        for (f, slope) in
            [(gelu_tanh as fn(f32) -> f32, gelu_tanh_slope as fn(f32) -> f32), (gelu_erf, gelu_erf_slope)]
        {
            for i in -60..61 {
                let (x, h) = (i as f32 / 10.0, 1e-2);
                let found = (f(x + h) - f(x - h)) / (2.0 * h);
                assert!((found - slope(x)).abs() < 2e-4, "at {x}: {found} and {}", slope(x));
            }
        }
    }

    #[test]
    fn wide_registers_do_not_change_the_bits() {
        let x: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1009) as f32 / 101.0 - 5.0).collect();
        #[inline(always)]
        fn results(x: &[f32]) -> Vec<u32> {
            let values = x.iter().map(|&x| tanh(x) + gelu_erf(x) * sigmoid(x));
            let sums = [sum(x, exp), sum2(x, x, |a, b| a * b), sum_squares(x) as f32];
            values.chain(sums).map(f32::to_bits).collect()
        }
        let narrow = std::hint::black_box(results as fn(&[f32]) -> Vec<u32>);
        assert_eq!(wide(|| results(&x)), narrow(&x));
    }

    #[test]
    fn sums_include_every_element() {
        for n in [0, 1, 15, 16, 17, 100] {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let truth: f32 = x.iter().sum();
            assert_eq!((sum(&x, |x| x), sum2(&x, &x, |a, _| a)), (truth, truth));
            assert_eq!(f64::from(sum3(&x, &x, &x, |a, b, _| a * b)), sum_squares(&x));
        }
    }
}

//! Arithmetic over long slices: split over the cores, in wide registers where the machine has them.

use rayon::prelude::*;

/// Elements one core takes at a time; shorter slices stay on the calling thread.
const PIECE: usize = 1 << 14;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Runs `f` compiled for wide registers, if the machine has them. Loops inside `f` must be inlined into it.
#[inline(always)]
pub fn wide<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the features were just detected.
        return unsafe { with_avx2(f) };
    }
    f()
}

/// `y = f(x)`.
pub fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    let piece = |(x, y): (&[f32], &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = f(x);
                }
            },
        );
    };
    if x.len() <= PIECE {
        return piece((x, y));
    }
    x.par_chunks(PIECE).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// `y += f(a, b)`.
pub fn add_map2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    let piece = |((a, b), y): ((&[f32], &[f32]), &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y += f(a, b);
                }
            },
        );
    };
    if y.len() <= PIECE {
        return piece(((a, b), y));
    }
    a.par_chunks(PIECE).zip(b.par_chunks(PIECE)).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// `y *= f(x)`.
pub fn multiply_map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    let piece = |(x, y): (&[f32], &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y *= f(x);
                }
            },
        );
    };
    if x.len() <= PIECE {
        return piece((x, y));
    }
    x.par_chunks(PIECE).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// `y = f(a, b)`.
pub fn map2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    let piece = |((a, b), y): ((&[f32], &[f32]), &mut [f32])| {
        wide(
            #[inline(always)]
            || {
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = f(a, b);
                }
            },
        );
    };
    if y.len() <= PIECE {
        return piece(((a, b), y));
    }
    a.par_chunks(PIECE).zip(b.par_chunks(PIECE)).zip(y.par_chunks_mut(PIECE)).for_each(piece);
}

/// Calls `f(row number, row)` for every row of `columns`, rows split over the cores.
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

/// Adds the column sums of `x` (rows of `columns`) to `sums`. Rows are cut at fixed places and the parts added in
/// order, so that any number of threads gives the same bits.
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

/// `Σ f(x)` in sixteen running sums, which is one order for every machine and one that wide registers can keep.
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

/// The largest element; NaNs are passed over.
#[inline(always)]
pub fn greatest(x: &[f32]) -> f32 {
    let (pieces, rest) = x.as_chunks::<16>();
    let mut tops = [f32::NEG_INFINITY; 16];
    let larger = |top: &mut f32, x: f32| *top = if x > *top { x } else { *top };
    for piece in pieces {
        tops.iter_mut().zip(piece).for_each(|(top, &x)| larger(top, x));
    }
    tops.iter_mut().zip(rest).for_each(|(top, &x)| larger(top, x));
    tops.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// `e^x`, within 2 units in the last place, in a form compilers turn into vector code.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.3, 88.7);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    // ln 2 in two parts: the first has few bits, so n times it is exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.0
        + r * (1.0
            + r * (0.5 + r * (0.166_666_55 + r * (0.041_665_8 + r * (0.008_369_9 + r * 0.001_394_3)))));
    p * f32::from_bits((((n as i32) + 127) << 23) as u32)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent by `exp`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

const GELU: f32 = 0.797_884_6;

/// GELU by its tanh approximation.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + tanh(GELU * (x + 0.044_715 * x * x * x)))
}

/// The derivative of `gelu_tanh`.
#[inline(always)]
pub fn gelu_tanh_slope(x: f32) -> f32 {
    let t = tanh(GELU * (x + 0.044_715 * x * x * x));
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU * (1.0 + 0.134_145 * x * x)
}

/// The error function, within about 1e-7 of the truth (series below 2, continued by its complement above).
pub fn erf(x: f32) -> f32 {
    let z = f64::from(x.abs());
    let value = if z < 3.0 {
        // 2/sqrt(pi) * sum of (-1)^n z^(2n+1) / (n! (2n+1))
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term.abs() > 1e-12 {
            n += 1.0;
            term *= -z * z / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        // A continued fraction for the complement.
        let mut f = z;
        for k in (1..30).rev() {
            f = z + 0.5 * f64::from(k) / f;
        }
        1.0 - (-z * z).exp() / (f * std::f64::consts::PI.sqrt())
    };
    (value as f32).copysign(x)
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
    fn erf_has_known_values() {
        for (x, y) in
            [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3), (3.5, 0.999_999_3)]
        {
            assert!((erf(x) - y).abs() < 2e-7 && (erf(-x) + y).abs() < 2e-7, "erf({x}) = {}", erf(x));
        }
    }
}

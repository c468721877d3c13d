//! Sums and maxima of slices in sixteen lanes, which compilers vectorise: a plain sum of floats has a fixed order,
//! which forces one addition at a time. The lanes are combined in a fixed order too.

const LANES: usize = 16;

/// `Σ f(x)`.
#[inline(always)]
pub fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for x in whole {
        for (lane, &x) in lanes.iter_mut().zip(x) {
            *lane += f(x);
        }
    }
    join(lanes) + rest.iter().map(|&x| f(x)).sum::<f32>()
}

/// `Σ f(a, b, c)` over three slices of equal length.
#[inline(always)]
pub fn sum3(a: &[f32], b: &[f32], c: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    assert!(a.len() == b.len() && a.len() == c.len(), "slices must have equal length");
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let (c, rest_c) = c.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for (((lane, &a), &b), &c) in lanes.iter_mut().zip(a).zip(b).zip(c) {
            *lane += f(a, b, c);
        }
    }
    join(lanes) + rest_a.iter().zip(rest_b).zip(rest_c).map(|((&a, &b), &c)| f(a, b, c)).sum::<f32>()
}

/// `Σ f(a, b)` over two slices of equal length.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    assert_eq!(a.len(), b.len(), "slices must have equal length");
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += f(a, b);
        }
    }
    join(lanes) + rest_a.iter().zip(rest_b).map(|(&a, &b)| f(a, b)).sum::<f32>()
}

/// The largest element, ignoring NaNs; minus infinity for an empty slice.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for x in whole {
        for (lane, &x) in lanes.iter_mut().zip(x) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

#[inline(always)]
fn join(mut lanes: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
        n /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_included() {
        for n in [0, 1, 15, 16, 17, 100] {
            let x: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            let truth = (n * (n + 1) / 2) as f32;
            assert_eq!((sum(&x, |x| x), sum2(&x, &x, |a, b| a + b)), (truth, 2.0 * truth));
            assert_eq!(sum3(&x, &x, &x, |a, b, c| a + b + c), 3.0 * truth);
            assert_eq!(max(&x), if n == 0 { f32::NEG_INFINITY } else { n as f32 });
        }
    }
}

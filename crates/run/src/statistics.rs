//! The median, with one definition for guards, reports and benchmarks.

/// Median, the mean of the two middle values where their number is even; 0 for an empty series.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        n => sorted[n / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!((median(&[]), median(&[3.0]), median(&[9.0, 1.0, 2.0])), (0.0, 3.0, 2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), 3.0);
    }
}

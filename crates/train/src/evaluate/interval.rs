//! A mean with its confidence interval, by percentile bootstrap: utterances are resampled with replacement a thousand times,
//! and the middle 95 % of the results are the interval. Seeded, so that the same items give the same interval.

use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

/// Number of bootstrap samples.
const ROUNDS: usize = 1000;

/// The value of a metric over a set of utterances, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Value over all utterances.
    pub value: f64,
    /// Lower end of the interval: 2.5 % of the samples are below.
    pub low: f64,
    /// Upper end of the interval: 2.5 % of the samples are above.
    pub high: f64,
    /// Number of utterances. With only one, both ends equal the value.
    pub count: usize,
}

/// Sum of the first numbers over the sum of the second, one pair per utterance; `None` if the quotient is NaN or Inf.
/// Pairs with a NaN or Inf are left out.
pub fn ratio(pairs: &[(f64, f64)], seed: Seed) -> Option<Figure> {
    let pairs: Vec<(f64, f64)> =
        pairs.iter().copied().filter(|(a, b)| a.is_finite() && b.is_finite()).collect();
    let over = |sums: (f64, f64)| Some(sums.0 / sums.1).filter(|value| value.is_finite());
    let add = |sums: (f64, f64), pair: &(f64, f64)| (sums.0 + pair.0, sums.1 + pair.1);
    let value = over(pairs.iter().fold((0.0, 0.0), add))?;
    let count = pairs.len();
    let draw = |round: usize| {
        let seed = seed.with(round as u64);
        over((0..count as u64).map(|at| &pairs[seed.below(at, count as u64) as usize]).fold((0.0, 0.0), add))
    };
    let mut drawn: Vec<f64> = (0..ROUNDS).filter_map(draw).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * drawn.len().saturating_sub(1) as f64;
        drawn.get(place.round() as usize).copied().unwrap_or(value)
    };
    Some(Figure { value, low: at(0.025), high: at(0.975), count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_tensor::random::Stream;
    use proptest::prelude::*;

    #[test]
    fn without_values_there_is_no_figure_and_a_single_value_has_an_empty_interval() {
        let seed = Seed::new(1);
        assert_eq!(ratio(&[], seed), None);
        assert_eq!(ratio(&[(1.0, 0.0)], seed), None);
        assert_eq!(ratio(&[(f64::NAN, 1.0)], seed), None);
        let one = ratio(&[(3.0, 4.0), (f64::INFINITY, 1.0)], seed).unwrap();
        assert_eq!(one, Figure { value: 0.75, low: 0.75, high: 0.75, count: 1 });
    }

    #[test]
    fn the_interval_has_about_its_nominal_coverage() {
        // The mean of 40 normal samples around 2, a hundred times.
        let covers = |trial: u64| {
            let values = Stream::new(trial).normals(40);
            let pairs: Vec<(f64, f64)> = values.iter().map(|x| (f64::from(*x) + 2.0, 1.0)).collect();
            let found = ratio(&pairs, Seed::new(trial)).unwrap();
            (found.low..=found.high).contains(&2.0)
        };
        let right = (0..100).filter(|&trial| covers(trial)).count();
        assert!((86..=100).contains(&right), "{right} of 100");
        let narrow = |count: usize| {
            let values = Stream::new(5).normals(count);
            let pairs: Vec<(f64, f64)> = values.iter().map(|x| (f64::from(*x), 1.0)).collect();
            let found = ratio(&pairs, Seed::new(5)).unwrap();
            found.high - found.low
        };
        assert!(narrow(400) < 0.5 * narrow(25), "more utterances must narrow the interval");
    }

    proptest! {
        #[test]
        fn the_interval_is_within_the_range_of_values_and_deterministic(
            pairs in prop::collection::vec((0f64..9.0, 1f64..9.0), 1..30), seed: u64,
        ) {
            let found = ratio(&pairs, Seed::new(seed)).unwrap();
            let all: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            prop_assert!(found.low <= found.high && found.low >= least - 1e-9 && found.high <= most + 1e-9);
            prop_assert_eq!(ratio(&pairs, Seed::new(seed)), Some(found));
        }
    }
}

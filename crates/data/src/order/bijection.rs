//! A shuffle of `0..n` that is computed instead of stored: every position costs the same, so opening a run at step 1,000,000
//! costs the same as at step 0.

use myxtts_run::seed::{Seed, mix};

/// Rounds of the network for large ranges: four give a pseudo-random permutation, the rest is margin.
const ROUNDS: usize = 10;

/// Rounds for ranges of up to [`SMALL`] values. Their halves have few bits, so each round changes little: counted over all
/// orders of 7 values, 10 and even 24 rounds favour some of them, 32 do not.
const ROUNDS_SMALL: usize = 32;

/// Largest range that counts as small: a bucket of a few batches.
const SMALL: u64 = 256;

/// Largest range: far beyond any corpus, and far from the overflow of a u64.
const MAX_RANGE: u64 = 1 << 62;

/// A keyed permutation of `0..n`.
///
/// A Feistel network over the next power of two, with halves of unequal width if the number of bits is odd, iterated until
/// the value is in the range (cycle walking, fewer than two iterations on average).
#[derive(Clone, Debug)]
pub(crate) struct Bijection {
    n: u64,
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    rounds: usize,
    keys: [u64; ROUNDS_SMALL],
}

impl Bijection {
    /// Creates the permutation of `0..n` that belongs to `seed`.
    pub fn new(n: u64, seed: Seed) -> Self {
        assert!(n <= MAX_RANGE, "a range of {n} is too large");
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        let low_bits = bits / 2;
        let seed = seed.derive("bijection");
        let rounds = if n <= SMALL { ROUNDS_SMALL } else { ROUNDS };
        let mut keys = [0; ROUNDS_SMALL];
        for (round, key) in keys[..rounds].iter_mut().enumerate() {
            *key = seed.at(round as u64);
        }
        Bijection {
            n,
            low_bits,
            low_mask: (1 << low_bits) - 1,
            high_mask: (1 << (bits - low_bits)) - 1,
            rounds,
            keys,
        }
    }

    /// Returns the value at position `i`, which must be below `n`.
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.n, "position {i} of {}", self.n);
        #[cfg(test)]
        tests::EVALUATIONS.with(|count| count.set(count.get() + 1));
        // Values out of range are iterated again, not folded: that keeps it a bijection.
        let mut value = self.forward(i);
        while value >= self.n {
            value = self.forward(value);
        }
        value
    }

    /// The keys of two rounds at a time, which together change both halves.
    fn pairs(&self) -> &[[u64; 2]] {
        self.keys[..self.rounds].as_chunks().0
    }

    fn forward(&self, x: u64) -> u64 {
        let (mut low, mut high) = (x & self.low_mask, x >> self.low_bits);
        for pair in self.pairs() {
            high ^= mix(pair[0] ^ low) & self.high_mask;
            low ^= mix(pair[1] ^ high) & self.low_mask;
        }
        high << self.low_bits | low
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Evaluations of [`Bijection::at`] on this thread: tests count work instead of timing it.
        pub(crate) static EVALUATIONS: Cell<u64> = const { Cell::new(0) };
    }

    impl Bijection {
        /// Returns the position of `value`: the inverse of [`at`](Self::at).
        fn position(&self, value: u64) -> u64 {
            assert!(value < self.n, "value {value} of {}", self.n);
            let mut i = self.backward(value);
            while i >= self.n {
                i = self.backward(i);
            }
            i
        }

        fn backward(&self, x: u64) -> u64 {
            let (mut low, mut high) = (x & self.low_mask, x >> self.low_bits);
            for pair in self.pairs().iter().rev() {
                low ^= mix(pair[1] ^ high) & self.low_mask;
                high ^= mix(pair[0] ^ low) & self.high_mask;
            }
            high << self.low_bits | low
        }
    }

    /// Returns how many standard deviations a chi-square sum over `cells` is above its expectation.
    fn excess(seen: impl Iterator<Item = u64>, cells: usize, expected: f64) -> f64 {
        let (mut chi, mut counted) = (0.0, 0);
        for count in seen {
            chi += (count as f64 - expected).powi(2) / expected;
            counted += 1;
        }
        chi += (cells - counted) as f64 * expected;
        let freedom = (cells - 1) as f64;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn every_permutation_of_a_small_range_is_equally_likely() {
        for (n, permutations) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
            let seeds = 100 * permutations as u64;
            let mut seen = HashMap::new();
            for seed in 0..seeds {
                let order = Bijection::new(n, Seed::new(seed));
                *seen.entry((0..n).map(|i| order.at(i)).collect::<Vec<_>>()).or_insert(0u64) += 1;
            }
            let excess = excess(seen.into_values(), permutations, 100.0);
            assert!(excess < 5.0, "n = {n}: {excess:.1} standard deviations from uniform");
        }
    }

    #[test]
    fn every_record_is_at_every_position_equally_often() {
        // Over the epochs of a run the table of value x position must be flat.
        for n in [7u64, 16, 33, 260] {
            let mut table = vec![0u64; (n * n) as usize];
            // 20 each suffice for the largest.
            let each = if n > 100 { 20 } else { 100 };
            for epoch in 0..each * n {
                let order = Bijection::new(n, Seed::new(1).with(epoch));
                for i in 0..n {
                    table[(i * n + order.at(i)) as usize] += 1;
                }
            }
            let excess = excess(table.into_iter(), (n * n) as usize, each as f64);
            assert!(excess < 5.0, "n = {n}: {excess:.1} standard deviations from uniform");
        }
    }

    #[test]
    fn neighbours_are_separated() {
        // Distances between successive values of one long shuffle, in 64 classes.
        let n = 50_000u64;
        let order = Bijection::new(n, Seed::new(3));
        let mut classes = [0u64; 64];
        for i in 0..n {
            let distance = (order.at((i + 1) % n) + n - order.at(i)) % n;
            classes[(distance * 64 / n) as usize] += 1;
        }
        let excess = excess(classes.into_iter(), 64, n as f64 / 64.0);
        assert!(excess < 5.0, "{excess:.1} standard deviations from uniform");
    }

    #[test]
    fn a_range_of_2_to_the_40_works() {
        let order = Bijection::new((1 << 40) - 3, Seed::new(9));
        for i in [0, 1, 2, 1 << 20, (1 << 40) - 4] {
            assert_eq!(order.position(order.at(i)), i);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_permutation_with_an_inverse(n in 1u64..3000, seed: u64) {
            let order = Bijection::new(n, Seed::new(seed));
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let value = order.at(i);
                prop_assert!(!std::mem::replace(&mut seen[value as usize], true), "{value} twice");
                prop_assert_eq!(order.position(value), i);
            }
        }

        #[test]
        fn another_seed_and_another_epoch_give_another_order(n in 30u64..3000, seed: u64) {
            let all = |seed: Seed| {
                let order = Bijection::new(n, seed);
                (0..n).map(|i| order.at(i)).collect::<Vec<_>>()
            };
            let seed = Seed::new(seed);
            prop_assert_ne!(all(seed.with(0)), all(seed.with(1)));
            prop_assert_ne!(all(seed), all(Seed::new(seed.value() ^ 1)));
        }
    }
}

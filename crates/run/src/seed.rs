//! Stateless random numbers: seeds are derived by name and index, and a stream can be read at any position. There is no
//! state to save for an exact resume.

/// A 64-bit key from which other keys and values are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

/// Odd increment of splitmix64, which visits all 2^64 states.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seed {
    /// Creates a seed from a user's number.
    pub fn new(value: u64) -> Self {
        Seed(value)
    }

    /// Derives a seed for a named purpose: `seed.derive("order")`.
    pub fn derive(self, purpose: &str) -> Self {
        // FNV-1a suffices: names are few and fixed, and `mix` does the mixing.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Seed(mix(self.0 ^ mix(hash)))
    }

    /// Derives a seed for the `n`-th epoch, bucket or record.
    pub fn with(self, n: u64) -> Self {
        Seed(mix(self.0.wrapping_add(GOLDEN.wrapping_mul(n.wrapping_add(1)))))
    }

    /// The underlying value.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The value at `position` of this seed's stream.
    pub fn at(self, position: u64) -> u64 {
        self.with(position).0
    }

    /// An integer in `0..bound` at `position`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(self, position: u64, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must not be zero");
        // Multiply-shift: the bias is below 2^-32 for every bound we use.
        ((u128::from(self.at(position)) * u128::from(bound)) >> 64) as u64
    }

    /// A float in `[0, 1)` at `position`.
    pub fn unit(self, position: u64) -> f64 {
        (self.at(position) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Finaliser of splitmix64: a bijection of u64 in which every input bit affects every output bit.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_seeds_differ_by_name_index_and_parent() {
        let seed = Seed::new(7);
        let all = [
            seed,
            Seed::new(8),
            seed.derive("order"),
            seed.derive("batch"),
            seed.with(0),
            seed.with(1),
            seed.derive("order").with(0),
            Seed::new(8).derive("order"),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }

    #[test]
    fn numbers_cover_their_range_and_stay_in_it() {
        let seed = Seed::new(1).derive("test");
        let mut seen = [0u32; 7];
        for i in 0..7000 {
            seen[seed.below(i, 7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert!((0..1000).all(|i| (0.0..1.0).contains(&seed.unit(i))));
    }
}

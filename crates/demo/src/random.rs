//! A sequential stream of random numbers from a seed. The order of calls matters, so all users of one stream run on one
//! thread.

use myxtts_run::seed::Seed;

/// A seed and the position in its stream.
pub(crate) struct RandomStream {
    seed: Seed,
    at: u64,
}

impl RandomStream {
    pub fn new(seed: Seed) -> Self {
        RandomStream { seed, at: 0 }
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.at += 1;
        self.seed.unit(self.at)
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        self.at += 1;
        items[self.seed.below(self.at, items.len() as u64) as usize]
    }
}

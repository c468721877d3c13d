//! Numbers drawn one after the other from a seed: order matters here, and everything that draws
//! from one `Draw` runs on one thread.

use myxtts_run::seed::Seed;

/// A seed and how much of its stream was used.
pub(crate) struct Draw {
    seed: Seed,
    at: u64,
}

impl Draw {
    pub fn new(seed: Seed) -> Self {
        Draw { seed, at: 0 }
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

//! Memory that batches are made in. The loader only needs bytes; who owns them may pin them.

use crate::batch::layout::ALIGNMENT;

/// A piece of memory that holds a batch.
pub trait Slab: Send + 'static {
    /// All of it.
    fn bytes(&mut self) -> &mut [u8];
}

/// Ordinary memory, aligned as batches are laid out.
pub struct HostSlab {
    memory: Vec<u8>,
    /// Where the first aligned byte lies; a vector's memory does not move with it.
    start: usize,
}

impl HostSlab {
    /// Zeroed memory of at least so many bytes.
    pub fn new(bytes: usize) -> Self {
        // Zeroes straight from the system, which hands out each page when it is first written: opening
        // does not wait for memory that the first batch does not use.
        let memory = vec![0; bytes + ALIGNMENT - 1];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        HostSlab { memory, start }
    }

    /// Several of them.
    pub fn pool(count: usize, bytes: usize) -> Vec<Self> {
        (0..count).map(|_| HostSlab::new(bytes)).collect()
    }
}

impl Slab for HostSlab {
    fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.memory.len() + 1 - ALIGNMENT;
        &mut self.memory[self.start..self.start + bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_is_aligned_and_large_enough() {
        for bytes in [0, 1, 256, 257, 100_000] {
            let mut slab = HostSlab::new(bytes);
            assert_eq!(slab.bytes().len(), bytes);
            assert_eq!(slab.bytes().as_ptr() as usize % 256, 0);
        }
    }
}

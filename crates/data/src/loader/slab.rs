//! Memory that batches are written to. The loader only needs bytes; the owner may use pinned memory.

use crate::batch::layout::ALIGNMENT;

/// Memory that holds a batch.
pub trait Slab: Send + 'static {
    /// Returns all of its bytes.
    fn bytes(&mut self) -> &mut [u8];
}

/// Ordinary memory with the alignment of a batch layout.
pub struct HostSlab {
    memory: Vec<u8>,
    /// Offset of the first aligned byte; moving the vector does not move its memory.
    start: usize,
}

impl HostSlab {
    /// Allocates at least `bytes` zeroed bytes.
    pub fn new(bytes: usize) -> Self {
        // The system provides zeroed pages on first write, so opening does not wait for memory that the first batch does not
        // use.
        let memory = vec![0; bytes + ALIGNMENT - 1];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        HostSlab { memory, start }
    }

    /// Allocates `count` slabs of `bytes` bytes each.
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

//! Memory that batches are made in. The loader only needs bytes; who owns them may pin them.

use bytemuck::{Pod, Zeroable};

/// A piece of memory that holds a batch.
pub trait Slab: Send + 'static {
    /// All of it.
    fn bytes(&mut self) -> &mut [u8];
}

/// Ordinary memory, aligned as batches are laid out.
pub struct HostSlab {
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(256))]
struct Block([u8; 256]);

impl HostSlab {
    /// Zeroed memory of at least so many bytes.
    pub fn new(bytes: usize) -> Self {
        HostSlab { blocks: vec![Block([0; 256]); bytes.div_ceil(size_of::<Block>())] }
    }

    /// Several of them.
    pub fn pool(count: usize, bytes: usize) -> Vec<Self> {
        (0..count).map(|_| HostSlab::new(bytes)).collect()
    }
}

impl Slab for HostSlab {
    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_is_aligned_and_large_enough() {
        for bytes in [0, 1, 256, 257, 100_000] {
            let mut slab = HostSlab::new(bytes);
            assert!(slab.bytes().len() >= bytes);
            assert_eq!(slab.bytes().as_ptr() as usize % 256, 0);
        }
    }
}

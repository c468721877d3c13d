//! Sizes of a decoded GPT, and the offset of each of its weights on the device.

use crate::error::Error;

/// Maximum number of rows in a batch.
pub const MAX_ROWS: usize = 64;
/// Keys per chunk of the attention.
const CHUNK: usize = 128;
/// Maximum number of chunks that can be merged.
const MAX_CHUNKS: usize = 32;
/// Widest row that a warp can normalise.
const WIDEST: usize = 1024;
/// Products are padded to a multiple of this many inputs.
const INPUTS: usize = 32;
/// Products are padded to a multiple of this many features.
const FEATURES: usize = 32;

/// Sizes of a GPT to decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeSizes {
    /// Number of transformer blocks.
    pub layers: usize,
    /// Channels of the residual stream.
    pub width: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// Channels between the two products of a feed-forward layer.
    pub inner: usize,
    /// Rows of the audio embedding table.
    pub vocabulary: usize,
    /// Rows of the audio position table.
    pub positions: usize,
    /// Rows of the text embedding table.
    pub text_vocabulary: usize,
    /// Rows of the text position table.
    pub text_positions: usize,
    /// Vectors per voice.
    pub latents: usize,
    /// The code that ends a sequence.
    pub stop: i32,
    /// Number of sequences whose keys and values are held at the same time.
    pub slots: usize,
}

impl DecodeSizes {
    /// Cache rows per slot: whole chunks; the last one may extend beyond the longest sequence.
    pub fn rows_per_slot(&self) -> usize {
        (self.latents + self.text_positions + self.positions).next_multiple_of(CHUNK)
    }

    /// Channels per head.
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    pub(super) fn chunks(&self) -> usize {
        self.rows_per_slot() / CHUNK
    }

    /// Size of the keys and values of all slots in bytes.
    pub(crate) fn cache_bytes(&self) -> usize {
        2 * self.layers * self.slots * self.rows_per_slot() * self.width * 2
    }

    /// Checks that the kernels support these sizes.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Unsupported(format!("decoding on CUDA in bf16: {what}")));
        if self.width > WIDEST || !self.width.is_multiple_of(8) {
            return wrong(format!(
                "{} channels: the kernels need a multiple of 8 up to {WIDEST}",
                self.width
            ));
        }
        if !self.width.is_multiple_of(self.heads) || ![8, 16, 32, 64, 128].contains(&self.head_size()) {
            return wrong(format!(
                "{} heads in {} channels: the kernels need 8, 16, 32, 64 or 128 per head",
                self.heads, self.width
            ));
        }
        if self.chunks() > MAX_CHUNKS {
            return wrong(format!(
                "sequences of {} rows: the kernels take at most {}",
                self.rows_per_slot(),
                MAX_CHUNKS * CHUNK
            ));
        }
        if self.slots == 0 {
            return wrong("no slots".to_owned());
        }
        Ok(())
    }
}

/// A parameter of the network and its bias: a product, or the scale and bias of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Norm before a block's attention.
    Norm1(usize),
    /// Queries, keys and values `[3 * width, width]`.
    Qkv(usize),
    /// Output projection of the attention, `[width, width]`.
    Out(usize),
    /// Norm before a block's feed-forward layer.
    Norm2(usize),
    /// First feed-forward matrix, `[inner, width]`.
    Up(usize),
    /// Second feed-forward matrix, `[width, inner]`.
    Down(usize),
    /// Norm after the last block.
    LastNorm,
    /// Second norm after the last block.
    FinalNorm,
    /// Output head, `[vocabulary, width]`.
    Head,
    /// Audio embeddings, `[vocabulary, width]`.
    AudioTable,
    /// Audio positions, `[positions, width]`.
    AudioPositions,
    /// Text embeddings, `[text_vocabulary, width]`.
    TextTable,
    /// Text positions, `[text_positions, width]`.
    TextPositions,
}

/// Offsets of a product's matrix in the bf16 buffer and of its bias in the f32 buffer, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub matrix: usize,
    pub bias: usize,
    pub features: usize,
    pub inputs: usize,
}

impl Product {
    /// Elements between the weights of consecutive features.
    pub fn stride(&self) -> usize {
        stride(self.inputs)
    }

    /// Number of splits of its sums, which determines their rounding. Depends on the matrix only, not on the batch.
    pub fn splits(&self) -> usize {
        if self.inputs > 2048 { 16 } else { 8 }
    }
}

/// Elements between consecutive input rows of a product.
pub(super) fn stride(inputs: usize) -> usize {
    inputs.next_multiple_of(INPUTS)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub norm1: usize,
    pub qkv: Product,
    pub out: Product,
    pub norm2: usize,
    pub up: Product,
    pub down: Product,
}

/// Offsets of all parameters.
#[derive(Clone, Debug)]
pub(super) struct WeightOffsets {
    width: usize,
    pub blocks: Vec<Block>,
    /// Both norms after the blocks, one after the other.
    pub last_norms: usize,
    pub head: Product,
    pub audio_table: usize,
    pub audio_positions: usize,
    pub text_table: usize,
    pub text_positions: usize,
    /// Sizes of the two buffers in elements.
    pub rounded: usize,
    pub floats: usize,
}

/// Location of one parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum WeightLocation {
    Product(Product),
    /// Scale, followed by the bias.
    Norm(usize),
    Table(usize),
}

#[derive(Default)]
struct OffsetAllocator {
    rounded: usize,
    floats: usize,
}

impl OffsetAllocator {
    fn floats(&mut self, count: usize) -> usize {
        let at = self.floats;
        self.floats += count.next_multiple_of(64);
        at
    }

    fn product(&mut self, features: usize, inputs: usize) -> Product {
        let matrix = self.rounded;
        self.rounded += features.next_multiple_of(FEATURES) * stride(inputs);
        Product { matrix, bias: self.floats(features), features, inputs }
    }
}

impl WeightOffsets {
    pub fn locate(&self, which: Weight) -> WeightLocation {
        match which {
            Weight::Norm1(layer) => WeightLocation::Norm(self.blocks[layer].norm1),
            Weight::Qkv(layer) => WeightLocation::Product(self.blocks[layer].qkv),
            Weight::Out(layer) => WeightLocation::Product(self.blocks[layer].out),
            Weight::Norm2(layer) => WeightLocation::Norm(self.blocks[layer].norm2),
            Weight::Up(layer) => WeightLocation::Product(self.blocks[layer].up),
            Weight::Down(layer) => WeightLocation::Product(self.blocks[layer].down),
            Weight::LastNorm => WeightLocation::Norm(self.last_norms),
            Weight::FinalNorm => WeightLocation::Norm(self.last_norms + 2 * self.width),
            Weight::Head => WeightLocation::Product(self.head),
            Weight::AudioTable => WeightLocation::Table(self.audio_table),
            Weight::AudioPositions => WeightLocation::Table(self.audio_positions),
            Weight::TextTable => WeightLocation::Table(self.text_table),
            Weight::TextPositions => WeightLocation::Table(self.text_positions),
        }
    }

    pub fn new(sizes: &DecodeSizes) -> WeightOffsets {
        let (width, inner) = (sizes.width, sizes.inner);
        let mut allocator = OffsetAllocator::default();
        let blocks = (0..sizes.layers)
            .map(|_| Block {
                norm1: allocator.floats(2 * width),
                qkv: allocator.product(3 * width, width),
                out: allocator.product(width, width),
                norm2: allocator.floats(2 * width),
                up: allocator.product(inner, width),
                down: allocator.product(width, inner),
            })
            .collect();
        let last_norms = allocator.floats(4 * width);
        let head = allocator.product(sizes.vocabulary, width);
        let [audio_table, audio_positions, text_table, text_positions] =
            [sizes.vocabulary, sizes.positions, sizes.text_vocabulary, sizes.text_positions]
                .map(|rows| allocator.floats(rows * width));
        WeightOffsets {
            width,
            blocks,
            last_norms,
            head,
            audio_table,
            audio_positions,
            text_table,
            text_positions,
            rounded: allocator.rounded,
            floats: allocator.floats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2() -> DecodeSizes {
        DecodeSizes {
            layers: 30,
            width: 1024,
            heads: 16,
            inner: 4096,
            vocabulary: 1026,
            positions: 608,
            text_vocabulary: 6681,
            text_positions: 404,
            latents: 32,
            stop: 1025,
            slots: 64,
        }
    }

    #[test]
    fn sizes_the_kernels_do_not_support_are_rejected() {
        v2().check().unwrap();
        let wrong = [
            DecodeSizes { width: 2048, heads: 16, ..v2() },
            DecodeSizes { heads: 5, ..v2() },
            DecodeSizes { heads: 256, ..v2() },
            DecodeSizes { positions: 8192, ..v2() },
            DecodeSizes { slots: 0, ..v2() },
        ];
        for sizes in wrong {
            assert!(sizes.check().is_err(), "{sizes:?}");
        }
    }

    #[test]
    fn parameters_do_not_overlap() {
        let offsets = WeightOffsets::new(&DecodeSizes { layers: 2, width: 24, heads: 3, inner: 96, ..v2() });
        // 72 features are padded to 96, 24 inputs to 32.
        assert_eq!(offsets.blocks[0].out.matrix, 96 * 32);
        assert_eq!(offsets.blocks[0].qkv.stride(), 32);
        let last = offsets.text_positions + 404 * 24;
        assert!(offsets.floats >= last && offsets.blocks[1].norm1 > offsets.blocks[0].down.bias);
    }
}

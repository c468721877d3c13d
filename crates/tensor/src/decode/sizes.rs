//! What is decoded, and where each of its weights lies on the device.

use crate::error::Error;

/// The most rows a batch has.
pub const MOST_ROWS: usize = 64;
/// Rows of keys that one block of the attention has.
const STRETCH: usize = 128;
/// Stretches that can be merged.
const MOST_STRETCHES: usize = 32;
/// The widest row that a warp can normalise.
const WIDEST: usize = 1024;
/// Products are padded to whole steps of this many inputs.
const INPUTS: usize = 32;
/// And to whole blocks of this many features.
const FEATURES: usize = 32;

/// The sizes of a GPT that is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeSizes {
    /// Blocks.
    pub layers: usize,
    /// Channels.
    pub width: usize,
    /// Heads of each block.
    pub heads: usize,
    /// Channels between the two products of a feed-forward layer.
    pub inner: usize,
    /// Rows of the audio table.
    pub vocabulary: usize,
    /// Rows of the table of audio positions.
    pub places: usize,
    /// Rows of the text table.
    pub text_vocabulary: usize,
    /// Rows of the table of text positions.
    pub text_places: usize,
    /// Vectors of a voice.
    pub latents: usize,
    /// The code that ends a speech.
    pub stop: i32,
    /// Sequences that have keys and values at the same time.
    pub slots: usize,
}

impl DecodeSizes {
    /// Rows that the keys and values of a slot have: whole stretches, of which the last may be longer than any sequence.
    pub fn room(&self) -> usize {
        (self.latents + self.text_places + self.places).next_multiple_of(STRETCH)
    }

    /// Channels of a head.
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    pub(super) fn stretches(&self) -> usize {
        self.room() / STRETCH
    }

    /// Bytes of keys and values of all slots.
    pub fn cache_bytes(&self) -> usize {
        2 * self.layers * self.slots * self.room() * self.width * 2
    }

    /// Why the kernels cannot decode it, if so.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Unsupported(format!("decoding on CUDA in bf16: {what}")));
        if self.width > WIDEST || !self.width.is_multiple_of(8) {
            return wrong(format!("{} channels: they are at most {WIDEST}, and whole eights", self.width));
        }
        if !self.width.is_multiple_of(self.heads) || ![8, 16, 32, 64, 128].contains(&self.head_size()) {
            return wrong(format!(
                "{} heads of {} channels: a head has 8, 16, 32, 64 or 128",
                self.heads, self.width
            ));
        }
        if self.stretches() > MOST_STRETCHES {
            return wrong(format!(
                "sequences of {} rows: they have at most {}",
                self.room(),
                MOST_STRETCHES * STRETCH
            ));
        }
        if self.slots == 0 {
            return wrong("no slots".to_owned());
        }
        Ok(())
    }
}

/// One of the network's parameters with what belongs to it: a product and its bias, a norm's factors and what it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The norm before a block's attention.
    Norm1(usize),
    /// Queries, keys and values `[3 * width, width]`.
    Qkv(usize),
    /// What ends the attention `[width, width]`.
    Out(usize),
    /// The norm before a block's feed-forward layer.
    Norm2(usize),
    /// `[inner, width]`.
    Up(usize),
    /// `[width, inner]`.
    Down(usize),
    /// The norm behind the last block.
    LastNorm,
    /// The norm behind that.
    FinalNorm,
    /// `[vocabulary, width]`.
    Head,
    /// `[vocabulary, width]`.
    AudioTable,
    /// `[places, width]`.
    AudioPositions,
    /// `[text_vocabulary, width]`.
    TextTable,
    /// `[text_places, width]`.
    TextPositions,
}

/// A product's matrix in the buffer of bf16 and its bias in that of f32, both counted in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub matrix: usize,
    pub bias: usize,
    pub features: usize,
    pub inputs: usize,
}

impl Product {
    /// Elements from one feature's weights to the next.
    pub fn stride(&self) -> usize {
        stride(self.inputs)
    }

    /// Stretches that its sums are cut into, which decides how they are rounded: by the matrix alone, not by the batch.
    pub fn stretches(&self) -> usize {
        if self.inputs > 2048 { 16 } else { 8 }
    }
}

/// Elements from one row of a product's input to the next.
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

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Places {
    width: usize,
    pub blocks: Vec<Block>,
    /// Both norms behind the blocks, one after the other.
    pub last_norms: usize,
    pub head: Product,
    pub audio_table: usize,
    pub audio_positions: usize,
    pub text_table: usize,
    pub text_positions: usize,
    /// Elements of the two buffers.
    pub rounded: usize,
    pub floats: usize,
}

/// Where one parameter is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Product(Product),
    /// Factors, and behind them what is added.
    Norm(usize),
    Table(usize),
}

#[derive(Default)]
struct Shelf {
    rounded: usize,
    floats: usize,
}

impl Shelf {
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

impl Places {
    pub fn of(&self, which: Weight) -> Place {
        match which {
            Weight::Norm1(layer) => Place::Norm(self.blocks[layer].norm1),
            Weight::Qkv(layer) => Place::Product(self.blocks[layer].qkv),
            Weight::Out(layer) => Place::Product(self.blocks[layer].out),
            Weight::Norm2(layer) => Place::Norm(self.blocks[layer].norm2),
            Weight::Up(layer) => Place::Product(self.blocks[layer].up),
            Weight::Down(layer) => Place::Product(self.blocks[layer].down),
            Weight::LastNorm => Place::Norm(self.last_norms),
            Weight::FinalNorm => Place::Norm(self.last_norms + 2 * self.width),
            Weight::Head => Place::Product(self.head),
            Weight::AudioTable => Place::Table(self.audio_table),
            Weight::AudioPositions => Place::Table(self.audio_positions),
            Weight::TextTable => Place::Table(self.text_table),
            Weight::TextPositions => Place::Table(self.text_positions),
        }
    }

    pub fn new(sizes: &DecodeSizes) -> Places {
        let (width, inner) = (sizes.width, sizes.inner);
        let mut shelf = Shelf::default();
        let blocks = (0..sizes.layers)
            .map(|_| Block {
                norm1: shelf.floats(2 * width),
                qkv: shelf.product(3 * width, width),
                out: shelf.product(width, width),
                norm2: shelf.floats(2 * width),
                up: shelf.product(inner, width),
                down: shelf.product(width, inner),
            })
            .collect();
        let last_norms = shelf.floats(4 * width);
        let head = shelf.product(sizes.vocabulary, width);
        let [audio_table, audio_positions, text_table, text_positions] =
            [sizes.vocabulary, sizes.places, sizes.text_vocabulary, sizes.text_places]
                .map(|rows| shelf.floats(rows * width));
        Places {
            width,
            blocks,
            last_norms,
            head,
            audio_table,
            audio_positions,
            text_table,
            text_positions,
            rounded: shelf.rounded,
            floats: shelf.floats,
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
            places: 608,
            text_vocabulary: 6681,
            text_places: 404,
            latents: 32,
            stop: 1025,
            slots: 64,
        }
    }

    #[test]
    fn what_kernels_cannot_decode_is_refused() {
        v2().check().unwrap();
        let wrong = [
            DecodeSizes { width: 2048, heads: 16, ..v2() },
            DecodeSizes { heads: 5, ..v2() },
            DecodeSizes { heads: 256, ..v2() },
            DecodeSizes { places: 8192, ..v2() },
            DecodeSizes { slots: 0, ..v2() },
        ];
        for sizes in wrong {
            assert!(sizes.check().is_err(), "{sizes:?}");
        }
    }

    #[test]
    fn nothing_lies_on_anything_else() {
        let places = Places::new(&DecodeSizes { layers: 2, width: 24, heads: 3, inner: 96, ..v2() });
        // 72 features are padded to 96, 24 inputs to 32.
        assert_eq!(places.blocks[0].out.matrix, 96 * 32);
        assert_eq!(places.blocks[0].qkv.stride(), 32);
        let last = places.text_positions + 404 * 24;
        assert!(places.floats >= last && places.blocks[1].norm1 > places.blocks[0].down.bias);
    }
}

//! MD5, which FLAC stores of its samples. Not for security.

/// MD5 of bytes that arrive in chunks.
pub(super) struct Md5 {
    state: [u32; 4],
    /// Bytes of an incomplete block.
    waiting: Vec<u8>,
    length: u64,
}

const BLOCK: usize = 64;

/// Rotation of each step, four for each of the four rounds.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

impl Md5 {
    pub fn new() -> Md5 {
        Md5 { state: [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476], waiting: Vec::new(), length: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.waiting.extend_from_slice(bytes);
        let whole = self.waiting.len() / BLOCK * BLOCK;
        let waiting = std::mem::take(&mut self.waiting);
        for block in waiting[..whole].chunks_exact(BLOCK) {
            self.block(block);
        }
        self.waiting.extend_from_slice(&waiting[whole..]);
    }

    pub fn finish(mut self) -> [u8; 16] {
        let bits = (self.length * 8).to_le_bytes();
        let mut end = vec![0x80];
        end.resize(1 + (2 * BLOCK - 9 - self.length as usize % BLOCK) % BLOCK, 0);
        end.extend(bits);
        self.add(&end);
        let mut sum = [0; 16];
        for (bytes, word) in sum.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        sum
    }

    fn block(&mut self, block: &[u8]) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = self.state;
        for i in 0..64usize {
            let (mixed, word) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            // The constants are sines of the integers.
            let constant = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[word]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(ROTATIONS[i / 16][i % 4]));
        }
        for (state, add) in self.state.iter_mut().zip([a, b, c, d]) {
            *state = state.wrapping_add(add);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_1321() {
        let md5 = |text: &str, piece: usize| {
            let mut md5 = Md5::new();
            text.as_bytes().chunks(piece).for_each(|bytes| md5.add(bytes));
            md5.finish().map(|byte| format!("{byte:02x}")).concat()
        };
        let digits = "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        for (text, sum) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (digits, "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(md5(text, 7), sum);
            assert_eq!(md5(text, 1000), sum);
        }
    }
}

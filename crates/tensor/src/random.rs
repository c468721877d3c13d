//! Counter-based random numbers (Philox 4x32, ten rounds) for dropout and initial weights. Any element of any
//! stream can be computed directly, with the same bits on the CPU and in `kernels/dropout.cu`.

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// Returns the four random words of a counter under a key.
pub(crate) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(a);
        let p1 = u64::from(M1) * u64::from(c);
        (a, b, c, d) = ((p1 >> 32) as u32 ^ b ^ k0, p1 as u32, (p0 >> 32) as u32 ^ d ^ k1, p0 as u32);
        k0 = k0.wrapping_add(W0);
        k1 = k1.wrapping_add(W1);
    }
    [a, b, c, d]
}

/// A random stream: word `n` is word `n % 4` of Philox block `n / 4`.
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Stream {
    /// Starts the stream of a seed.
    pub fn new(seed: u64) -> Stream {
        Stream { key: [seed as u32, (seed >> 32) as u32], block: 0, words: [0; 4], used: 4 }
    }

    /// The next 32 random bits.
    pub fn word(&mut self) -> u32 {
        if self.used == 4 {
            self.words = philox([self.block as u32, (self.block >> 32) as u32, 0, 0], self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// A sample that is uniform in `0.0 .. 1.0`.
    pub fn uniform(&mut self) -> f32 {
        (self.word() >> 8) as f32 / (1 << 24) as f32
    }

    /// A sample that is uniform in `0 .. n`. The bias is negligible because `n` is far below 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.word()) * n as u64) >> 32) as usize
    }

    /// A standard normal sample.
    pub fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * v).cos()
    }

    /// `n` standard normal samples.
    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        // The known answers of Random123 for philox4x32-10.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }
}

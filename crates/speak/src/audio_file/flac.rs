//! FLAC (RFC 9639), one channel of 16 bits: fixed predictors and Rice codes, block by block.
//!
//! Linear predictors fitted to each block would save about 4 % more for speech.

use super::md5::Md5;
use super::pcm::int16;
use super::{AudioFileError, Encode};

/// Samples per block.
const BLOCK: usize = 4096;

/// Highest order of the fixed predictors.
const MOST_ORDER: usize = 4;

/// Blocks are cut into up to 2^6 partitions with a parameter each.
const MOST_PARTITIONS: u32 = 6;

/// Largest Rice parameter of four bits; 15 is an escape code.
const MOST_PARAMETER: u32 = 14;

pub(super) struct Flac {
    rate: u32,
    waiting: Vec<i16>,
    blocks: u64,
    samples: u64,
    /// Bytes of the smallest and of the largest frame.
    smallest: usize,
    largest: usize,
    md5: Option<Md5>,
}

impl Flac {
    pub fn begin(rate: u32, out: &mut Vec<u8>) -> Flac {
        let flac = Flac {
            rate,
            waiting: Vec::new(),
            blocks: 0,
            samples: 0,
            smallest: 0,
            largest: 0,
            md5: Some(Md5::new()),
        };
        out.extend(flac.start([0; 16]));
        flac
    }

    /// `fLaC` and the only metadata block. Values not known yet are 0.
    fn start(&self, md5: [u8; 16]) -> Vec<u8> {
        let mut bits = Bits::default();
        bits.bytes.extend(b"fLaC");
        bits.push(1, 1); // the last metadata block
        bits.push(0, 7); // STREAMINFO
        bits.push(34, 24);
        bits.push(BLOCK as u64, 16);
        bits.push(BLOCK as u64, 16);
        bits.push(self.smallest as u64, 24);
        bits.push(self.largest as u64, 24);
        bits.push(u64::from(self.rate), 20);
        bits.push(0, 3); // channels less one
        bits.push(15, 5); // bits less one
        let samples = if self.samples < 1 << 36 { self.samples } else { 0 };
        bits.push(samples, 36);
        bits.bytes.extend(md5);
        bits.bytes
    }

    fn block(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        let mut bits = Bits::default();
        bits.push(0b11_1111_1111_1110, 14);
        bits.push(0, 2); // blocks of one size
        bits.push(if samples.len() == BLOCK { 0b1100 } else { 0b0111 }, 4);
        bits.push(0, 4); // the rate is in STREAMINFO
        bits.push(0, 4); // one channel
        bits.push(0b100, 3); // 16 bits
        bits.push(0, 1);
        bits.push_number(self.blocks);
        if samples.len() != BLOCK {
            bits.push(samples.len() as u64 - 1, 16);
        }
        bits.push(u64::from(crc8(&bits.bytes)), 8);
        subframe(samples, &mut bits);
        bits.align();
        bits.push(u64::from(crc16(&bits.bytes)), 16);
        self.blocks += 1;
        self.largest = self.largest.max(bits.bytes.len());
        self.smallest =
            if self.smallest == 0 { bits.bytes.len() } else { self.smallest.min(bits.bytes.len()) };
        out.append(&mut bits.bytes);
    }
}

impl Encode for Flac {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        let mut waiting = std::mem::take(&mut self.waiting);
        for part in samples.chunks(BLOCK) {
            let from = waiting.len();
            waiting.extend(part.iter().map(|&sample| int16(sample)));
            let bytes: Vec<u8> = waiting[from..].iter().flat_map(|value| value.to_le_bytes()).collect();
            if let Some(md5) = &mut self.md5 {
                md5.add(&bytes);
            }
            if waiting.len() >= BLOCK {
                self.block(&waiting[..BLOCK], out);
                waiting.drain(..BLOCK);
            }
        }
        self.samples += samples.len() as u64;
        self.waiting = waiting;
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        let rest = std::mem::take(&mut self.waiting);
        if !rest.is_empty() {
            self.block(&rest, out);
        }
        let md5 = self.md5.take().map_or([0; 16], Md5::finish);
        Ok(Some(self.start(md5)))
    }
}

/// Encodes the samples of a block with the shortest supported method.
fn subframe(samples: &[i16], bits: &mut Bits) {
    if samples.iter().all(|sample| *sample == samples[0]) {
        bits.push(0, 8); // one value
        bits.push_signed(i64::from(samples[0]), 16);
        return;
    }
    // The order with the smallest residual has the shortest codes, or nearly so.
    let left = |order: &usize| {
        let values = residual(samples, *order);
        16 * *order as u64 + values.iter().map(|&value| u64::from(value.unsigned_abs())).sum::<u64>()
    };
    let best = (0..=MOST_ORDER.min(samples.len() - 1)).min_by_key(left).map(|order| {
        let residual = residual(samples, order);
        let rice = Rice::best(&residual, order);
        (16 * order as u64 + rice.bits, order, residual, rice)
    });
    match best {
        Some((length, order, residual, rice)) if length < 16 * samples.len() as u64 => {
            bits.push(0b001000 << 1 | (order as u64) << 1, 8);
            for &sample in &samples[..order] {
                bits.push_signed(i64::from(sample), 16);
            }
            rice.write(&residual, order, bits);
        }
        _ => {
            bits.push(1 << 1, 8); // as they are
            for &sample in samples {
                bits.push_signed(i64::from(sample), 16);
            }
        }
    }
}

/// Residual of the fixed predictor of an order for all samples but the first `order`: repeated differences.
fn residual(samples: &[i16], order: usize) -> Vec<i32> {
    let mut values: Vec<i32> = samples.iter().map(|&sample| i32::from(sample)).collect();
    for done in 0..order {
        for i in (done + 1..values.len()).rev() {
            values[i] -= values[i - 1];
        }
    }
    values.split_off(order)
}

/// Rice coding of a residual.
struct Rice {
    partition_order: u32,
    parameters: Vec<u32>,
    bits: u64,
}

impl Rice {
    fn best(residual: &[i32], order: usize) -> Rice {
        let samples = residual.len() + order;
        let fits =
            |partitions: &u32| samples.is_multiple_of(1 << partitions) && samples >> partitions > order;
        let ways = (0..=MOST_PARTITIONS).filter(fits).map(|partition_order| {
            let mut way = Rice { partition_order, parameters: Vec::new(), bits: 6 };
            for part in partitions(residual, order, partition_order) {
                let (parameter, bits) = parameter_of(part);
                way.parameters.push(parameter);
                way.bits += 4 + bits;
            }
            way
        });
        // There is always one partition.
        ways.min_by_key(|way| way.bits).unwrap_or(Rice {
            partition_order: 0,
            parameters: vec![0],
            bits: u64::MAX >> 1,
        })
    }

    fn write(&self, residual: &[i32], order: usize, bits: &mut Bits) {
        bits.push(0, 2); // parameters of four bits
        bits.push(u64::from(self.partition_order), 4);
        for (part, &parameter) in partitions(residual, order, self.partition_order).zip(&self.parameters) {
            bits.push(u64::from(parameter), 4);
            for &value in part {
                let value = folded(value);
                bits.push_zeros(value >> parameter);
                bits.push(1, 1);
                bits.push(value & ((1 << parameter) - 1), parameter);
            }
        }
    }
}

/// The partitions of a residual; the first is shorter by the predictor's order.
fn partitions(residual: &[i32], order: usize, partition_order: u32) -> impl Iterator<Item = &[i32]> {
    let length = (residual.len() + order) >> partition_order;
    let (first, rest) = residual.split_at(length - order);
    std::iter::once(first).chain(rest.chunks(length))
}

/// Zigzag code: 0, -1, 1, -2, ... to 0, 1, 2, 3, ...
fn folded(value: i32) -> u64 {
    let value = i64::from(value);
    ((value << 1) ^ (value >> 63)) as u64
}

/// The best Rice parameter of a partition and its number of bits.
fn parameter_of(values: &[i32]) -> (u32, u64) {
    let bits = |parameter: u32| {
        values.iter().map(|&value| (folded(value) >> parameter) + 1 + u64::from(parameter)).sum::<u64>()
    };
    // The best parameter is near that of the mean.
    let mean = values.iter().map(|&value| folded(value)).sum::<u64>() / values.len().max(1) as u64;
    let guess = (u64::BITS - mean.leading_zeros()).min(MOST_PARAMETER);
    let tried = guess.saturating_sub(2)..=guess;
    tried.map(|parameter| (parameter, bits(parameter))).min_by_key(|(_, bits)| *bits).unwrap_or((0, bits(0)))
}

/// Bit writer, most significant bit first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Bits of an incomplete byte, and their number.
    open: u64,
    count: u32,
}

impl Bits {
    /// Writes the lowest `count` (at most 56) bits of a value.
    fn push(&mut self, value: u64, count: u32) {
        self.open = self.open << count | (value & ((1 << count) - 1));
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.open >> self.count) as u8);
        }
        self.open &= (1 << self.count) - 1;
    }

    fn push_signed(&mut self, value: i64, count: u32) {
        self.push(value as u64, count);
    }

    fn push_zeros(&mut self, mut count: u64) {
        while count > 0 {
            let some = count.min(32);
            self.push(0, some as u32);
            count -= some;
        }
    }

    /// A number of up to 36 bits, coded as UTF-8 codes characters.
    fn push_number(&mut self, number: u64) {
        if number < 0x80 {
            return self.push(number, 8);
        }
        let bits = u64::BITS - number.leading_zeros();
        // `n` continuation bytes of six bits each; the first byte holds what fits after `n + 1` ones and a zero.
        let more = (1..=6).find(|&more| bits <= 6 * more + (6 - more)).unwrap_or(6);
        self.push((0xff << (7 - more)) & 0xff | (number >> (6 * more)), 8);
        for byte in (0..more).rev() {
            self.push(0x80 | ((number >> (6 * byte)) & 0x3f), 8);
        }
    }

    fn align(&mut self) {
        if self.count > 0 {
            self.push(0, 8 - self.count);
        }
    }
}

fn crc8(bytes: &[u8]) -> u8 {
    let step = |sum: u8, _| if sum & 0x80 != 0 { sum << 1 ^ 0x07 } else { sum << 1 };
    bytes.iter().fold(0, |sum, byte| (0..8).fold(sum ^ byte, step))
}

fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0u16; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut sum, mut bit) = ((byte as u16) << 8, 0);
            while bit < 8 {
                sum = if sum & 0x8000 != 0 { sum << 1 ^ 0x8005 } else { sum << 1 };
                bit += 1;
            }
            table[byte] = sum;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |sum, byte| sum << 8 ^ TABLE[usize::from((sum >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_frames_are_coded_as_utf8_codes_characters() {
        for number in [0u64, 1, 0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x1_0000, 0x10_ffff] {
            let mut bits = Bits::default();
            bits.push_number(number);
            let Some(character) = char::from_u32(number as u32) else { continue };
            assert_eq!(bits.bytes, character.to_string().as_bytes(), "{number}");
        }
        let mut bits = Bits::default();
        bits.push_number(0xf_ffff_ffff);
        assert_eq!(bits.bytes, [0xfe, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]);
    }

    #[test]
    fn checksums_are_those_of_the_standard() {
        // The check values of CRC-8/SMBUS and CRC-16/UMTS.
        assert_eq!(crc8(b"123456789"), 0xf4);
        assert_eq!(crc16(b"123456789"), 0xfee8);
    }
}

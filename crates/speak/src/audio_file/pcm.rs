//! Uncompressed samples, with or without a RIFF header.

use super::{AudioFileError, Encode};

/// Sample format of a WAV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Depth {
    /// 16 bits.
    Int16,
    /// 24 bits.
    Int24,
    /// 32-bit floats, not clamped.
    Float,
}

impl Depth {
    /// Bytes per sample.
    pub fn bytes(self) -> u64 {
        match self {
            Depth::Int16 => 2,
            Depth::Int24 => 3,
            Depth::Float => 4,
        }
    }

    /// Bytes of the header.
    pub(super) fn header(self) -> u64 {
        if self == Depth::Float { 58 } else { 44 }
    }

    fn store(self, samples: &[f32], out: &mut Vec<u8>) {
        // `as` saturates and converts NaN to 0.
        match self {
            Depth::Int16 => out.extend(samples.iter().flat_map(|&sample| int16(sample).to_le_bytes())),
            Depth::Int24 => out.extend(samples.iter().flat_map(|&sample| {
                let value = (f64::from(sample) * 8_388_608.0).round_ties_even() as i32;
                let [a, b, c, _] = value.clamp(-8_388_608, 8_388_607).to_le_bytes();
                [a, b, c]
            })),
            Depth::Float => out.extend(samples.iter().flat_map(|&sample| {
                let sample = if sample.is_finite() { sample } else { 0.0 };
                sample.to_le_bytes()
            })),
        }
    }
}

/// Rounds a sample to 16 bits, as everywhere in the project.
pub(super) fn int16(sample: f32) -> i16 {
    (sample * 32768.0).round_ties_even() as i16
}

/// Samples without a header.
pub(super) struct Raw;

impl Encode for Raw {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        Depth::Int16.store(samples, out);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        Ok(None)
    }
}

/// A WAV file.
pub(super) struct Wav {
    depth: Depth,
    rate: u32,
    samples: u64,
}

impl Wav {
    pub fn begin(depth: Depth, rate: u32, out: &mut Vec<u8>) -> Wav {
        let wav = Wav { depth, rate, samples: 0 };
        out.extend(wav.header(None));
        wav
    }

    pub fn resume(depth: Depth, rate: u32, samples: u64) -> Wav {
        Wav { depth, rate, samples }
    }

    /// The header for a number of samples. If it is not known, all sizes are 0xFFFFFFFF.
    fn header(&self, samples: Option<u64>) -> Vec<u8> {
        let (depth, rate) = (self.depth, self.rate);
        let width = depth.bytes();
        // Sizes beyond 32 bits are written as unknown: readers then read to the end.
        let size = |size: Option<u64>| {
            size.and_then(|size| u32::try_from(size).ok()).unwrap_or(u32::MAX).to_le_bytes()
        };
        let data = samples.map(|samples| samples * width).filter(|&data| u32::try_from(data).is_ok());
        let mut out = Vec::with_capacity(depth.header() as usize);
        out.extend(b"RIFF");
        out.extend(size(data.map(|data| depth.header() - 8 + data + data % 2)));
        out.extend(b"WAVEfmt ");
        let (tag, length) = if depth == Depth::Float { (3u16, 18u32) } else { (1, 16) };
        out.extend(length.to_le_bytes());
        out.extend(tag.to_le_bytes());
        out.extend(1u16.to_le_bytes());
        out.extend(rate.to_le_bytes());
        out.extend(rate.saturating_mul(width as u32).to_le_bytes());
        out.extend((width as u16).to_le_bytes());
        out.extend((8 * width as u16).to_le_bytes());
        if depth == Depth::Float {
            // Formats other than PCM have an (empty) extension and a `fact` chunk with the number of samples.
            out.extend(b"\0\0fact\x04\0\0\0");
            out.extend(size(data.and(samples)));
        }
        out.extend(b"data");
        out.extend(size(data));
        out
    }
}

impl Encode for Wav {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        self.depth.store(samples, out);
        self.samples += samples.len() as u64;
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        if self.samples * self.depth.bytes() % 2 == 1 {
            out.push(0);
        }
        Ok(Some(self.header(Some(self.samples))))
    }
}

//! Converts interleaved samples of any width to one mono `f32` channel.

/// Storage format of one sample, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Encoding {
    pub(super) fn bytes(self) -> usize {
        match self {
            Encoding::U8 => 1,
            Encoding::I16 => 2,
            Encoding::I24 => 3,
            Encoding::I32 | Encoding::F32 => 4,
            Encoding::F64 => 8,
        }
    }
}

/// Returns the mean of the channels and its largest magnitude, which is `None` if a sample is NaN or infinite.
///
/// Integers are scaled by their most negative value: 16 bits by 1/32768, as XTTS does.
pub(super) fn to_mono(data: &[u8], encoding: Encoding, channels: usize) -> (Vec<f32>, Option<f32>) {
    match encoding {
        Encoding::U8 => mix(data, channels, |[byte]: [u8; 1]| (f32::from(byte) - 128.0) / 128.0),
        Encoding::I16 => {
            mix(data, channels, |bytes: [u8; 2]| f32::from(i16::from_le_bytes(bytes)) * (1.0 / 32768.0))
        }
        Encoding::I24 => mix(data, channels, |[a, b, c]: [u8; 3]| {
            (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 * (1.0 / 8_388_608.0)
        }),
        Encoding::I32 => {
            mix(data, channels, |bytes: [u8; 4]| i32::from_le_bytes(bytes) as f32 * (1.0 / 2_147_483_648.0))
        }
        Encoding::F32 => mix(data, channels, f32::from_le_bytes),
        Encoding::F64 => mix(data, channels, |bytes: [u8; 8]| f64::from_le_bytes(bytes) as f32),
    }
}

/// Frames converted and measured at a time, so that measuring finds the samples in the cache.
const CHUNK_FRAMES: usize = 4096;

fn mix<const N: usize>(
    data: &[u8],
    channels: usize,
    convert: impl Fn([u8; N]) -> f32 + Copy,
) -> (Vec<f32>, Option<f32>) {
    let values = data.as_chunks::<N>().0;
    let mut samples: Vec<f32> = Vec::with_capacity(values.len() / channels);
    let mut peak = Peak::default();
    for chunk in values.chunks(CHUNK_FRAMES * channels) {
        let start = samples.len();
        match channels {
            1 => samples.extend(chunk.iter().map(|&value| convert(value))),
            2 => samples.extend(
                chunk.as_chunks::<2>().0.iter().map(|&[left, right]| (convert(left) + convert(right)) * 0.5),
            ),
            _ => samples.extend(
                chunk
                    .chunks_exact(channels)
                    .map(|frame| frame.iter().map(|&value| convert(value)).sum::<f32>() / channels as f32),
            ),
        }
        peak.update(&samples[start..]);
    }
    (samples, peak.value())
}

/// Largest magnitude of a signal, found on the bit patterns: for magnitudes the order of the bits is the order of the
/// numbers, with infinity and NaN above all.
#[derive(Default)]
pub(super) struct Peak {
    bits: u32,
}

impl Peak {
    pub(super) fn update(&mut self, samples: &[f32]) {
        let magnitude = |sample: f32| sample.to_bits() & 0x7FFF_FFFF;
        let mut lanes = [0u32; 16];
        let (whole, rest) = samples.as_chunks::<16>();
        for chunk in whole {
            for (lane, &sample) in lanes.iter_mut().zip(chunk) {
                *lane = (*lane).max(magnitude(sample));
            }
        }
        let rest = rest.iter().map(|&sample| magnitude(sample));
        self.bits = lanes.into_iter().chain(rest).fold(self.bits, u32::max);
    }

    /// The peak, or `None` if a sample was NaN or infinite.
    pub(super) fn value(&self) -> Option<f32> {
        let peak = f32::from_bits(self.bits);
        peak.is_finite().then_some(peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_scale_maps_to_one_in_every_width() {
        assert_eq!(to_mono(&[0, 128, 255], Encoding::U8, 1).0, [-1.0, 0.0, 127.0 / 128.0]);
        assert_eq!(to_mono(&[0, 0x80, 0xFF, 0x7F], Encoding::I16, 1).0, [-1.0, 32767.0 / 32768.0]);
        assert_eq!(to_mono(&[0, 0, 0x80, 0, 0, 0x40], Encoding::I24, 1).0, [-1.0, 0.5]);
        assert_eq!(to_mono(&[0, 0, 0, 0x80, 0, 0, 0, 0x40], Encoding::I32, 1).0, [-1.0, 0.5]);
        assert_eq!(to_mono(&0.25f64.to_le_bytes(), Encoding::F64, 1).0, [0.25]);
    }

    #[test]
    fn channels_are_averaged() {
        let stereo: Vec<u8> = [1.0f32, 0.5, -1.0, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(to_mono(&stereo, Encoding::F32, 2).0, [0.75, -0.5]);
        let three: Vec<u8> = [0.3f32, 0.3, 0.3].iter().flat_map(|v| v.to_le_bytes()).collect();
        let (mono, peak) = to_mono(&three, Encoding::F32, 3);
        assert!((mono[0] - 0.3).abs() < 1e-7 && mono.len() == 1 && peak == Some(mono[0]));
    }

    #[test]
    fn the_peak_covers_every_sample() {
        for position in [0, 15, 16, 31, 32, 36] {
            let mut samples = vec![0.25f32; 37];
            samples[position] = -0.75;
            let mut peak = Peak::default();
            peak.update(&samples);
            assert_eq!(peak.value(), Some(0.75));
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                samples[position] = bad;
                let mut peak = Peak::default();
                peak.update(&samples);
                peak.update(&[0.5]);
                assert_eq!(peak.value(), None, "{bad} at {position}");
            }
        }
    }
}

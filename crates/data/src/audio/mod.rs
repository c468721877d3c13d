//! Audio files to mono samples: decoding, resampling, trimming, loudness.
//!
//! Successful decoding proves nothing: half an MP3 decodes without an error. So every decoder here also checks what its
//! format allows (declared lengths, checksums, page and frame chains) and rejects damaged files with a reason.

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub mod wav;

mod compressed;
mod error;
mod loudness;
mod mp4;
mod mpeg;
mod ogg;
mod pcm;
mod resample;
mod segment_reader;
mod sniff;
mod trim;

pub use error::AudioError;
pub(crate) use loudness::gain_to;
pub use loudness::integrated_loudness;
pub use resample::Resampler;
pub use segment_reader::SegmentReader;
pub use trim::trim_silence;

/// Accepted sample rates in Hz; a header with any other is treated as damaged.
pub(crate) const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// Maximum number of channels; real recordings have fewer.
pub(crate) const MAX_CHANNELS: u16 = 64;

/// Maximum number of frames decoded at once: 1 GiB as f32, over 90 minutes at 48 kHz. Compressed silence can be 10,000 times
/// smaller than its samples, so a limit is needed.
pub(crate) const MAX_FRAMES: u64 = 1 << 28;

/// Maximum size in bytes of a file that is read into memory.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 30;

/// WAV files over this size in bytes are decoded in chunks.
const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// Bytes read from a large file to find its samples.
const HEAD_BYTES: u64 = 1 << 20;

/// Samples at or above this magnitude count as clipped: one 16-bit step below full scale.
const FULL_SCALE: f32 = 1.0 - 1.5 / 32768.0;

/// Minimum number of consecutive full-scale samples that counts as clipping and not just a peak.
const CLIPPED_RUN: u64 = 3;

/// Mono samples in [-1, 1].
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// One value per frame.
    pub samples: Vec<f32>,
    /// Sample rate in Hz.
    pub sample_rate: u32,
}

impl Clip {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.sample_rate)
    }
}

/// Supported file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// RIFF, RF64 or BW64 with PCM or float samples.
    Wav,
    /// Native FLAC.
    Flac,
    /// MPEG audio layer 3.
    Mp3,
    /// Ogg with Vorbis or FLAC.
    Ogg,
    /// MPEG-4 (`.m4a`) with AAC-LC or ALAC.
    Mp4,
}

/// Properties from a file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The format, detected by content.
    pub container: Container,
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Number of channels.
    pub channels: u16,
    /// Bits per sample; `None` for formats without a fixed width.
    pub bits: Option<u16>,
    /// Samples per channel if the header declares them, without encoder delay and padding.
    pub declared_frames: Option<u64>,
}

/// A decoded file.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Mean of the channels, clamped to [-1, 1].
    pub clip: Clip,
    /// Properties from the header.
    pub info: SourceInfo,
    /// Number of decoded samples per channel.
    pub frames: u64,
    /// Samples of the mono mix at full scale, counted in runs of three or more.
    pub clipped: u64,
    /// Largest magnitude of the mono mix before clamping; above 1 only in float formats.
    pub peak: f32,
}

/// Decodes an audio file to mono. The decoder is chosen by content, not by file name.
///
/// A large WAV file is validated by its header and decoded in chunks; for other formats the limit is 1 GiB.
pub fn decode(path: &Path) -> Result<Decoded, AudioError> {
    let (mut file, length) = open(path)?;
    if length > MAX_WHOLE_BYTES {
        return decode_large(file, length, path);
    }
    // One byte more than the file: the read that detects the end then does not reallocate.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).min(MAX_INITIAL_CAPACITY) + 1);
    file.read_to_end(&mut bytes).map_err(|source| AudioError::io(path, source))?;
    decode_bytes(&bytes, path)
}

fn decode_large(mut file: File, length: u64, path: &Path) -> Result<Decoded, AudioError> {
    let failed = |source| AudioError::io(path, source);
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    if let Ok((Container::Wav, start)) = sniff::sniff(&bytes)
        && let Some(decoded) =
            wav::decode_in_chunks(&mut file, &bytes[start..], (start as u64, length), path)?
    {
        return Ok(decoded);
    }
    if length > MAX_FILE_BYTES {
        return Err(AudioError::TooLarge { path: path.to_owned(), bytes: length, limit: MAX_FILE_BYTES });
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    decode_bytes(&bytes, path)
}

/// Decodes an audio file in memory; `name` is only used in messages.
pub fn decode_bytes(bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    if bytes.is_empty() {
        return Err(AudioError::empty(name, "the file has no content"));
    }
    match sniff::sniff(bytes).map_err(|found| AudioError::unsupported(name, found))? {
        (Container::Wav, start) => wav::decode(&bytes[start..], name),
        (container, start) => compressed::decode(container, &bytes[start..], name),
    }
}

/// Reads the properties in a file's header without decoding it.
///
/// Reads a few kilobytes of WAV, FLAC and tagged MP3 files and all of other formats, up to 1 GiB.
pub fn probe(path: &Path) -> Result<SourceInfo, AudioError> {
    let (mut file, length) = open(path)?;
    let mut bytes = Vec::new();
    let mut read = |most: u64, bytes: &mut Vec<u8>| {
        file.by_ref().take(most).read_to_end(bytes).map_err(|source| AudioError::io(path, source))
    };
    read(PROBE_BYTES, &mut bytes)?;
    if bytes.is_empty() {
        return Err(AudioError::empty(path, "the file has no content"));
    }
    // A tag with a cover picture, or chunks before a WAV's samples, can be longer than the first read, so try a larger one.
    if let Some(info) = probe_start(&bytes, length, path)? {
        return Ok(info);
    }
    read(HEAD_BYTES, &mut bytes)?;
    if let Some(info) = probe_start(&bytes, length, path)? {
        return Ok(info);
    }
    if length > MAX_FILE_BYTES {
        return Err(AudioError::TooLarge { path: path.to_owned(), bytes: length, limit: MAX_FILE_BYTES });
    }
    read(MAX_FILE_BYTES, &mut bytes)?;
    let (container, start) = sniff::sniff(&bytes).map_err(|found| AudioError::unsupported(path, found))?;
    match container {
        Container::Wav => wav::info(&bytes[start..], path),
        _ => compressed::info(container, &bytes[start..], path),
    }
}

/// Parses the header in the first bytes of a file of `length` bytes; `None` if it is incomplete.
fn probe_start(bytes: &[u8], length: u64, path: &Path) -> Result<Option<SourceInfo>, AudioError> {
    let Ok((container, start)) = sniff::sniff(bytes) else { return Ok(None) };
    let total = length.max(bytes.len() as u64) - start as u64;
    match container {
        Container::Wav => wav::probe(&bytes[start..], total, path),
        Container::Flac => compressed::probe_flac(&bytes[start..], path),
        Container::Mp3 => mpeg::probe(&bytes[start..], path),
        Container::Ogg | Container::Mp4 => Ok(None),
    }
}

const MAX_INITIAL_CAPACITY: usize = 1 << 30;
const PROBE_BYTES: u64 = 8 * 1024;

fn open(path: &Path) -> Result<(File, u64), AudioError> {
    // Check before opening: opening a named pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|source| AudioError::io(path, source))?;
    if !metadata.is_file() {
        return Err(AudioError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(|source| AudioError::io(path, source))?;
    Ok((file, metadata.len()))
}

/// Clamps and measures a mono mix. `finite_peak` is its largest magnitude, known to be finite.
fn finish(mut samples: Vec<f32>, info: SourceInfo, finite_peak: f32) -> Decoded {
    if finite_peak > 1.0 {
        samples.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
    }
    let clipped = if finite_peak < FULL_SCALE { 0 } else { count_clipped(&samples) };
    let frames = samples.len() as u64;
    let clip = Clip { samples, sample_rate: info.sample_rate };
    Decoded { clip, info, frames, clipped, peak: finite_peak }
}

fn count_clipped(samples: &[f32]) -> u64 {
    let (mut clipped, mut run) = (0, 0);
    for sample in samples {
        if sample.abs() >= FULL_SCALE {
            run += 1;
        } else {
            clipped += if run >= CLIPPED_RUN { run } else { 0 };
            run = 0;
        }
    }
    clipped + if run >= CLIPPED_RUN { run } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_at_full_scale_count_as_clipped() {
        let edge = 32767.0 / 32768.0;
        assert_eq!(count_clipped(&[0.0, edge, edge, 0.0, -1.0, 0.5]), 0);
        assert_eq!(count_clipped(&[edge, edge, edge, 0.0, -1.0, -1.0, -1.0, -1.0]), 7);
        assert_eq!(count_clipped(&[0.999; 9]), 0, "loud is not clipped");
    }
}

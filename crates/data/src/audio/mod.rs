//! Sound files to mono samples: decoding, resampling, trimming, loudness.
//!
//! Decoding proves nothing by itself: half an MP3 decodes "fine". So every decoder here also checks
//! what its format lets it check (declared lengths, checksums, page and frame chains) and refuses
//! with a reason.

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
mod pieces;
mod resample;
mod sniff;
mod trim;

pub use error::AudioError;
pub(crate) use loudness::{gain_to, integrated_loudness};
pub use pieces::Pieces;
pub use resample::Resampler;
pub use trim::trim_silence;

/// Sampling rates that are taken for real; a header with any other is damaged.
pub(crate) const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// More channels than any recording has.
pub(crate) const MOST_CHANNELS: u16 = 64;

/// The most samples that are decoded in one piece: 1 GiB, over 90 minutes at 48 kHz. Compressed
/// silence can be 10,000 times smaller than what it decodes to, so something has to say stop.
pub(crate) const MOST_FRAMES: u64 = 1 << 28;

/// The largest file that is read whole, in bytes.
pub(crate) const LARGEST_FILE: u64 = 1 << 30;

/// Larger WAV files are decoded in pieces.
const LARGEST_WHOLE: u64 = 64 << 20;

/// What is read of a large file to find its samples.
const HEAD: u64 = 1 << 20;

/// Samples this close to full scale count as clipped: one step of 16 bits below it.
const FULL_SCALE: f32 = 1.0 - 1.5 / 32768.0;

/// So many neighbours at full scale are a clipped wave and not just its peak.
const CLIPPED_RUN: u64 = 3;

/// Mono samples in [-1, 1].
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// The samples.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub sample_rate: u32,
}

impl Clip {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.sample_rate)
    }
}

/// The file formats we read.
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

/// What a file's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The format, by content.
    pub container: Container,
    /// Samples per second and channel.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// Bits of a sample, where the format has such a thing.
    pub bits: Option<u16>,
    /// Samples per channel, where the header declares them, without encoder delay and padding.
    pub declared_frames: Option<u64>,
}

/// A decoded file.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The sound: the mean of the channels, limited to [-1, 1].
    pub clip: Clip,
    /// What the header said.
    pub info: SourceInfo,
    /// Samples per channel that were decoded.
    pub frames: u64,
    /// Samples of the mono mix at full scale, counted in runs of three or more.
    pub clipped: u64,
    /// Largest magnitude of the mono mix before it was limited; above 1 only in float formats.
    pub peak: f32,
}

/// Decodes a sound file to mono. Which decoder is decided by the content, not by the name.
///
/// A large WAV file is judged by its header and decoded in pieces; of other formats no more than 1 GiB is read.
pub fn decode(path: &Path) -> Result<Decoded, AudioError> {
    let (mut file, length) = open(path)?;
    if length > LARGEST_WHOLE {
        return decode_large(file, length, path);
    }
    // One byte more than the file has: the read that finds the end then needs no growth.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).min(LARGEST_GUESS) + 1);
    file.read_to_end(&mut bytes).map_err(|source| AudioError::io(path, source))?;
    decode_bytes(&bytes, path)
}

fn decode_large(mut file: File, length: u64, path: &Path) -> Result<Decoded, AudioError> {
    let failed = |source| AudioError::io(path, source);
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut bytes).map_err(failed)?;
    if let Ok((Container::Wav, start)) = sniff::sniff(&bytes)
        && let Some(decoded) =
            wav::decode_in_pieces(&mut file, &bytes[start..], (start as u64, length), path)?
    {
        return Ok(decoded);
    }
    if length > LARGEST_FILE {
        return Err(AudioError::TooLarge { path: path.to_owned(), bytes: length, limit: LARGEST_FILE });
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    decode_bytes(&bytes, path)
}

/// Decodes a sound file that is already in memory; `name` is only used in messages.
pub fn decode_bytes(bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    if bytes.is_empty() {
        return Err(AudioError::empty(name, "the file has no content"));
    }
    match sniff::sniff(bytes).map_err(|found| AudioError::unsupported(name, found))? {
        (Container::Wav, start) => wav::decode(&bytes[start..], name),
        (container, start) => compressed::decode(container, &bytes[start..], name),
    }
}

/// Reads what a file's header says without decoding it.
///
/// Reads a few kilobytes of WAV, FLAC and tagged MP3 files and all of others, up to 1 GiB.
pub fn probe(path: &Path) -> Result<SourceInfo, AudioError> {
    let (mut file, length) = open(path)?;
    let mut bytes = Vec::new();
    let mut read = |most: u64, bytes: &mut Vec<u8>| {
        file.by_ref().take(most).read_to_end(bytes).map_err(|source| AudioError::io(path, source))
    };
    read(PROBED, &mut bytes)?;
    if bytes.is_empty() {
        return Err(AudioError::empty(path, "the file has no content"));
    }
    // A tag with a cover picture, or chunks before a WAV's samples, can be longer than the first read: then a larger one.
    if let Some(info) = probe_start(&bytes, length, path)? {
        return Ok(info);
    }
    read(HEAD, &mut bytes)?;
    if let Some(info) = probe_start(&bytes, length, path)? {
        return Ok(info);
    }
    if length > LARGEST_FILE {
        return Err(AudioError::TooLarge { path: path.to_owned(), bytes: length, limit: LARGEST_FILE });
    }
    read(LARGEST_FILE, &mut bytes)?;
    let (container, start) = sniff::sniff(&bytes).map_err(|found| AudioError::unsupported(path, found))?;
    match container {
        Container::Wav => wav::info(&bytes[start..], path),
        _ => compressed::info(container, &bytes[start..], path),
    }
}

/// The header in the first bytes of a file of `length` bytes; `None` where they do not hold all of it.
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

const LARGEST_GUESS: usize = 1 << 30;
const PROBED: u64 = 8 * 1024;

fn open(path: &Path) -> Result<(File, u64), AudioError> {
    // Asked before opening: opening a named pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|source| AudioError::io(path, source))?;
    if !metadata.is_file() {
        return Err(AudioError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(|source| AudioError::io(path, source))?;
    Ok((file, metadata.len()))
}

/// Limits, measures and packs a mono mix. `finite_peak` is its largest magnitude, already known to
/// be a number.
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

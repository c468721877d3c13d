//! Reads and decodes a range of samples from an audio file.
//!
//! WAV only: other formats are decoded from their beginning. The samples are bit-identical to those of [`super::decode`],
//! which has already read and validated the whole file.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use super::pcm::{self, Encoding};
use super::{AudioError, Container, open, sniff, wav};

/// Location and encoding of the samples in a validated file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentReader {
    encoding: Encoding,
    channels: u16,
    sample_rate: u32,
    /// Offset of the first sample in bytes.
    start: u64,
    frames: u64,
    /// Size and modification time when the file was validated: a changed file needs validating again.
    length: u64,
    modified: Option<SystemTime>,
}

impl SegmentReader {
    /// Locates the samples of a file with the content `bytes`; `None` if the format does not allow partial reading.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Option<SegmentReader>, AudioError> {
        let Ok((Container::Wav, start)) = sniff::sniff(bytes) else { return Ok(None) };
        let (encoding, data, info) = wav::samples(&bytes[start..], path)?;
        let metadata = std::fs::metadata(path).map_err(|source| AudioError::io(path, source))?;
        Ok(Some(SegmentReader {
            encoding,
            channels: info.channels,
            sample_rate: info.sample_rate,
            start: start as u64 + data.start,
            frames: (data.end - data.start) / (encoding.bytes() as u64 * u64::from(info.channels)),
            length: bytes.len() as u64,
            modified: metadata.modified().ok(),
        }))
    }

    /// Sample rate in Hz.
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// Reads the bytes of the samples `range` from `path`, replacing the content of `bytes`.
    pub fn read(&self, path: &Path, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<(), AudioError> {
        let (mut file, length) = open(path)?;
        let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
        if length != self.length || modified != self.modified {
            return Err(AudioError::corrupt(path, "the file changed while training was using it"));
        }
        let frame = self.encoding.bytes() as u64 * u64::from(self.channels);
        let range = range.start.min(self.frames)..range.end.min(self.frames);
        // Bounded by the file size, which has been in memory once.
        bytes.resize((range.end.saturating_sub(range.start) * frame) as usize, 0);
        file.seek(SeekFrom::Start(self.start + range.start * frame))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|source| AudioError::io(path, source))
    }

    /// Decodes the bytes read by [`Self::read`]: the mean of the channels, clamped to [-1, 1].
    pub fn decode(&self, bytes: &[u8]) -> Vec<f32> {
        let (mut samples, peak) = pcm::to_mono(bytes, self.encoding, usize::from(self.channels));
        if peak.is_none_or(|peak| peak > 1.0) {
            samples.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        }
        samples
    }
}

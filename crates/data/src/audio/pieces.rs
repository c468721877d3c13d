//! A piece of a sound file: only the samples that are asked for are read and decoded.
//!
//! Only of WAV: everything else is decoded from its beginning. The samples are those of [`super::decode`] to the bit,
//! which has read the file whole before and found it good.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use super::pcm::{self, Encoding};
use super::{AudioError, Container, open, sniff, wav};

/// Where the samples of a file lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pieces {
    encoding: Encoding,
    channels: u16,
    sample_rate: u32,
    /// The first byte of the first sample.
    start: u64,
    frames: u64,
    /// What the file was when it was read whole: another one may not be as good.
    length: u64,
    modified: Option<SystemTime>,
}

impl Pieces {
    /// Of a file whose content is `bytes`; none where it cannot be read in pieces.
    pub fn of(bytes: &[u8], path: &Path) -> Result<Option<Pieces>, AudioError> {
        let Ok((Container::Wav, start)) = sniff::sniff(bytes) else { return Ok(None) };
        let (encoding, data, info) = wav::samples(&bytes[start..], path)?;
        let metadata = std::fs::metadata(path).map_err(|source| AudioError::io(path, source))?;
        Ok(Some(Pieces {
            encoding,
            channels: info.channels,
            sample_rate: info.sample_rate,
            start: start as u64 + data.start,
            frames: (data.end - data.start) / (encoding.bytes() as u64 * u64::from(info.channels)),
            length: bytes.len() as u64,
            modified: metadata.modified().ok(),
        }))
    }

    /// Samples per second.
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// Reads the bytes of the samples `range` of `path`, in the place of what `bytes` held.
    pub fn read(&self, path: &Path, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<(), AudioError> {
        let (mut file, length) = open(path)?;
        let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
        if length != self.length || modified != self.modified {
            return Err(AudioError::corrupt(path, "it was changed after training began to read it"));
        }
        let frame = self.encoding.bytes() as u64 * u64::from(self.channels);
        let range = range.start.min(self.frames)..range.end.min(self.frames);
        // No more than the file has, which has been in memory once.
        bytes.resize((range.end.saturating_sub(range.start) * frame) as usize, 0);
        file.seek(SeekFrom::Start(self.start + range.start * frame))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|source| AudioError::io(path, source))
    }

    /// The samples that [`Self::read`] has read: the mean of the channels, limited to [-1, 1].
    pub fn decode(&self, bytes: &[u8]) -> Vec<f32> {
        let (mut samples, peak) = pcm::to_mono(bytes, self.encoding, usize::from(self.channels));
        if peak.is_none_or(|peak| peak > 1.0) {
            samples.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        }
        samples
    }
}
